"""Where speculation pays on the tiny pair: every method at several K against the baseline, in turn, concurrency 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.home import home
from toolkit.measure.prove import ArmResult
from toolkit.platforms.local import daemon

ARMS = [
    *[("p-eagle", k) for k in (5, 7, 10)],
    *[("eagle3", k) for k in (3, 5, 7)],
    ("draft-model", 5),
]
ROUNDS = 1


@pytest.fixture
def baseline() -> Iterator[Endpoint]:
    """The target without speculation, in service while the arms come and go."""
    yield toolkit.deploy(toolkit.load("tiny/p-eagle").baseline(), progress=Silent())
    daemon.stop(home() / "local")


@pytest.mark.timeout(1800)
def test_every_method_against_the_baseline(baseline: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{'arm':18} {'workload':11} {'tokens/s':>8} {'baseline':>8} {'ratio':>6} {'length':>6}  identical")
        for method, k in ARMS:
            for arm, base in _measure(baseline, method, k):
                length, ratio = arm.acceptance_length or 0.0, arm.speedup or 0.0
                print(
                    f"{f'{method} K={k}':18} {arm.workload:11} {arm.tokens_per_second:8.0f} "
                    f"{base.tokens_per_second:8.0f} {ratio:6.2f} {length:6.2f}  {arm.identical}/{arm.requests}"
                )


def _measure(baseline: Endpoint, method: str, k: int) -> list[tuple[ArmResult, ArmResult]]:
    """The arm and the baseline on both prompt sets, each prompt asked `ROUNDS` times."""
    recipe = toolkit.load(f"tiny/{method}")
    assert recipe.speculation
    recipe = replace(
        recipe, name=f"{recipe.name}-k{k}", speculation=replace(recipe.speculation, num_speculative_tokens=k)
    )
    deployed = toolkit.deploy(recipe, progress=Silent())
    try:
        workloads = {name: list(prompts) * ROUNDS for name, prompts in deployed.workloads.items()}
        proof = replace(deployed, baseline=baseline.name, workloads=workloads).prove()
    finally:
        toolkit.destroy(deployed.name, progress=Silent())
    speculative = [arm for arm in proof.arms if arm.arm == "speculative"]
    return list(zip(speculative, [arm for arm in proof.arms if arm.arm == "baseline"], strict=True))
