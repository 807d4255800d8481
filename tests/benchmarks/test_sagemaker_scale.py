"""Two hundred endpoints on SageMaker, and fifty deployed at once. Prints, asserts nothing about time.

AWS is the stand-in on loopback, which takes one call at a time. As AWS is farther away, the list is also measured with
a pause before each answer. `toolkit status` and `toolkit plan` are whole processes; the fifty are threads of this one,
which runs the stand-in too.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from crowd import make_endpoints, side_by_side, write_recipes
from standin import StandIn
from standin_user import User

import toolkit
from toolkit.apply.progress import Silent

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

RUNS = 5
ENDPOINTS, DEPLOYS = 200, 50
TOOLKIT = str(Path(sys.executable).with_name("toolkit"))


class FarAway(StandIn):
    """Every answer begins `pause` seconds later; calls side by side wait side by side."""

    pause = 0.0

    def _application(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        time.sleep(self.pause)
        return super()._application(environ, start_response)


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[FarAway]:
    with FarAway() as standin:
        for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
            monkeypatch.setenv(name, value)
        yield standin


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_listing_and_planning_among_many(
    standin: FarAway, pause: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_endpoints(User(standin), [f"crowd-{number}" for number in range(ENDPOINTS)])
    (recipe,) = write_recipes(tmp_path, ["crowd-1"])  # part of the names of 110 others
    standin.pause = pause
    with capsys.disabled():
        print(f"\n{ENDPOINTS} endpoints, {pause * 1000:.0f} ms before each answer, medians of {RUNS}:")
        listing = _measure(standin, "status", "--platform", "sagemaker")
        print(f"  {listing / ENDPOINTS:.2f} calls for each endpoint of the list")
        _measure(standin, "plan", str(recipe))


@pytest.mark.timeout(900)
def test_fifty_deploys_at_once(standin: FarAway, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipes = write_recipes(tmp_path, [f"hub-{number}" for number in range(DEPLOYS)])
    started = time.perf_counter()
    side_by_side(lambda recipe: toolkit.deploy(recipe, progress=Silent()), recipes)
    seconds = time.perf_counter() - started
    with capsys.disabled():
        print(f"\n{DEPLOYS} deploys at once, one run: {seconds:.1f} s, {len(standin.calls) / DEPLOYS:.0f} calls each")


def _measure(standin: FarAway, *arguments: str) -> int:
    """Print how long the command takes and how many calls it makes, which are given back."""
    seconds: list[float] = []
    for run in range(RUNS + 1):
        standin.calls.clear()
        started = time.perf_counter()
        subprocess.run([TOOLKIT, *arguments], env=os.environ, check=True, stdout=subprocess.DEVNULL)
        if run:  # the first warms the disk cache
            seconds.append(time.perf_counter() - started)
    calls = len(standin.calls)
    print(
        f"  toolkit {arguments[0]:7} {statistics.median(seconds):5.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
        f"{calls} calls"
    )
    return calls
