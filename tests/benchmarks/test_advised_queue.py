"""What `advise` predicts of the tiny pair at three rates, from closed loops, against what open loops measure.

Printed are the 90th percentiles of TTFT and TPOT, predicted and measured, with their ratio.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.home import home
from toolkit.measure.queue import Engine, simulate
from toolkit.measure.speeds import pace, read_speeds
from toolkit.measure.trace import at_rate
from toolkit.platforms.local import daemon

LOADS = (1, 2, 4, 8)
RATES = (0.5, 1.0, 2.0)
SECONDS = 60.0


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    yield toolkit.deploy("tiny/p-eagle", progress=Silent())
    daemon.stop(home() / "local")


@pytest.mark.timeout(900)
def test_predicted_and_measured_latencies(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = toolkit.load("tiny/p-eagle")
    assert recipe.engine.max_num_batched_tokens
    closed = toolkit.bench(endpoint, concurrency=LOADS, seconds=SECONDS, progress=Silent())
    opened = toolkit.bench(endpoint, concurrency=(), rates=RATES, seconds=SECONDS, progress=Silent())
    (speeds,), _ = read_speeds([("closed", closed)], recipe.method)
    limits = recipe.engine.max_num_seqs, recipe.engine.max_num_batched_tokens, 10**9
    with capsys.disabled():
        print()
        for row in opened.arms:
            curve = next(one for one in speeds.curves if one.workload == row.workload and one.k)
            assert row.rate
            assert row.ttft
            assert row.tpot
            requests = at_rate(row.rate, round(curve.prompt_tokens), round(curve.answer_tokens))
            waited = simulate(requests, Engine(((limits[0], pace([curve])),), *limits), ((0.0, 1),))
            assert waited.tpot
            pairs = {"TTFT": (waited.ttft.p90, row.ttft.p90), "TPOT": (waited.tpot.p90, row.tpot.p90)}
            figures = ", ".join(
                f"{name} {said * 1000:.1f} ms predicted, {seen * 1000:.1f} ms measured ({said / seen:.2f})"
                for name, (said, seen) in pairs.items()
            )
            print(f"{row.workload}, {row.rate:g} a second, {row.requests} requests: {figures}")
