"""Where speculation pays on the tiny pair: every method at several K against the baseline, in turn, concurrency 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.cli.report_text import report_text
from toolkit.home import home
from toolkit.measure.report import BenchReport
from toolkit.platforms.local import daemon

ARMS = [
    *[("p-eagle", k) for k in (5, 7, 10, 15)],
    *[("eagle3", k) for k in (3, 5, 7)],
    ("draft-model", 5),
]


@pytest.fixture
def baseline() -> Iterator[Endpoint]:
    """The target without speculation, in service while the arms come and go."""
    yield toolkit.deploy(toolkit.load("tiny/p-eagle").baseline(), progress=Silent())
    daemon.stop(home() / "local")


@pytest.mark.timeout(3600)
def test_every_method_against_the_baseline(baseline: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        for method, k in ARMS:
            print(f"\n{method} K={k}\n{report_text(_measure(baseline, method, k), room=120)}")


def _measure(baseline: Endpoint, method: str, k: int) -> BenchReport:
    """The arm and the baseline on both prompt sets."""
    recipe = toolkit.load(f"tiny/{method}")
    assert recipe.speculation
    recipe = replace(recipe, name=f"{recipe.name}-k{k}", speculation=recipe.speculation.edit(num_speculative_tokens=k))
    deployed = toolkit.deploy(recipe, progress=Silent())
    try:
        return replace(deployed, baseline=baseline.name).prove()
    finally:
        toolkit.destroy(deployed.name, progress=Silent())
