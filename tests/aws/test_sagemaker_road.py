"""The one road on SageMaker, with the genuine boto3 client: deploy, update, roll back, scale, destroy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_kinds import TEMPLATES
from pairs import HUB_RECIPE, write_hub_pair
from standin import ACCOUNT, PING, StandIn

import toolkit
from toolkit.api.deployment import read_plan
from toolkit.apply.progress import Silent
from toolkit.errors import EndpointFailed, PlatformError, StalePlanError, UsageError
from toolkit.loading import load
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.rules import RULES

TOOLKIT = Path(sys.executable).with_name("toolkit")
PULLED = HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, ").replace(
    "ml.g6.xlarge", "ml.g6.xlarge, ml.g6.2xlarge"
)
HERE = Account(ACCOUNT, "us-west-2")
LOG_GROUP = "logs group /aws/sagemaker/Endpoints/hub"


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe whose weights the container fetches itself; this process talks to the stand-in."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    return write_hub_pair(tmp_path, PULLED)


def changed(recipe: Path, old: str, new: str) -> Path:
    text = recipe.read_text()
    assert old in text
    recipe.write_text(text.replace(old, new))
    return recipe


def config(standin: StandIn) -> str:
    described: Any = standin.session().client("sagemaker").describe_endpoint(EndpointName="hub")
    return str(described["EndpointConfigName"])


def test_deploying_twice_changes_nothing_and_destroying_leaves_only_the_log(recipe: Path, standin: StandIn) -> None:
    endpoint = toolkit.deploy(recipe, progress=Silent())
    assert endpoint.status().status == "InService"
    assert toolkit.plan(recipe).changes == []

    removed = toolkit.destroy(recipe, progress=Silent())
    assert standin.leftovers() == [LOG_GROUP]
    assert "log group /aws/sagemaker/Endpoints/hub: kept for 30 days" in removed.not_removed[0]


def test_the_plan_needs_no_account(tmp_path: Path) -> None:
    made = toolkit.plan(write_hub_pair(tmp_path, PULLED))
    assert made.account == "000000000000"
    assert {action.verb for action in made.actions} == {"create"}
    with pytest.raises(PlatformError, match="without an AWS account"):
        made.apply(progress=Silent())


def test_a_saved_plan_is_applied_where_its_recipe_still_leads_to_it(
    recipe: Path, standin: StandIn, tmp_path: Path
) -> None:
    saved = tmp_path / "plan.json"
    toolkit.plan(recipe).save(saved)
    assert read_plan(saved).apply(progress=Silent()).status().status == "InService"
    with pytest.raises(StalePlanError, match="what runs now is not what"):
        read_plan(saved)

    toolkit.plan(recipe, baseline=True).save(saved)
    changed(recipe, "max_model_len: 1024", "max_model_len: 512")
    with pytest.raises(UsageError, match='MAX_MODEL_LEN: saved "1024" / derived "512"'):
        read_plan(saved)


def test_no_role_is_made_unless_the_recipe_asks_for_it(recipe: Path) -> None:
    with pytest.raises(UsageError, match="role: create"):
        toolkit.deploy(changed(recipe, "role: create, ", ""), progress=Silent())


def test_where_one_type_has_no_capacity_the_next_serves(recipe: Path, standin: StandIn) -> None:
    standin.without_capacity("ml.g6.xlarge")
    assert toolkit.deploy(recipe, progress=Silent()).status().status == "InService"


PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/ours"


@pytest.mark.parametrize("offering", ["endpoints", "endpoints-later", "jobs"])
def test_it_runs_in_reserved_capacity_that_is_active_and_for_endpoints(
    recipe: Path, standin: StandIn, offering: str
) -> None:
    client: Any = standin.session().client("sagemaker")
    client.create_training_plan(TrainingPlanName="ours", TrainingPlanOfferingId=offering)
    changed(recipe, "ml.g6.xlarge, ml.g6.2xlarge", "ml.p5.48xlarge")
    changed(recipe, "role: create,", f"role: create, capacity_reservation: '{PLAN}',")
    if offering != "endpoints":
        refusals = "must be in the Active status|can only be used to schedule and run training jobs"
        with pytest.raises(PlatformError, match=refusals):
            toolkit.deploy(recipe, progress=Silent())
        return
    toolkit.deploy(recipe, progress=Silent())
    (variant,) = client.describe_endpoint_config(EndpointConfigName=config(standin))["ProductionVariants"]
    assert variant["CapacityReservationConfig"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "MlReservationArn": PLAN,
    }
    assert variant["InstanceType"] == "ml.p5.48xlarge"


def test_an_update_keeps_what_ran_before_for_a_rollback(recipe: Path, standin: StandIn) -> None:
    toolkit.deploy(recipe, progress=Silent())
    first = config(standin)
    toolkit.deploy(changed(recipe, "max_model_len: 1024", "max_model_len: 512"), progress=Silent())
    assert config(standin) != first
    toolkit.rollback(recipe, progress=Silent())
    assert config(standin) == first
    toolkit.destroy(recipe, progress=Silent())
    assert standin.leftovers() == [LOG_GROUP]


def test_an_update_that_aws_rolls_back_is_a_failure(recipe: Path, standin: StandIn) -> None:
    toolkit.deploy(recipe, progress=Silent())
    first = config(standin)
    standin.script("hub", ["Updating", "RollingBack", "InService"], reason=PING)
    with pytest.raises(EndpointFailed, match="rolled back"):
        toolkit.deploy(changed(recipe, "num_speculative_tokens: 7", "num_speculative_tokens: 5"), progress=Silent())
    assert config(standin) == first
    with pytest.raises(UsageError, match="rolled back already"):
        toolkit.rollback(recipe, progress=Silent())


def test_after_an_update_that_aws_refuses_a_rollback_still_brings_back_what_ran_before(
    recipe: Path, standin: StandIn
) -> None:
    toolkit.deploy(recipe, progress=Silent())
    first = config(standin)
    toolkit.deploy(changed(recipe, "max_model_len: 1024", "max_model_len: 512"), progress=Silent())
    standin.faults.fail("UpdateEndpoint", "ValidationException", "not today", status=400, when="before")
    with pytest.raises(PlatformError, match="not today"):
        toolkit.deploy(changed(recipe, "max_model_len: 512", "max_model_len: 256"), progress=Silent())
    toolkit.rollback(recipe, progress=Silent())
    assert config(standin) == first


def test_throttling_and_a_server_error_are_outlived(recipe: Path, standin: StandIn) -> None:
    standin.faults.throttle("CreateModel", times=3)
    standin.faults.fail("CreateEndpoint", "InternalFailure", "try again", status=500, when="before")
    assert toolkit.deploy(recipe, progress=Silent()).status().status == "InService"


def test_another_ones_endpoint_is_never_touched(recipe: Path, standin: StandIn) -> None:
    toolkit.deploy(recipe, progress=Silent())
    sagemaker = standin.session().client("sagemaker")
    arn = sagemaker.describe_endpoint(EndpointName="hub")["EndpointArn"]
    sagemaker.delete_tags(ResourceArn=arn, TagKeys=["toolkit:endpoint"])
    with pytest.raises(PlatformError, match="was not created by the toolkit"):
        toolkit.deploy(recipe, progress=Silent())


def test_status_shows_price_and_age(recipe: Path) -> None:
    toolkit.deploy(recipe, progress=Silent())
    (shown,) = toolkit.endpoints(platform="sagemaker")
    assert (shown.name, shown.status, shown.region) == ("hub", "InService", "us-west-2")
    assert shown.instances == (("ml.g6.xlarge", 1),)


@pytest.mark.parametrize(
    "edit",
    [
        "rollout: {shadow: true}",
        "rollout: {speculative_percent: 10, update: canary}",
        "scaling: {min_instances: 1, max_instances: 3}",
        "observability: {data_capture_percent: 5}",
    ],
)
def test_each_way_of_serving_is_taken_by_aws_and_goes_without_a_trace(
    recipe: Path, standin: StandIn, edit: str
) -> None:
    recipe.write_text(recipe.read_text() + edit + "\n")
    toolkit.deploy(recipe, progress=Silent())
    assert toolkit.plan(recipe).changes == []
    toolkit.destroy(recipe, progress=Silent())
    assert standin.leftovers() == [LOG_GROUP]


def test_an_inference_component_comes_and_goes(recipe: Path, standin: StandIn) -> None:
    one_type = changed(recipe, ", ml.g6.2xlarge", "")
    changed(one_type, "role: create", "inference_component: {endpoint: shared}, role: create")
    endpoint = toolkit.deploy(one_type, progress=Silent())
    assert (endpoint.address, endpoint.status().status) == ("shared/hub", "InService")
    assert toolkit.plan(one_type).changes == []
    toolkit.destroy(one_type, progress=Silent())
    assert [item for item in standin.leftovers() if not item.startswith("logs group")] == []


def test_what_was_staged_for_a_template_goes_with_its_endpoint(recipe: Path, standin: StandIn) -> None:
    toolkit.deploy(recipe, progress=Silent())
    s3: Any = standin.session().client("s3")
    (bucket,) = [item["Name"] for item in s3.list_buckets()["Buckets"]]
    made = TEMPLATES.template(
        RULES.desired([TEMPLATES.arrange(load(changed(recipe, "weights: hub, ", "")), HERE)], HERE)
    )
    (model,) = [item for item in made["Resources"].values() if item["Type"] == "AWS::SageMaker::Model"]
    prefix = model["Properties"]["PrimaryContainer"]["ModelDataSource"]["S3DataSource"]["S3Uri"].split("/", 3)[3]
    (mark,) = [step["command"] for step in made["Metadata"]["toolkit:stageFirst"] if "mark of use" in step["what"]]
    for key in (f"{prefix}target/config.json", f"{prefix}drafter/config.json", mark.split("--key ")[1]):
        s3.put_object(Bucket=bucket, Key=key, Body=b"{}")
    toolkit.destroy(recipe, progress=Silent())
    assert standin.leftovers() == [LOG_GROUP]


def test_an_endpoint_in_another_region_keeps_its_role(recipe: Path, standin: StandIn) -> None:
    changed(recipe, "role: create", "role: create, region: eu-west-1")
    toolkit.deploy(recipe, progress=Silent())
    changed(recipe, "eu-west-1", "us-west-2")
    toolkit.deploy(recipe, progress=Silent())
    toolkit.destroy(recipe, progress=Silent())
    iam: Any = standin.session().client("iam")
    assert [role["RoleName"] for role in iam.list_roles()["Roles"] if "toolkit" in role["RoleName"]] == [
        "toolkit-hub-eu-west-1"
    ]


def test_a_component_on_several_types_is_updated_in_steps(recipe: Path, standin: StandIn) -> None:
    changed(recipe, "role: create", "inference_component: {}, role: create")
    changed(recipe, "ml.g6.2xlarge", "{type: ml.g6.2xlarge, num_speculative_tokens: 3}")
    recipe.write_text(
        recipe.read_text() + "scaling: {min_instances: 2, max_instances: 2}\nrollout: {update: rolling}\n"
    )
    toolkit.deploy(recipe, progress=Silent())
    assert toolkit.plan(recipe).changes == []
    changed(recipe, "num_speculative_tokens: 3", "num_speculative_tokens: 2")
    toolkit.deploy(recipe, progress=Silent())
    sagemaker: Any = standin.session().client("sagemaker")
    found = sagemaker.describe_inference_component(InferenceComponentName="hub")
    assert found["LastDeploymentConfig"]["RollingUpdatePolicy"]["MaximumBatchSize"]["Value"] == 10
    assert [item["InstanceType"] for item in found["Specifications"]] == ["ml.g6.xlarge", "ml.g6.2xlarge"]
    assert toolkit.plan(recipe).changes == []


@pytest.mark.parametrize("name", ["hub", "shared"])
def test_a_component_is_found_by_its_own_name_and_by_that_of_its_endpoint(recipe: Path, name: str) -> None:
    one_type = changed(recipe, ", ml.g6.2xlarge", "")
    toolkit.deploy(
        changed(one_type, "role: create", "inference_component: {endpoint: shared}, role: create"), progress=Silent()
    )
    assert toolkit.connect(name, platform="sagemaker").address == "shared/hub"


def test_two_recipes_share_an_endpoint_and_the_last_takes_it_along(
    recipe: Path, standin: StandIn, tmp_path: Path
) -> None:
    one_type = changed(recipe, ", ml.g6.2xlarge", "")
    changed(one_type, "role: create", "inference_component: {endpoint: shared}, role: create")
    other = tmp_path / "other.yaml"
    other.write_text(one_type.read_text().replace("name: hub", "name: other"))
    other.with_suffix(".lock.json").write_text(one_type.with_suffix(".lock.json").read_text())
    for one in (one_type, other):
        toolkit.deploy(one, progress=Silent())
    assert toolkit.connect("other", platform="sagemaker").address == "shared/other"

    toolkit.destroy(one_type, progress=Silent())
    assert toolkit.connect(other).status().status == "InService"
    toolkit.destroy(other, progress=Silent())
    assert [item for item in standin.leftovers() if not item.startswith("logs group")] == []


def test_the_command_line_takes_the_same_road(recipe: Path, standin: StandIn, tmp_path: Path) -> None:
    environment = {**os.environ, "TOOLKIT_HOME": str(tmp_path / "home")}

    def run(*arguments: str) -> dict[str, Any]:
        done = subprocess.run([TOOLKIT, *arguments, "--json"], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    assert run("deploy", str(recipe), "--no-prove", "--yes")["status"] == "InService"
    assert [item["name"] for item in run("status", "--platform", "sagemaker")["endpoints"]] == ["hub"]
    assert run("destroy", "hub", "--platform", "sagemaker", "--yes")["not_removed"]
    assert standin.leftovers() == [LOG_GROUP]


# ---- what shares an endpoint ----


@pytest.fixture
def component(recipe: Path) -> Path:
    """The recipe as an inference component on the endpoint `shared`."""
    return changed(
        changed(recipe, ", ml.g6.2xlarge", ""), "role: create", "inference_component: {endpoint: shared}, role: create"
    )


def renamed(recipe: Path, name: str) -> Path:
    """The same recipe under another name."""
    other = recipe.with_name(f"{name}.yaml")
    other.write_text(recipe.read_text().replace("name: hub", f"name: {name}"))
    other.with_suffix(".lock.json").write_text(recipe.with_suffix(".lock.json").read_text())
    return other


def test_a_component_does_not_take_over_an_endpoint_that_serves_a_model(component: Path) -> None:
    plain = renamed(component, "shared")
    toolkit.deploy(changed(plain, "inference_component: {endpoint: shared}, ", ""), progress=Silent())
    with pytest.raises(PlatformError, match="shared serves a model of its own"):
        toolkit.plan(component)


def test_components_of_one_endpoint_have_each_their_own_rights(component: Path) -> None:
    other = renamed(component, "other")
    for one in (component, other):
        toolkit.deploy(one, progress=Silent())
    assert (toolkit.plan(component).changes, toolkit.plan(other).changes) == ([], [])


def test_a_component_moves_to_another_endpoint(component: Path, standin: StandIn) -> None:
    toolkit.deploy(component, progress=Silent())
    moved = toolkit.deploy(changed(component, "endpoint: shared", "endpoint: another"), progress=Silent())
    assert (moved.address, toolkit.plan(component).changes) == ("another/hub", [])
    assert "sagemaker endpoint shared" not in standin.leftovers()


def test_an_endpoint_goes_with_the_last_of_its_components_only(component: Path) -> None:
    toolkit.deploy(component, progress=Silent())
    with pytest.raises(UsageError, match="shared is the endpoint of the inference components hub"):
        toolkit.destroy("shared", platform="sagemaker", progress=Silent())


def test_a_component_has_no_rollback(component: Path) -> None:
    toolkit.deploy(component, progress=Silent())
    with pytest.raises(UsageError, match="hub is an inference component"):
        toolkit.rollback(component, progress=Silent())


def test_captured_requests_stay_and_are_told(recipe: Path, standin: StandIn) -> None:
    toolkit.deploy(recipe, progress=Silent())
    s3 = standin.session().client("s3")
    s3.put_object(Bucket="toolkit-123456789012-us-west-2", Key="capture/hub/1.jsonl", Body=b"{}")
    removed = toolkit.destroy(recipe, progress=Silent())
    assert any("bucket toolkit-123456789012-us-west-2, in which there is more" in item for item in removed.not_removed)
    assert "Bucket" not in {action.kind for action in removed.actions}
