"""What AWS does not know: yet, because it was just created, or at all, because the service lacks the operation."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_hub_pair
from standin import StandIn
from standin_iam import LATE
from standin_user import IMAGE, TRUST, User, one

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import PlatformError
from toolkit.planning.plan import Action
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.execute import FreshRoles
from toolkit.platforms.sagemaker.platform import SageMakerPlatform

FROM_HUB = HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, ")
PAGE = "<!doctype html>\n<html lang=en>\n<title>500 Internal Server Error</title>"
COMPONENTS = ("ListInferenceComponents", "DescribeInferenceComponent")


def missing(kind: str, name: str) -> str:
    return f'Could not find {kind} "arn:aws:sagemaker:us-west-2:123456789012:{kind.replace(" ", "-")}/{name}".'


def execute(standin: StandIn, kind: str, name: str, verb: Any, request: dict[str, Any]) -> list[float]:
    """Execute one action; the pauses that it took."""
    return execute_all(standin, Action(kind, name, verb, "", request))


def execute_all(standin: StandIn, *actions: Action, seconds_each: float = 0.0) -> list[float]:
    """Execute actions, each of which takes that long; the pauses that they took."""
    pauses: list[float] = []
    moments = itertools.count()
    fresh = FreshRoles(clock=lambda: next(moments) * seconds_each)
    platform = SageMakerPlatform(Clients(standin.session()), sleep=pauses.append, fresh_roles=fresh)
    for action in actions:
        platform.execute(action, Silent())
    return pauses


RIGHTS = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
NOTHING = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}],
}


def test_a_job_that_somebody_deleted_needs_not_be_stopped(standin: StandIn) -> None:
    """SageMaker's words for it: boto/boto3#2808."""
    execute(standin, "TrainingJob", "gone", "delete", {"TrainingJobName": "gone"})
    assert [call.operation for call in standin.calls] == ["StopTrainingJob"]


def role_actions(name: str, rights: dict[str, Any] = RIGHTS) -> tuple[Action, Action]:
    role = {"RoleName": name, "AssumeRolePolicyDocument": json.dumps(TRUST)}
    policy = {"RoleName": name, "PolicyName": "p", "PolicyDocument": json.dumps(rights)}
    return (
        Action("Role", name, "create", "", role),
        Action("RolePolicy", f"{name}/p", "create", "", policy),
    )


def model_action(user: User, role: str) -> Action:
    container = {"Image": IMAGE, "ModelDataSource": user.weights}
    request = {"ModelName": "m", "ExecutionRoleArn": role, "PrimaryContainer": container}
    return Action("Model", "m", "create", "", request)


def test_a_role_that_was_just_made_may_not_read_the_weights_yet(standin: StandIn, user: User) -> None:
    """The words of philschmid/llm-sagemaker-sample#2."""
    model = model_action(user, user.role.replace("execution", "new"))
    pauses = execute_all(standin, *role_actions("new"), model)
    assert pauses == [5.0] * len(pauses)
    assert LATE / 5 - 2 <= len(pauses) <= LATE / 5
    assert user.sagemaker.describe_model(ModelName="m")


def test_a_policy_that_was_just_changed_may_not_be_known_yet(standin: StandIn, user: User) -> None:
    iam: Any = user.session.client("iam")
    iam.put_role_policy(RoleName="execution", PolicyName="all", PolicyDocument=json.dumps(NOTHING))
    standin.account.iam.settle()
    standin.account.iam.late = 10.0
    _, policy = role_actions("execution")
    assert execute_all(standin, replace(policy, verb="update"), model_action(user, user.role)) == [5.0]


@pytest.mark.parametrize("age", [None, 301.0], ids=["of somebody else", "of an hour ago"])
def test_a_role_that_has_long_been_there_and_may_not_read_is_an_error(
    standin: StandIn, user: User, age: float | None
) -> None:
    made = role_actions("old", NOTHING)
    for action in made if age is None else ():
        execute_all(standin, action)
    standin.account.iam.late = 0.0
    actions = made if age else ()
    with pytest.raises(PlatformError, match="Could not access model data"):
        execute_all(standin, *actions, model_action(user, user.role.replace("execution", "old")), seconds_each=age or 0)
    assert [call.operation for call in standin.calls].count("CreateModel") == 1


def test_rights_that_never_come_are_an_error_after_a_minute(standin: StandIn, user: User) -> None:
    with pytest.raises(PlatformError, match="Could not access model data"):
        execute_all(standin, *role_actions("new", NOTHING), model_action(user, user.role.replace("execution", "new")))
    assert [call.operation for call in standin.calls].count("CreateModel") == 12


def test_alarms_that_a_changed_policy_lets_the_role_see(standin: StandIn, user: User) -> None:
    """IAM's words; that SageMaker answers an update with them is unverified."""
    user.deploy("ep")
    user.create_config("new", one("ep"))
    _, policy = role_actions("execution")
    words = "is not authorized to perform: cloudwatch:DescribeAlarms on resource: a"
    denied = f"User: arn:aws:sts::123456789012:assumed-role/execution/SageMaker {words}"
    standin.faults.fail("UpdateEndpoint", "ValidationException", denied, times=2)
    update = Action("Endpoint", "ep", "update", "", {"EndpointName": "ep", "EndpointConfigName": "new"})
    assert execute_all(standin, replace(policy, verb="update"), update) == [5.0, 5.0]


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
