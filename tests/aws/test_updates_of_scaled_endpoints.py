"""Updates that AWS refuses while a variant is scaled, or with guardrails: what is done before and after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pairs import HUB_RECIPE, write_hub_pair
from standin import StandIn
from standin_user import User, one
from test_call_counts import Before

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import ApplyError, PlatformError

FROM_HUB = HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, ")
SCALED = "scaling: {min_instances: 1, max_instances: 3}\n"
VARIANT = "endpoint/hub/variant/AllTraffic"


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe whose variant is scaled, in service."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    path = write_hub_pair(tmp_path, FROM_HUB + SCALED)
    toolkit.deploy(path, progress=Silent())
    return path


def edited(recipe: Path, old: str, new: str) -> Path:
    text = recipe.read_text()
    assert old in text
    recipe.write_text(text.replace(old, new))
    return recipe


def scaled(standin: StandIn) -> list[str]:
    """What Application Auto Scaling has."""
    return [
        item.removeprefix("application-autoscaling ")
        for item in standin.leftovers()
        if item.startswith("application-autoscaling")
    ]


BOTH = [f"policy {VARIANT}/concurrency", f"target {VARIANT}"]


def test_a_target_whose_answer_was_lost_is_known_by_its_tags(recipe: Path, standin: StandIn) -> None:
    toolkit.destroy(recipe, progress=Silent())
    standin.faults.drop("RegisterScalableTarget", when="after")
    toolkit.deploy(recipe, progress=Silent())
    assert scaled(standin) == BOTH


def test_a_target_of_somebody_else_that_comes_meanwhile_is_not_taken(recipe: Path, standin: StandIn) -> None:
    client: Any = standin.session().client("application-autoscaling")
    target = {"ServiceNamespace": "sagemaker", "ResourceId": VARIANT}
    target["ScalableDimension"] = "sagemaker:variant:DesiredInstanceCount"
    toolkit.deploy(edited(recipe, SCALED, ""), progress=Silent())
    meanwhile = Before(
        "create ScalableTarget", lambda: client.register_scalable_target(**target, MinCapacity=1, MaxCapacity=9)
    )
    edited(recipe, "platform: {", f"{SCALED}platform: {{")
    with pytest.raises(ApplyError, match=r"ScalableTarget .* exists and was not created by the toolkit"):
        toolkit.deploy(recipe, progress=meanwhile)


def test_another_instance_type_is_not_scaled_while_it_comes(recipe: Path, standin: StandIn) -> None:
    edited(recipe, "ml.g6.xlarge", "ml.g6e.xlarge")
    plan = toolkit.plan(recipe)
    at = [f"{action.verb} {action.kind}" for action in plan.changes]
    assert at[-6:] == [
        "create EndpointConfig",
        "delete ScalingPolicy",
        "delete ScalableTarget",
        "update Endpoint",
        "create ScalableTarget",
        "create ScalingPolicy",
    ]
    assert "hub is not scaled while it is updated" in " ".join(plan.notes)

    toolkit.deploy(recipe, progress=Silent())
    assert scaled(standin) == BOTH
    assert toolkit.plan(recipe).changes == []


def test_a_rollback_to_another_instance_type_registers_autoscaling_again(recipe: Path, standin: StandIn) -> None:
    client: Any = standin.session().client("application-autoscaling")
    before = client.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    toolkit.deploy(edited(recipe, "ml.g6.xlarge", "ml.g6e.xlarge"), progress=Silent())

    toolkit.rollback(recipe, progress=Silent())

    after = client.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    key = "TargetTrackingScalingPolicyConfiguration"
    assert [policy[key] for policy in after] == [policy[key] for policy in before]
    assert toolkit.plan(edited(recipe, "ml.g6e.xlarge", "ml.g6.xlarge")).changes == []


@pytest.mark.parametrize(
    "experiment", ["rollout: {speculative_percent: 50, update: canary}\n", "rollout: {shadow: true}\n"]
)
def test_an_experiment_begins_and_ends_without_guardrails(recipe: Path, standin: StandIn, experiment: str) -> None:
    recipe.write_text(recipe.read_text() + experiment)
    plan = toolkit.plan(recipe)
    (update,) = [action for action in plan.changes if action.kind == "Endpoint"]
    assert update.request.keys() == {"EndpointName", "EndpointConfigName"}
    assert any("The variants of hub change from AllTraffic to" in note for note in plan.notes)
    toolkit.deploy(recipe, progress=Silent())
    assert f"target {VARIANT}" not in scaled(standin)

    toolkit.deploy(edited(recipe, experiment, ""), progress=Silent())
    assert scaled(standin) == BOTH


def test_autoscaling_that_a_rollback_registers_again_keeps_the_tags_of_its_user(recipe: Path, standin: StandIn) -> None:
    scaling: Any = standin.session().client("application-autoscaling")

    def tags() -> dict[str, str]:
        (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
        found: dict[str, str] = scaling.list_tags_for_resource(ResourceARN=target["ScalableTargetARN"])["Tags"]
        return found

    recipe.write_text(recipe.read_text() + "tags: {team: search}\n")
    toolkit.destroy(recipe, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    toolkit.deploy(edited(recipe, "ml.g6.xlarge", "ml.g6e.xlarge"), progress=Silent())
    before = tags()
    toolkit.rollback(recipe, progress=Silent())
    assert tags() == before
    assert before["team"] == "search"


def test_a_rollback_of_an_experiment_scales_what_is_left(recipe: Path, standin: StandIn) -> None:
    recipe.write_text(recipe.read_text() + "rollout: {speculative_percent: 50}\n")
    toolkit.deploy(recipe, progress=Silent())
    toolkit.rollback(recipe, progress=Silent())
    assert scaled(standin) == []  # it has not been scaled since the experiment began
    toolkit.deploy(edited(recipe, "rollout: {speculative_percent: 50}\n", ""), progress=Silent())
    assert scaled(standin) == BOTH


def test_a_new_model_on_the_same_instances_keeps_guardrails_and_autoscaling(recipe: Path) -> None:
    plan = toolkit.plan(edited(recipe, "max_model_len: 1024", "max_model_len: 512"))
    (update,) = [action for action in plan.changes if action.kind == "Endpoint"]
    assert "DeploymentConfig" in update.request
    assert not [action for action in plan.changes if action.kind.startswith("Scal")]


def test_autoscaling_of_somebody_else_is_not_removed(recipe: Path, standin: StandIn) -> None:
    client: Any = standin.session().client("application-autoscaling")
    (target,) = client.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    client.untag_resource(ResourceARN=target["ScalableTargetARN"], TagKeys=["toolkit:endpoint"])
    with pytest.raises(PlatformError, match="which the toolkit did not create, scales a variant that this update"):
        toolkit.plan(edited(recipe, "ml.g6.xlarge", "ml.g6e.xlarge"))


def test_a_deployment_that_was_killed_before_the_update_scales_again(recipe: Path, standin: StandIn) -> None:
    edited(recipe, "ml.g6.xlarge", "ml.g6e.xlarge")
    standin.faults.fail("UpdateEndpoint", "ValidationException", "not today", status=400, when="before")
    with pytest.raises(PlatformError, match="not today"):
        toolkit.deploy(recipe, progress=Silent())
    assert scaled(standin) == []
    toolkit.deploy(recipe, progress=Silent())
    assert scaled(standin) == BOTH


# ---- what the stand-in refuses ----


@pytest.fixture
def scaled_user(user: User) -> User:
    """Somebody with an endpoint `ep` whose variant `only` is scaled, and with configurations that change it."""
    user.deploy("ep")
    names: Any = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/ep/variant/only",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    user.scaling.register_scalable_target(**names, MinCapacity=1, MaxCapacity=2)
    user.create_config("larger", one("ep", InstanceType="ml.g6e.2xlarge"))
    user.create_config("renamed", one("ep", VariantName="other"))
    return user


@pytest.mark.parametrize("config", ["larger", "renamed"])
def test_aws_refuses_to_change_or_remove_a_scaled_variant(scaled_user: User, config: str) -> None:
    """Developer guide, "Update endpoints that use auto scaling"."""
    with pytest.raises(ClientError, match="must be deregistered as scalable targets"):
        scaled_user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName=config)


def test_aws_refuses_guardrails_for_other_variants(user: User) -> None:
    """Developer guide, "Exclusions" of deployment guardrails."""
    user.deploy("ep")
    user.create_config("renamed", one("ep", VariantName="other"))
    policy: Any = {"TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}}
    with pytest.raises(ClientError, match="must have the same variant names"):
        user.sagemaker.update_endpoint(
            EndpointName="ep", EndpointConfigName="renamed", DeploymentConfig={"BlueGreenUpdatePolicy": policy}
        )
    user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="renamed")
