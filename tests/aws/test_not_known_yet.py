"""What AWS does not know: yet, because it was just created, or at all, because the service lacks the operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_hub_pair
from standin import StandIn
from standin_user import User, one

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import PlatformError
from toolkit.planning.plan import Action
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.platform import SageMakerPlatform

FROM_HUB = HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, ")
PAGE = "<!doctype html>\n<html lang=en>\n<title>500 Internal Server Error</title>"
COMPONENTS = ("ListInferenceComponents", "DescribeInferenceComponent")


def missing(kind: str, name: str) -> str:
    return f'Could not find {kind} "arn:aws:sagemaker:us-west-2:123456789012:{kind.replace(" ", "-")}/{name}".'


def execute(standin: StandIn, kind: str, name: str, verb: Any, request: dict[str, Any]) -> list[float]:
    """Execute one action; the pauses that it took."""
    pauses: list[float] = []
    platform = SageMakerPlatform(Clients(standin.session()), sleep=pauses.append, poll_seconds=0.0)
    platform.execute(Action(kind, name, verb, "", request), Silent())
    return pauses


def test_a_model_that_was_just_created_may_not_be_known_yet(standin: StandIn, user: User) -> None:
    user.create_model("m")
    standin.faults.fail("CreateEndpointConfig", "ValidationException", missing("model", "m"), times=2)
    request = {"EndpointConfigName": "c", "ProductionVariants": [one("m")]}
    assert execute(standin, "EndpointConfig", "c", "create", request) == [5.0, 5.0]
    assert user.sagemaker.describe_endpoint_config(EndpointConfigName="c")["ProductionVariants"]


def test_a_configuration_that_was_just_created_may_not_be_known_to_an_update(standin: StandIn, user: User) -> None:
    user.deploy("ep")
    user.create_config("new", one("ep"))
    standin.faults.fail("UpdateEndpoint", "ValidationException", missing("endpoint configuration", "new"))
    assert execute(standin, "Endpoint", "ep", "update", {"EndpointName": "ep", "EndpointConfigName": "new"}) == [5.0]


def test_what_is_still_not_known_after_a_minute_is_an_error(standin: StandIn, user: User) -> None:
    with pytest.raises(PlatformError, match="Could not find model"):
        execute(
            standin, "EndpointConfig", "c", "create", {"EndpointConfigName": "c", "ProductionVariants": [one("no")]}
        )
    assert [call.operation for call in standin.calls].count("CreateEndpointConfig") == 12


def test_model_data_that_is_missing_is_not_waited_for(standin: StandIn, user: User) -> None:
    standin.faults.fail("CreateModel", "ValidationException", "Could not find model data at s3://ours/none/.")
    with pytest.raises(PlatformError, match="Could not find model data"):
        execute(standin, "Model", "m", "create", {"ModelName": "m"})
    assert [call.operation for call in standin.calls].count("CreateModel") == 1


@pytest.mark.parametrize(("code", "message", "status"), [("UnknownOperationException", "", 400), ("500", PAGE, 500)])
def test_a_service_without_inference_components_has_none_to_destroy(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str, status: int
) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    recipe = write_hub_pair(tmp_path, FROM_HUB)
    toolkit.deploy(recipe, progress=Silent())
    for operation in COMPONENTS:
        standin.faults.fail(operation, code, message, status=status, times=10_000)
    toolkit.destroy(recipe, progress=Silent())
    assert [item for item in standin.leftovers() if not item.startswith("logs group")] == []


def test_what_a_service_cannot_list_is_told(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    recipe = write_hub_pair(tmp_path, FROM_HUB)
    toolkit.deploy(recipe, progress=Silent())
    standin.faults.fail("ListTrainingJobs", "UnknownOperationException", times=10_000)
    removed = toolkit.destroy(recipe, progress=Silent())
    told = "not looked for, because the service has no ListTrainingJobs"
    assert any(told in item for item in removed.not_removed)
    assert "sagemaker endpoint hub" not in standin.leftovers()
