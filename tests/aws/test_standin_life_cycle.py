"""Endpoints and inference components of the stand-in live as on AWS, at the pace of Describe calls."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from standin import CAPACITY, PING, StandIn
from standin_user import User, one


def test_an_endpoint_is_creating_for_one_look_and_then_in_service(user: User) -> None:
    user.create("ep")
    assert user.statuses("ep", 3) == ["Creating", "InService", "InService"]


def test_an_endpoint_is_deleting_for_one_look_and_then_gone(user: User) -> None:
    user.deploy("ep")
    user.sagemaker.delete_endpoint(EndpointName="ep")
    assert user.statuses("ep", 1) == ["Deleting"]
    with pytest.raises(ClientError, match="Could not find endpoint"):
        user.describe("ep")


def test_a_scripted_failure_has_its_reason_and_log_lines(standin: StandIn, user: User) -> None:
    standin.script("ep", ["Creating", "Creating", "Failed"], PING, ["loading", "ValueError: no"])
    user.create("ep")
    assert user.statuses("ep", 2) == ["Creating", "Creating"]
    assert user.log("/aws/sagemaker/Endpoints/ep") == ["loading", "ValueError: no"]
    failed = user.describe("ep")
    assert (failed["EndpointStatus"], failed["FailureReason"]) == ("Failed", PING)


def test_an_endpoint_can_fail_after_it_was_in_service(standin: StandIn, user: User) -> None:
    standin.script("ep", ["Creating", "InService", "Failed"], "lost")
    user.create("ep")
    assert user.statuses("ep", 3) == ["Creating", "InService", "Failed"]


def test_an_update_can_fail_for_good(standin: StandIn, user: User) -> None:
    """API reference of DescribeEndpoint: Failed is also an endpoint that could not be updated."""
    user.deploy("ep")
    user.create_config("other", one("ep"))
    standin.script("ep", ["Updating", "Failed"], "no way back")
    user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other")
    assert user.statuses("ep", 2) == ["Updating", "Failed"]
    with pytest.raises(ClientError, match="Cannot update failed endpoint"):
        user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other")


def test_a_change_of_numbers_that_fails_rolls_back(standin: StandIn, user: User) -> None:
    """API reference of DescribeEndpoint, RollingBack."""
    user.deploy("ep")
    standin.script("ep", ["Updating", "RollingBack", "InService"], CAPACITY)
    user.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="ep", DesiredWeightsAndCapacities=[{"VariantName": "only", "DesiredInstanceCount": 3}]
    )
    assert user.statuses("ep", 3) == ["Updating", "RollingBack", "InService"]
    described = user.describe("ep")
    assert described["ProductionVariants"][0]["DesiredInstanceCount"] == 1
    assert described["FailureReason"] == CAPACITY


@pytest.mark.parametrize("status", ["OutOfService", "UpdateRollbackFailed", "SystemUpdating"])
def test_rare_statuses_can_be_scripted(standin: StandIn, user: User, status: str) -> None:
    standin.script("ep", ["Creating", "InService", status], "rare")
    user.create("ep")
    assert user.statuses("ep", 3) == ["Creating", "InService", status]


def test_logs_are_in_a_stream_of_the_variant(user: User) -> None:
    user.deploy("ep")
    (stream,) = user.logs.describe_log_streams(logGroupName="/aws/sagemaker/Endpoints/ep")["logStreams"]
    assert stream["logStreamName"] == "only/i-00000000000000001"


def test_an_update_takes_the_new_configuration_when_it_is_done(user: User) -> None:
    user.deploy("ep")
    user.create_config("other", one("ep", InitialInstanceCount=2))
    user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other")
    updating = user.describe("ep")
    assert (updating["EndpointStatus"], updating["EndpointConfigName"]) == ("Updating", "ep")
    assert updating["PendingDeploymentSummary"]["EndpointConfigName"] == "other"
    done = user.describe("ep")
    assert (done["EndpointStatus"], done["EndpointConfigName"]) == ("InService", "other")
    assert done["ProductionVariants"][0]["CurrentInstanceCount"] == 2


def test_a_failed_update_rolls_back_to_the_old_configuration(standin: StandIn, user: User) -> None:
    user.deploy("ep")
    user.create_config("other", one("ep"))
    standin.script("ep", ["Updating", "RollingBack", "InService"], PING)
    user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other")
    updating, rolling_back = user.describe("ep"), user.describe("ep")
    assert [item["EndpointStatus"] for item in (updating, rolling_back)] == ["Updating", "RollingBack"]
    began = updating["PendingDeploymentSummary"]["StartTime"]
    assert rolling_back["PendingDeploymentSummary"]["StartTime"] == began, "logs are read from here on"
    done = user.describe("ep")
    assert (done["EndpointStatus"], done["EndpointConfigName"]) == ("InService", "ep")
    assert done["FailureReason"] == PING


def test_after_a_failed_update_the_next_one_clears_the_reason(standin: StandIn, user: User) -> None:
    user.deploy("ep")
    user.create_config("other", one("ep"))
    standin.script("ep", ["RollingBack", "InService"], PING)
    user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other")
    standin.settle()
    user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other")
    standin.settle()
    assert "FailureReason" not in user.describe("ep")


def test_a_deployment_configuration_is_told_back(user: User) -> None:
    user.deploy("ep")
    user.create_config("other", one("ep"))
    policy = {"MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 25}, "WaitIntervalInSeconds": 60}
    config: Any = {"RollingUpdatePolicy": policy}
    user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other", DeploymentConfig=config)
    assert user.describe("ep")["LastDeploymentConfig"] == config


def test_weights_and_numbers_can_be_changed_without_a_new_configuration(user: User) -> None:
    user.deploy("ep")
    user.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="ep", DesiredWeightsAndCapacities=[{"VariantName": "only", "DesiredInstanceCount": 3}]
    )
    assert "PendingDeploymentSummary" not in user.describe("ep")
    (variant,) = user.describe("ep")["ProductionVariants"]
    assert (variant["CurrentInstanceCount"], variant["CurrentWeight"]) == (3, 1.0)


def test_what_is_in_one_region_is_in_no_other(standin: StandIn, user: User) -> None:
    user.create_model("here")
    elsewhere: Any = standin.session().client("sagemaker", region_name="eu-west-1")
    assert [item["ModelName"] for item in user.sagemaker.list_models()["Models"]] == ["here"]
    assert elsewhere.list_models()["Models"] == []


def test_a_change_of_the_number_keeps_the_weight_and_the_other_way_round(user: User) -> None:
    user.deploy("ep", InitialVariantWeight=0.5, InitialInstanceCount=2)
    for change in ({"DesiredInstanceCount": 3}, {"DesiredWeight": 0.25}):
        desired: Any = [{"VariantName": "only", **change}]
        user.sagemaker.update_endpoint_weights_and_capacities(EndpointName="ep", DesiredWeightsAndCapacities=desired)
        assert user.statuses("ep", 2) == ["Updating", "InService"]
        (variant,) = user.describe("ep")["ProductionVariants"]
        expected = {"DesiredInstanceCount": 3, "DesiredWeight": 0.5, **change}
        found = {"DesiredInstanceCount": variant["CurrentInstanceCount"], "DesiredWeight": variant["CurrentWeight"]}
        assert found == expected


@pytest.mark.parametrize(
    ("request_fields", "count"),
    [
        ({}, 1),
        ({"RetainAllVariantProperties": True}, 3),
        (
            {
                "RetainAllVariantProperties": True,
                "ExcludeRetainedVariantProperties": [{"VariantPropertyType": "DesiredInstanceCount"}],
            },
            1,
        ),
    ],
)
def test_an_update_keeps_what_was_scaled_only_when_asked(
    standin: StandIn, user: User, request_fields: dict[str, Any], count: int
) -> None:
    """API reference of UpdateEndpoint, RetainAllVariantProperties."""
    user.deploy("ep")
    user.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="ep", DesiredWeightsAndCapacities=[{"VariantName": "only", "DesiredInstanceCount": 3}]
    )
    standin.settle()
    user.create_config("other", one("ep"))
    user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other", **request_fields)
    standin.settle()
    assert user.describe("ep")["ProductionVariants"][0]["DesiredInstanceCount"] == count


def test_without_capacity_an_endpoint_fails_and_leaves_no_log(standin: StandIn, user: User) -> None:
    standin.without_capacity("ml.g6e.xlarge")
    user.create("ep")
    assert user.statuses("ep", 2) == ["Creating", "Failed"]
    assert user.describe("ep")["FailureReason"] == CAPACITY
    assert "logs group /aws/sagemaker/Endpoints/ep" not in standin.leftovers()


def test_the_next_instance_pool_is_taken_when_the_first_has_no_capacity(standin: StandIn, user: User) -> None:
    """API reference of InstancePool, Priority and ModelNameOverride."""
    standin.without_capacity("ml.p5.48xlarge")
    user.create_model("large")
    user.create_model("small", Image="763104351884.dkr.ecr.us-west-2.amazonaws.com/vllm:server-sagemaker-cuda-v2.4")
    pools = [
        {"InstanceType": "ml.g6e.12xlarge", "Priority": 2, "ModelNameOverride": "small"},
        {"InstanceType": "ml.p5.48xlarge", "Priority": 1},
    ]
    user.create_config("ep", one("large", InstanceType=None, InstancePools=pools))
    user.sagemaker.create_endpoint(EndpointName="ep", EndpointConfigName="ep")
    user.statuses("ep", 1)
    (variant,) = user.describe("ep")["ProductionVariants"]
    assert variant["InstancePools"] == [
        {"InstanceType": "ml.p5.48xlarge", "CurrentInstanceCount": 0},
        {"InstanceType": "ml.g6e.12xlarge", "CurrentInstanceCount": 1},
    ]
    assert variant["DeployedImages"][0]["SpecifiedImage"].endswith("v2.4")


def test_a_shadow_variant_is_described_beside_the_production_variant(user: User) -> None:
    user.create_model("ep")
    user.create_config("ep", one("ep"), ShadowProductionVariants=[one("ep", VariantName="shadow")])
    user.sagemaker.create_endpoint(EndpointName="ep", EndpointConfigName="ep")
    user.statuses("ep", 1)
    described = user.describe("ep")
    assert [item["VariantName"] for item in described["ProductionVariants"]] == ["only"]
    assert [item["VariantName"] for item in described["ShadowProductionVariants"]] == ["shadow"]


def test_data_capture_is_described_with_its_state(user: User) -> None:
    user.create_model("ep")
    capture = {
        "EnableCapture": True,
        "InitialSamplingPercentage": 10,
        "DestinationS3Uri": "s3://weights-us-west-2/captured/",
        "CaptureOptions": [{"CaptureMode": "Input"}],
    }
    user.create_config("ep", one("ep"), DataCaptureConfig=capture)
    user.sagemaker.create_endpoint(EndpointName="ep", EndpointConfigName="ep")
    described = user.describe("ep")["DataCaptureConfig"]
    assert (described["CaptureStatus"], described["CurrentSamplingPercentage"]) == ("Started", 10)


def test_a_component_lives_on_an_endpoint(user: User) -> None:
    user.deploy_for_components("shared")
    user.create_component("llm", "shared")
    assert user.component_statuses("llm", 2) == ["Creating", "InService"]
    described = user.describe_component("llm")
    assert (described["EndpointName"], described["VariantName"]) == ("shared", "only")
    assert described["RuntimeConfig"] == {"DesiredCopyCount": 1, "CurrentCopyCount": 1}
    user.sagemaker.delete_inference_component(InferenceComponentName="llm")
    assert user.component_statuses("llm", 1) == ["Deleting"]
    with pytest.raises(ClientError, match="Could not find inference component"):
        user.describe_component("llm")


def test_copies_of_a_component_can_be_changed(user: User) -> None:
    user.deploy_for_components("shared")
    user.create_component("llm", "shared")
    user.component_statuses("llm", 1)
    user.sagemaker.update_inference_component_runtime_config(
        InferenceComponentName="llm", DesiredRuntimeConfig={"CopyCount": 4}
    )
    assert user.describe_component("llm")["RuntimeConfig"] == {"DesiredCopyCount": 4, "CurrentCopyCount": 1}
    assert user.describe_component("llm")["RuntimeConfig"] == {"DesiredCopyCount": 4, "CurrentCopyCount": 4}


def test_a_failed_update_of_a_component_keeps_its_specification(standin: StandIn, user: User) -> None:
    user.deploy_for_components("shared")
    user.create_component("llm", "shared")
    user.component_statuses("llm", 1)
    user.create_model("other")
    requirements: Any = {"MinMemoryRequiredInMb": 2048}
    specification: Any = {"ModelName": "other", "ComputeResourceRequirements": requirements}
    user.sagemaker.update_inference_component(InferenceComponentName="llm", Specification=specification)
    standin.settle()
    assert user.describe_component("llm")["Specification"]["ModelName"] == "other"
    standin.script_component("llm", ["Updating", "RollingBack", "InService"], "does not fit")
    specification = {"ModelName": "llm", "ComputeResourceRequirements": requirements}
    user.sagemaker.update_inference_component(InferenceComponentName="llm", Specification=specification)
    assert user.component_statuses("llm", 2) == ["Updating", "Updating"]
    described = user.describe_component("llm")
    assert described["Specification"]["ModelName"] == "other"
    assert described["FailureReason"] == "does not fit"


def test_a_component_of_a_container_shows_the_image_that_was_deployed(user: User) -> None:
    user.deploy_for_components("shared")
    image = "763104351884.dkr.ecr.us-west-2.amazonaws.com/vllm:server-sagemaker-cuda-v2.5"
    user.create_component("llm", "shared", Container={"Image": image, "Environment": {"A": "1"}})
    container = user.describe_component("llm")["Specification"]["Container"]
    assert container["DeployedImage"]["SpecifiedImage"] == image
    assert container["Environment"] == {"A": "1"}


def test_components_are_listed_by_endpoint(user: User) -> None:
    for endpoint in ("one", "two"):
        user.deploy_for_components(endpoint)
        user.create_component(f"llm-{endpoint}", endpoint)
    (found,) = user.sagemaker.list_inference_components(EndpointNameEquals="two")["InferenceComponents"]
    assert found["InferenceComponentName"] == "llm-two"


def test_a_component_writes_a_log_of_its_own(standin: StandIn, user: User) -> None:
    user.deploy_for_components("shared")
    standin.script_component("llm", ["Creating", "Failed"], "no", ["ValueError"])
    user.create_component("llm", "shared")
    assert user.component_statuses("llm", 2) == ["Creating", "Failed"]
    assert user.log("/aws/sagemaker/InferenceComponents/llm") == ["ValueError"]
