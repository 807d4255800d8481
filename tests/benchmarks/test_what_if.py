"""What-if speedups held against real drafters: one workload's steps per second, the other workload's acceptance."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import permutations

import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.home import home
from toolkit.measure.arm import Arm
from toolkit.measure.bench import sender
from toolkit.measure.connection import connect_endpoint
from toolkit.measure.result import RequestResult, successful
from toolkit.measure.run import Design, Load, run
from toolkit.measure.statistics import pairs_of, speedup
from toolkit.measure.what_if import predicted, target_steps
from toolkit.platforms.local import daemon

METHODS = ("p-eagle", "eagle3", "draft-model", "ngram")
LOADS = (1, 4)
SECONDS = 60
# A fifth of what two intervals of a shared machine do to each other, and of what other texts do to a step.
TOLERANCE = 0.2


@pytest.mark.timeout(3600)
def test_other_acceptance_is_as_fast_as_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    errors: dict[str, list[float]] = {}
    with capsys.disabled():
        print("\nmethod       load  steps/s of  acceptance of        predicted  measured")
        for method in METHODS:
            for line, error in _compared(method):
                print(line)
                errors.setdefault(method, []).append(error)
        for method, found in errors.items():
            print(f"{method}: {', '.join(f'{error:+.0%}' for error in found)}")
    heads = [abs(error) for method, found in errors.items() for error in found if method != "ngram"]
    assert sorted(heads)[len(heads) // 2] < TOLERANCE


def _compared(method: str) -> list[tuple[str, float]]:
    endpoint = toolkit.deploy(f"tiny/{method}", baseline=True, progress=Silent())
    try:
        results = asyncio.run(_measured(endpoint))
    finally:
        toolkit.destroy(endpoint.name, progress=Silent())
        daemon.stop(home() / "local")
    lines = []
    for load in LOADS:
        found = {
            workload.name: [item for item in results if (item.workload, item.load) == (workload.name, load)]
            for workload in endpoint.workloads
        }
        for source, other in permutations(found, 2):
            length = _tokens_per_step(found[other])
            guess = predicted(found[source], "speculative", "baseline", length)
            truth = speedup(pairs_of(found[other], "speculative", "baseline"))
            assert guess
            assert truth
            shown = [f"{item.ratio:.2f} ({item.low:.2f}-{item.high:.2f})" for item in (guess, truth)]
            line = f"{method:12} {load:4}  {source:10}  {other:10} = {length:.2f}  {shown[0]:18}  {shown[1]}"
            lines.append((line, math.expm1(math.log(guess.ratio / truth.ratio))))
    return lines


async def _measured(endpoint: Endpoint) -> Sequence[RequestResult]:
    assert endpoint.baseline
    async with (
        connect_endpoint(endpoint.platform, endpoint.address) as speculative,
        connect_endpoint(endpoint.platform, endpoint.baseline) as baseline,
    ):
        design = Design(
            arms=(Arm("speculative", speculative),),
            baseline=Arm("baseline", baseline, speculative=False),
            workloads=endpoint.workloads,
            loads=tuple(map(Load, LOADS)),
            precision=0.03,
            seconds=SECONDS,
            settle_seconds=endpoint.platform.pause_between_arms,
        )
        return (await run(design, sender(design.settle_seconds))).results


def _tokens_per_step(results: Sequence[RequestResult]) -> float:
    answers = [item for item in successful(results) if item.arm == "speculative"]
    return sum(item.output_tokens - 1 for item in answers) / sum(map(target_steps, answers))
