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
from toolkit.measure.design import Design, Load
from toolkit.measure.result import RequestResult, successful
from toolkit.measure.run import run
from toolkit.measure.statistics import pairs_of, speedup
from toolkit.measure.what_if import predict_speedup, target_steps
from toolkit.platforms.local import daemon

METHODS = ("p-eagle", "eagle3", "draft-model", "ngram")
LOADS = (1, 4)
SECONDS = 60
# Of the comparisons, so many must be within the 95 % interval of their quotient: the machine is shared.
SHARE = 0.75


@pytest.mark.timeout(3600)
def test_other_acceptance_is_as_fast_as_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    strays: list[float] = []
    with capsys.disabled():
        print("\nmethod       load  steps/s of  acceptance of        predicted          measured           stray")
        for method in METHODS:
            for line, stray in _compared(method):
                print(f"{line}  {stray:+.1f}")
                strays.append(stray)
    assert sum(abs(stray) <= 1 for stray in strays) >= SHARE * len(strays)


def _compared(method: str) -> list[tuple[str, float]]:
    """A line for each load and direction, and how far off the prediction is: ±1 are the ends of the 95 % interval."""
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
            guess = predict_speedup(found[source], "speculative", "baseline", length)
            truth = speedup(pairs_of(found[other], "speculative", "baseline"))
            assert guess
            assert truth
            shown = [f"{item.ratio:.2f} ({item.low:.2f}-{item.high:.2f})" for item in (guess, truth)]
            line = f"{method:12} {load:4}  {source:10}  {other:10} = {length:.2f}  {shown[0]:17}  {shown[1]:17}"
            reach = math.hypot(math.log(guess.high / guess.ratio), math.log(truth.high / truth.ratio))
            lines.append((line, math.log(guess.ratio / truth.ratio) / reach))
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
            settle_seconds=endpoint.platform.pause_between_arms(endpoint.name),
        )
        return (await run(design, sender(design.settle_seconds))).results


def _tokens_per_step(results: Sequence[RequestResult]) -> float:
    answers = [item for item in successful(results) if item.arm == "speculative"]
    return sum(item.output_tokens - 1 for item in answers) / sum(map(target_steps, answers))
