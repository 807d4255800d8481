"""Hundreds of endpoints in an account, and many deployed at once while AWS throttles.

With $TOOLKIT_EVERY_CRASH they are fifty, otherwise twelve.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from crowd import make_endpoints, side_by_side, write_recipes
from standin import StandIn
from standin_user import User

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.planning.plan import Plan

CROWD = [f"crowd-{number}" for number in range(200) if number != 1]
BUCKET = "toolkit-123456789012-us-west-2"
AT_ONCE = [f"hub-{number}" for number in range(50 if os.environ.get("TOOLKIT_EVERY_CRASH") else 12)]
# Nine times each: a call is tried ten times, and so outlives them even if it meets them all.
THROTTLED = [
    "BatchGetImage",
    "CreateBucket",
    "CreateEndpoint",
    "CreateModel",
    "CreateRole",
    "DeleteEndpoint",
    "DeleteModel",
    "DeleteRole",
    "DescribeEndpoint",
    "ListModels",
    "ListTags",
    "PutMetricAlarm",
    "PutMetricFilter",
    "PutObject",
]


@pytest.fixture(autouse=True)
def _this_process_talks_to_the_standin(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)


def test_among_many_each_is_listed_and_a_plan_is_about_its_own(user: User, standin: StandIn, tmp_path: Path) -> None:
    """`crowd-1` is part of the names of 110 others, and AWS finds by parts of names."""
    make_endpoints(user, CROWD)
    standin.calls.clear()
    listed = toolkit.endpoints(platform="sagemaker", details=True)
    assert sorted(item.name for item in listed) == sorted(CROWD)
    assert {(item.status, item.instances) for item in listed} == {("InService", (("ml.g6.xlarge", 1),))}

    (recipe,) = write_recipes(tmp_path, ["crowd-1"])
    assert {action.verb for action in toolkit.plan(recipe).actions} == {"create"}
    toolkit.deploy(recipe, progress=Silent())
    assert toolkit.plan(recipe).changes == []


def test_a_plan_asks_nothing_about_the_others(user: User, standin: StandIn, tmp_path: Path) -> None:
    (recipe,) = write_recipes(tmp_path, ["crowd-1"])
    make_endpoints(user, ["crowd-10", "crowd-1-1"])
    standin.calls.clear()
    toolkit.plan(recipe)
    asked = [call.request["ResourceArn"] for call in standin.calls if call.operation == "ListTags"]
    assert asked == []


@pytest.mark.timeout(900)
def test_many_are_deployed_at_once_and_destroyed_at_once(user: User, standin: StandIn, tmp_path: Path) -> None:
    before = standin.leftovers()
    recipes = write_recipes(tmp_path, AT_ONCE)
    for operation in THROTTLED:
        standin.faults.throttle(operation, times=9)

    deployed = side_by_side(_deploy, recipes)
    assert {endpoint.status().status for endpoint in deployed} == {"InService"}
    assert sorted(endpoint.name for endpoint in deployed) == sorted(AT_ONCE)
    made = [item.split() for item in standin.leftovers() if item.startswith("sagemaker ") and item not in before]
    assert Counter(kind for _, kind, _ in made) == dict.fromkeys(("model", "endpoint-config", "endpoint"), len(AT_ONCE))

    side_by_side(_destroy, recipes)
    logs = [f"logs group /aws/sagemaker/Endpoints/{name}" for name in AT_ONCE]
    assert standin.leftovers() == sorted([*before, *logs])


def test_a_bucket_in_which_another_holds_a_lease_stays(user: User, standin: StandIn, tmp_path: Path) -> None:
    (recipe,) = write_recipes(tmp_path, ["first"])
    toolkit.deploy(recipe, progress=Silent())
    user.session.client("s3").put_object(Bucket=BUCKET, Key="leases/another", Body=b"{}")
    toolkit.destroy(recipe, progress=Silent())
    assert f"s3 bucket {BUCKET}" in standin.leftovers()


def _deploy(recipe: Path) -> Endpoint:
    return toolkit.deploy(recipe, progress=Silent())


def _destroy(recipe: Path) -> Plan:
    return toolkit.destroy(recipe, progress=Silent())
