"""What AWS refuses of inference components and autoscaling, the stand-in refuses too. Sources as in the other rules."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from standin import StandIn
from standin_user import IMAGE, User, one


def refused(words: str) -> Any:
    return pytest.raises(ClientError, match=words)


# Inference components


def test_a_component_needs_an_endpoint_in_service(user: User) -> None:
    """Developer guide, "Deploy models with inference components"; wording of the second unverified."""
    with refused("Could not find endpoint"):
        user.create_component("llm", "nobody", Container={"Image": IMAGE})
    user.create_config("c", one(None), ExecutionRoleArn=user.role)
    user.sagemaker.create_endpoint(EndpointName="young", EndpointConfigName="c")
    with refused("is not in service: it is Creating"):
        user.create_component("llm", "young", Container={"Image": IMAGE})


def test_a_component_needs_an_endpoint_without_models(user: User) -> None:
    """Developer guide, "Deploy models with inference components"; wording unverified."""
    user.deploy("ep")
    with refused("cannot have inference components: its variants have a ModelName"):
        user.create_component("llm", "ep", Container={"Image": IMAGE})


def test_a_component_needs_a_variant_of_its_endpoint(user: User) -> None:
    """API reference of CreateInferenceComponent, VariantName; wording unverified."""
    user.deploy_for_components("shared")
    with refused('Could not find variant "other" of endpoint "shared"'):
        user.sagemaker.create_inference_component(
            InferenceComponentName="llm", EndpointName="shared", VariantName="other", Specification={}
        )


@pytest.mark.parametrize(
    ("specification", "words"),
    [
        ({"ModelName": "m", "Container": {"Image": IMAGE}}, "either ModelName or Container"),
        ({"Container": {"Image": IMAGE}, "ComputeResourceRequirements": None}, "needs ComputeResourceRequirements"),
        ({"Container": {"Image": IMAGE + "-x"}}, "Requested image .* not found"),
        ({"Container": {"Image": IMAGE, "ArtifactUrl": "s3://nowhere/a/"}}, "Could not find model data"),
        ({"BaseInferenceComponentName": "nobody", "ComputeResourceRequirements": None}, "Could not find inference"),
    ],
)
def test_specifications_that_are_refused(user: User, specification: dict[str, Any], words: str) -> None:
    """API reference of InferenceComponentSpecification; wording unverified."""
    user.deploy_for_components("shared")
    user.create_model("m")
    specification = {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024}, **specification}
    specification = {key: value for key, value in specification.items() if value is not None}
    with refused(words):
        user.sagemaker.create_inference_component(
            InferenceComponentName="llm", EndpointName="shared", VariantName="only", Specification=specification
        )


NEEDS: Any = {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024}, "Container": {"Image": IMAGE}}
SMALL, LARGE = ({"InstanceType": f"ml.g6.{size}", **NEEDS} for size in ("xlarge", "2xlarge"))


@pytest.mark.parametrize(
    ("specified", "words"),
    [
        ({"Specification": SMALL}, "InstanceType is not accepted"),
        ({"Specifications": [SMALL]}, "at least two entries"),
        ({"Specifications": [SMALL, SMALL]}, "one entry for each InstanceType"),
        ({"Specifications": [SMALL, NEEDS]}, "one entry for each InstanceType"),
        ({"Specification": NEEDS, "Specifications": [SMALL, LARGE]}, "not both"),
    ],
)
def test_specifications_by_instance_type_that_are_refused(user: User, specified: dict[str, Any], words: str) -> None:
    """CloudFormation's schema of AWS::SageMaker::InferenceComponent; wording unverified."""
    user.deploy_for_components("shared")
    with refused(words):
        user.sagemaker.create_inference_component(
            InferenceComponentName="llm", EndpointName="shared", VariantName="only", **specified
        )


@pytest.mark.parametrize(("kind", "value"), [("CAPACITY_PERCENT", 60), ("CAPACITY_PERCENT", 4), ("COPY_COUNT", 1)])
def test_a_step_of_a_rolling_update_is_at_most_half_of_the_copies(user: User, kind: Any, value: int) -> None:
    """API reference of InferenceComponentRollingUpdatePolicy; wording unverified."""
    user.deploy_for_components("shared")
    user.create_component("llm", "shared")
    user.component_statuses("llm", 1)
    policy: Any = {"MaximumBatchSize": {"Type": kind, "Value": value}, "WaitIntervalInSeconds": 0}
    with refused("MaximumBatchSize must be between 5% and 50%"):
        user.sagemaker.update_inference_component(
            InferenceComponentName="llm", Specification=NEEDS, DeploymentConfig={"RollingUpdatePolicy": policy}
        )


def test_an_endpoint_with_components_is_not_deleted(user: User) -> None:
    """Developer guide, "Delete endpoints and resources": components first; wording unverified."""
    user.deploy_for_components("shared")
    user.create_component("llm", "shared")
    with refused("still has inference components: llm"):
        user.sagemaker.delete_endpoint(EndpointName="shared")


# Autoscaling

VARIANT: Any = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/ep/variant/only",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
COPIES: Any = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "inference-component/llm",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}


def test_a_scalable_target_is_in_service(user: User) -> None:
    """Developer guide, "Prerequisites" of autoscaling: the endpoint is InService; wording unverified."""
    with refused("Could not find endpoint"):
        user.scaling.register_scalable_target(**VARIANT, MinCapacity=1, MaxCapacity=2)
    user.create("ep")
    with refused("is not in service"):
        user.scaling.register_scalable_target(**VARIANT, MinCapacity=1, MaxCapacity=2)
    user.statuses("ep", 1)
    user.scaling.register_scalable_target(**VARIANT, MinCapacity=1, MaxCapacity=2)
    with refused('Could not find variant "other"'):
        other = {**VARIANT, "ResourceId": "endpoint/ep/variant/other"}
        user.scaling.register_scalable_target(**other, MinCapacity=1, MaxCapacity=2)


def test_a_component_is_a_scalable_target(user: User) -> None:
    """API reference of RegisterScalableTarget, ResourceId."""
    with refused("Could not find inference component"):
        user.scaling.register_scalable_target(**COPIES, MinCapacity=0, MaxCapacity=2)
    user.deploy_for_components("shared")
    user.create_component("llm", "shared")
    user.component_statuses("llm", 1)
    user.scaling.register_scalable_target(**COPIES, MinCapacity=0, MaxCapacity=2)


def test_the_minimum_is_not_above_the_maximum(user: User) -> None:
    """API reference of RegisterScalableTarget; wording unverified."""
    user.deploy("ep")
    with refused("Maximum capacity cannot be less than minimum capacity"):
        user.scaling.register_scalable_target(**VARIANT, MinCapacity=3, MaxCapacity=2)


def test_tags_are_for_new_targets(user: User) -> None:
    """API reference of RegisterScalableTarget, Tags; wording unverified."""
    user.deploy("ep")
    user.scaling.register_scalable_target(**VARIANT, MinCapacity=1, MaxCapacity=2, Tags={"a": "1"})
    with refused("use the TagResource API"):
        user.scaling.register_scalable_target(**VARIANT, MaxCapacity=3, Tags={"a": "2"})


def test_a_policy_needs_its_target(user: User) -> None:
    """API reference of PutScalingPolicy; wording from users' reports."""
    with refused(
        "No scalable target registered for service namespace: sagemaker, resource ID: endpoint/ep/variant/only"
    ):
        user.scaling.put_scaling_policy(**VARIANT, PolicyName="p", PolicyType="TargetTrackingScaling")


def test_deleting_an_endpoint_takes_the_right_to_deregister_its_targets(standin: StandIn, user: User) -> None:
    """AWS's words in awslabs/stable-diffusion-aws-extension#161."""
    user.deploy("ep")
    user.scaling.register_scalable_target(**VARIANT, MinCapacity=1, MaxCapacity=2)
    standin.account.denied.add("application-autoscaling:DeregisterScalableTarget")
    with refused("An Application AutoScaling scalable target exists for a variant being deleted"):
        user.sagemaker.delete_endpoint(EndpointName="ep")
    standin.account.denied.clear()
    user.sagemaker.delete_endpoint(EndpointName="ep")
    assert user.scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
