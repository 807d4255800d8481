"""`toolkit tune` on SageMaker's stand-in: settings come and go beside what the user has in service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_hub_pair
from standin import StandIn
from tuned_arms import report_at

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.api.steps import Steps
from toolkit.apply.progress import Silent
from toolkit.measure.report import BenchReport

PULLED = HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, ")
COMPONENT = PULLED.replace("platform: {", "platform: {inference_component: {}, ")


@pytest.fixture(params=[PULLED, COMPONENT], ids=["endpoint", "component"])
def recipe(request: pytest.FixtureRequest, standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    return write_hub_pair(tmp_path, request.param)


def bench(endpoint: Endpoint, *, baseline: Endpoint, **_: Any) -> BenchReport:
    """Both serve while they are measured."""
    assert endpoint.status().status == baseline.status().status == "InService"
    found = re.search(r"-k(\d+)$", endpoint.name if endpoint.component is None else endpoint.component)
    assert found
    return report_at(int(found[1]), {"chat": 0.8})


def names() -> set[str]:
    return {item.name for item in toolkit.endpoints(platform="sagemaker")}


def test_only_logs_stay(recipe: Path, standin: StandIn) -> None:
    report = toolkit.tune(recipe, k=[4], _steps=Steps(measure=bench), progress=Silent())

    assert report.winner == "K=4"
    assert all(item.startswith("logs group /aws/sagemaker/") for item in standin.leftovers()), standin.leftovers()


def test_what_the_user_has_in_service_is_not_touched(recipe: Path) -> None:
    toolkit.deploy(recipe, baseline=True, progress=Silent())
    before = names()

    def fails(endpoint: Endpoint, **asked: Any) -> BenchReport:
        bench(endpoint, **asked)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        toolkit.tune(recipe, k=[4], _steps=Steps(measure=fails), progress=Silent())

    assert names() == before
    # An empty bucket goes with whatever is removed; the next deployment makes it again.
    assert {action.kind for action in toolkit.plan(recipe, baseline=True).changes} <= {"Bucket"}
