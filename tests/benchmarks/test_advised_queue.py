"""What `advise` predicts of the tiny pair at three rates, from closed loops and a low rate, against what is measured.

The requests are simulated at the moments at which they were asked. Printed are the 90th percentiles of TTFT and TPOT,
predicted and measured, with their ratio; the aim is 15 %, on a machine that does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.home import home
from toolkit.measure.journal import saved_results
from toolkit.measure.measurement import ArmReport
from toolkit.measure.queue import Engine, Request, Waited, simulate
from toolkit.measure.speeds import pace, read_speeds
from toolkit.platforms.local import daemon

LOADS = (1, 2, 4, 8)
MOSTLY_IDLE = (0.5,)
RATES = (1.0, 2.0, 4.0)
KNOWN_REQUESTS, PREDICTED_REQUESTS = 24, 96
SECONDS = 600.0


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    yield toolkit.deploy("tiny/p-eagle", progress=Silent())
    daemon.stop(home() / "local")


@pytest.mark.timeout(1200)
def test_predicted_and_measured_latencies(
    endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = tmp_path / "predicted.jsonl"
    recipe = toolkit.load("tiny/p-eagle")
    known = toolkit.bench(
        endpoint, concurrency=LOADS, rates=MOSTLY_IDLE, requests=KNOWN_REQUESTS, seconds=SECONDS, progress=Silent()
    )
    opened = toolkit.bench(
        endpoint,
        concurrency=(),
        rates=RATES,
        requests=PREDICTED_REQUESTS,
        seconds=SECONDS,
        journal=journal,
        progress=Silent(),
    )
    (speeds,), _ = read_speeds([("known", known)], recipe.method, {})
    limits = recipe.engine.max_num_seqs, recipe.engine.max_num_batched_tokens or 0, 10**9
    paces = {one.workload: pace([one]) for one in speeds.curves if one.k}
    with capsys.disabled():
        print()
        for row in opened.arms:
            waited = simulate(_asked(journal, row), Engine(((limits[0], paces[row.workload]),), *limits), ((0.0, 1),))
            print(_compared(row, waited))


def _asked(journal: Path, row: ArmReport) -> list[Request]:
    there = [one for one in saved_results(journal) if (one.workload, one.load) == (row.workload, row.rate)]
    return sorted((Request(one.started, one.prompt_tokens, one.output_tokens) for one in there), key=lambda one: one.at)


def _compared(row: ArmReport, waited: Waited) -> str:
    pairs = (("TTFT", waited.ttft, row.ttft), ("TPOT", waited.tpot, row.tpot))
    figures = [
        f"{name} {said.p90 * 1000:.1f} ms predicted, {seen.p90 * 1000:.1f} ms measured ({said.p90 / seen.p90:.2f})"
        for name, said, seen in pairs
        if said and seen
    ]
    return f"{row.workload}, {row.rate:g} a second, {row.requests} requests: {', '.join(figures)}"
