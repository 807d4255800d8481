"""How few calls of AWS a deployment makes, and that what it does not look at is safe all the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_hub_pair
from standin import ACCOUNT, StandIn
from standin_user import User

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import ApplyError

BUCKET = f"toolkit-{ACCOUNT}-us-west-2"
TARGET = "s3://weights-us-west-2/target/"
LEASE, RELEASE = "s3:PutObject", "s3:DeleteObject"
MADE = ["sagemaker:CreateModel", "sagemaker:CreateEndpointConfig", "sagemaker:CreateEndpoint"]
READING = ("Describe", "List", "Get", "Head", "Batch")


class Before(Silent):
    """Does something when a stage begins whose name begins so."""

    def __init__(self, stage: str, then: Callable[[], object]) -> None:
        self._stage, self._then = stage, then

    def stage(self, name: str) -> AbstractContextManager[None]:
        if name.startswith(self._stage):
            self._then()
        return super().stage(name)


@pytest.fixture
def recipe(standin: StandIn, user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The five-resource plan of the benchmark against ModelBuilder: weights in S3, a role that exists, no alarms."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    s3: Any = user.session.client("s3")
    s3.put_object(Bucket="weights-us-west-2", Key="target/drafter/config.json", Body=b"{}")
    text = HUB_RECIPE.replace("platform: {", f"platform: {{role: {user.role}, ")
    text = text.replace("org/target", TARGET).replace("org/drafter", f"{TARGET}drafter/")
    target, drafter = ({"model": uri, "revision": ""} for uri in (TARGET, f"{TARGET}drafter/"))
    text += "observability: {alarms: false, dashboard: false}\n"
    return write_hub_pair(tmp_path, text, target=target, drafter=drafter)


@pytest.fixture
def sagemaker(user: User) -> Any:
    return user.sagemaker


def make_bucket(standin: StandIn) -> None:
    """That of the toolkit: anything else was deployed there before."""
    s3: Any = standin.session().client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})


def calls_of(standin: StandIn, recipe: Path, *, wait: bool = False) -> list[str]:
    standin.calls.clear()
    toolkit.deploy(recipe, wait=wait, progress=Silent())
    return [str(call) for call in standin.calls]


def test_a_first_deployment_makes_eight_calls(standin: StandIn, recipe: Path) -> None:
    make_bucket(standin)
    looks = ["sagemaker:DescribeEndpoint", "sts:GetCallerIdentity", "ecr:BatchGetImage"]
    assert calls_of(standin, recipe) == [*looks, LEASE, *MADE, RELEASE]


def test_the_very_first_in_an_account_makes_the_bucket_too(standin: StandIn, recipe: Path) -> None:
    made = ["s3:CreateBucket", "s3:PutPublicAccessBlock", "s3:PutBucketEncryption"]
    assert calls_of(standin, recipe)[3:8] == [LEASE, *made, LEASE]


def test_a_deployment_that_has_nothing_to_do_only_looks(standin: StandIn, recipe: Path) -> None:
    toolkit.deploy(recipe, progress=Silent())
    calls = calls_of(standin, recipe)
    assert [call for call in calls if not call.partition(":")[2].startswith(READING)] == [LEASE, RELEASE]
    assert len(calls) <= 26


def test_the_lease_goes_to_no_bucket_of_somebody_else(standin: StandIn, recipe: Path) -> None:
    toolkit.deploy(recipe, wait=False, progress=Silent())
    leases = [call for call in standin.calls if call.request.get("Key") == "leases/hub" and str(call) == LEASE]
    assert {call.request.get("ExpectedBucketOwner") for call in leases} == {ACCOUNT}


def test_what_an_interrupted_first_try_has_left_is_used(standin: StandIn, recipe: Path) -> None:
    with pytest.raises(ApplyError, match="create Endpoint hub"):
        toolkit.deploy(recipe, progress=Before("create Endpoint ", standin.faults.expire_token))
    standin.faults.clear()
    assert toolkit.deploy(recipe, progress=Silent()).status().status == "InService"
    assert toolkit.plan(recipe).changes == []


def test_what_a_first_try_of_another_recipe_has_left_goes(standin: StandIn, recipe: Path, sagemaker: Any) -> None:
    with pytest.raises(ApplyError, match="create Endpoint hub"):
        toolkit.deploy(recipe, progress=Before("create Endpoint ", standin.faults.expire_token))
    standin.faults.clear()
    recipe.write_text(recipe.read_text().replace("max_model_len: 1024", "max_model_len: 512"))
    toolkit.deploy(recipe, progress=Silent())
    assert len(sagemaker.list_models()["Models"]) == len(sagemaker.list_endpoint_configs()["EndpointConfigs"]) == 1


def test_a_model_of_the_same_name_that_is_another_ones_is_not_taken(recipe: Path, user: User) -> None:
    (model,) = [action.name for action in toolkit.plan(recipe).actions if action.kind == "Model"]
    user.create_model(model)
    with pytest.raises(ApplyError, match=f"Model {model} exists and was not created by the toolkit"):
        toolkit.deploy(recipe, progress=Silent())


@pytest.mark.parametrize(
    ("tags", "message"),
    [([], "was not created by the toolkit"), ([{"Key": "toolkit:endpoint", "Value": "hub"}], "which runs other")],
    ids=["another's", "ours, with another configuration"],
)
def test_an_endpoint_that_comes_between_the_look_and_the_making_is_not_taken(
    recipe: Path, user: User, tags: list[dict[str, str]], message: str
) -> None:
    user.create("other")
    meanwhile = Before(
        "create Endpoint ",
        lambda: user.sagemaker.create_endpoint(EndpointName="hub", EndpointConfigName="other", Tags=tags),
    )
    with pytest.raises(ApplyError, match=message):
        toolkit.deploy(recipe, progress=meanwhile)
    assert user.describe("hub")["EndpointConfigName"] == "other"


def test_a_baseline_is_known_and_kept_in_step_without_being_asked_for(recipe: Path) -> None:
    assert toolkit.deploy(recipe, baseline=True, progress=Silent()).baseline == "hub-baseline"
    assert toolkit.deploy(recipe, progress=Silent()).baseline == "hub-baseline"
