"""The stand-in refuses what AWS refuses. Each test says where the rule is from; nothing was tried on a live account."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from standin import StandIn
from standin_user import IMAGE, TRUST, User, one, source

ACCOUNT = "123456789012"


def refused(words: str) -> Any:
    return pytest.raises(ClientError, match=words)


# Models


def test_a_role_that_does_not_exist_cannot_be_assumed(user: User) -> None:
    """API reference of CreateModel, ExecutionRoleArn; wording from users' reports."""
    user.role = f"arn:aws:iam::{ACCOUNT}:role/nobody"
    with refused(r"Could not assume role .*/nobody\. Please ensure that the role exists and allows principal"):
        user.create_model("m")


def test_a_role_must_trust_sagemaker(user: User) -> None:
    """Developer guide, "SageMaker AI execution roles"; wording from users' reports."""
    trust = json.dumps(TRUST).replace("sagemaker.amazonaws.com", "ec2.amazonaws.com")
    iam = user.session.client("iam")
    user.role = iam.create_role(RoleName="ec2", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    with refused("allows principal 'sagemaker.amazonaws.com' to assume the role"):
        user.create_model("m")


@pytest.mark.parametrize("uri", ["s3://no-such-bucket/target/", "s3://weights-us-west-2/none/"])
def test_model_data_must_exist(user: User, uri: str) -> None:
    """API reference of S3ModelDataSource; wording from users' reports."""
    with refused(f"Could not find model data at {uri}"):
        user.create_model("m", ModelDataSource=source(uri))


def test_an_s3_prefix_ends_with_a_slash(user: User) -> None:
    """API reference of S3ModelDataSource, S3DataType; wording unverified."""
    with refused("must start with s3:// and end with a forward slash"):
        user.create_model("m", ModelDataSource=source("s3://weights-us-west-2/target"))


def test_model_data_must_be_in_the_region(standin: StandIn, user: User) -> None:
    """API reference of ContainerDefinition, Image: both must be in the model's region; wording unverified."""
    elsewhere = standin.session("eu-west-1").client("s3")
    elsewhere.create_bucket(Bucket="elsewhere", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    elsewhere.put_object(Bucket="elsewhere", Key="a/config.json", Body=b"{}")
    with refused("must be in region us-west-2"):
        user.create_model("m", ModelDataSource=source("s3://elsewhere/a/"))


@pytest.mark.parametrize(
    "image",
    [
        IMAGE + "-nightly",
        IMAGE.replace("763104351884", "626614931356"),  # the registry of another region
        f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/mine:1",
    ],
)
def test_an_image_must_exist(user: User, image: str) -> None:
    """API reference of ContainerDefinition, Image; wording from users' reports."""
    with refused(f"Requested image {image} not found"):
        user.create_model("m", Image=image)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:1", "must be in Amazon ECR"),
        (IMAGE.replace("us-west-2", "eu-west-1"), "must be in region us-west-2"),
    ],
)
def test_an_image_must_be_in_a_private_registry_of_the_region(user: User, image: str, words: str) -> None:
    """API reference of ContainerDefinition, Image; wording unverified."""
    with refused(words):
        user.create_model("m", Image=image)


def test_an_image_of_our_own_registry_is_taken_by_tag_and_by_digest(user: User) -> None:
    """API reference of ContainerDefinition, Image."""
    ecr = user.session.client("ecr")
    ecr.create_repository(repositoryName="team/mine")
    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"})
    pushed = ecr.put_image(repositoryName="team/mine", imageManifest=manifest, imageTag="1")["image"]["imageId"]
    registry = f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/team/mine"
    user.create_model("by-tag", Image=f"{registry}:1")
    user.create_model("by-digest", Image=f"{registry}@{pushed['imageDigest']}")


def test_an_image_of_aws_is_taken_by_the_digest_that_its_registry_tells(user: User) -> None:
    """API reference of ContainerDefinition, Image."""
    ids: Any = [{"imageTag": "server-sagemaker-cuda-v2.5"}]
    answer = user.session.client("ecr").batch_get_image(registryId="763104351884", repositoryName="vllm", imageIds=ids)
    digest = answer["images"][0]["imageId"]["imageDigest"]
    user.create_model("m", Image=f"{IMAGE.rpartition(':')[0]}@{digest}")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"A": "x" * 1025}, "length less than or equal to 1024"),
        ({"1A": "x"}, "regular expression pattern"),
        ({f"A{n}": "" for n in range(101)}, "length less than or equal to 100"),
        ({f"A{n:02}": "x" * 1000 for n in range(33)}, "together exceed 32768 bytes"),
    ],
)
def test_environments_have_limits(user: User, environment: dict[str, str], words: str) -> None:
    """botocore's model, and API reference of ContainerDefinition (32 KB together; that wording is unverified)."""
    with refused(words):
        user.create_model("m", Environment=environment)


# Names and tags


@pytest.mark.parametrize("kind", ["model", "endpoint configuration", "endpoint", "inference component"])
def test_names_are_taken_once(user: User, kind: str) -> None:
    """Wording from users' reports."""
    user.deploy("twice")
    user.deploy_for_components("shared")
    user.create_component("llm", "shared", Container={"Image": IMAGE})
    again = {
        "model": lambda: user.create_model("twice"),
        "endpoint configuration": lambda: user.create_config("twice", one("twice")),
        "endpoint": lambda: user.sagemaker.create_endpoint(EndpointName="twice", EndpointConfigName="twice"),
        "inference component": lambda: user.create_component("llm", "shared", Container={"Image": IMAGE}),
    }
    with refused(f'Cannot create already existing {kind} "arn:aws:sagemaker:us-west-2:{ACCOUNT}:'):
        again[kind]()


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ([{"Key": "aws:mine", "Value": ""}], "reserved for AWS"),
        ([{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}], "must be unique"),
        ([{"Key": f"k{n}", "Value": ""} for n in range(51)], "length less than or equal to 50"),
    ],
)
def test_tags_that_no_resource_can_have(user: User, tags: Any, words: str) -> None:
    """API references of Tag and AddTags, botocore's model; wording of the first two unverified."""
    user.create_model("m")
    with refused(words):
        user.create_config("c", one("m"), Tags=tags)


def test_what_does_not_exist_cannot_be_deleted(user: User) -> None:
    """Wording from users' reports."""
    with refused("Could not find model"):
        user.sagemaker.delete_model(ModelName="nobody")
    with refused("Could not find endpoint configuration"):
        user.sagemaker.delete_endpoint_config(EndpointConfigName="nobody")
    with refused("Could not find endpoint "):
        user.sagemaker.delete_endpoint(EndpointName="nobody")
    with refused("Could not find inference component"):
        user.sagemaker.delete_inference_component(InferenceComponentName="nobody")


# Endpoint configurations

POOL = {"InstanceType": "ml.g6e.xlarge", "Priority": 1}
OTHER = {"InstanceType": "ml.p5.48xlarge", "Priority": 2}


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ({"InitialInstanceCount": None}, "needs InitialInstanceCount"),
        ({"InstanceType": None}, "and InstanceType or InstancePools"),
        ({"InstancePools": [POOL]}, "both InstanceType and InstancePools"),
        ({"InstanceType": None, "InstancePools": [POOL, {**OTHER, "Priority": 1}]}, "The Priority of each .* unique"),
        (
            {"InstanceType": None, "InstancePools": [POOL, {**POOL, "Priority": 2}]},
            "The InstanceType of .* unique",
        ),
        ({"InstanceType": None, "InstancePools": [{**POOL, "Priority": 6}]}, "value less than or equal to 5"),
        ({"InstanceType": "ml.bogus.xlarge"}, "enum value set"),
        ({"InferenceAmiVersion": "al2023-ami-of-mine"}, "enum value set"),
        ({"ContainerStartupHealthCheckTimeoutInSeconds": 3601}, "value less than or equal to 3600"),
        (
            {"RoutingConfig": {"RoutingStrategy": "PREFIX_AWARE"}},
            "needs PrefixAwareRoutingConfig with ConcurrencyThreshold, PrefixLength",
        ),
        (
            {"RoutingConfig": {"RoutingStrategy": "RANDOM", "PrefixAwareRoutingConfig": {"PrefixLength": 4096}}},
            "is only for PREFIX_AWARE routing",
        ),
    ],
)
def test_variants_that_are_refused(user: User, variant: dict[str, Any], words: str) -> None:
    """botocore's model; API references of ProductionVariant and InstancePool (that wording is unverified)."""
    user.create_model("m")
    with refused(words):
        user.create_config("c", one("m", **variant))


@pytest.mark.parametrize(("instance_type", "is_refused"), [("ml.g5.xlarge", True), ("ml.m5.xlarge", False)])
def test_a_volume_is_only_for_types_without_an_instance_store(user: User, instance_type: str, is_refused: bool) -> None:
    """Developer guide, "Host instance storage volumes"; wording unverified."""
    user.create_model("m")
    variant = one("m", InstanceType=instance_type, VolumeSizeInGB=200)
    if is_refused:
        with refused("you can't specify VolumeSizeInGB"):
            user.create_config("c", variant)
    else:
        user.create_config("c", variant)


def test_there_are_at_most_ten_variants(user: User) -> None:
    """botocore's model."""
    user.create_model("m")
    with refused("productionVariants' failed .* length less than or equal to 10"):
        user.create_config("c", *(one("m", VariantName=f"v{n}") for n in range(11)))


def test_variants_have_names_of_their_own(user: User) -> None:
    """API reference of CreateEndpointConfig; wording unverified."""
    user.create_model("m")
    with refused("VariantName of each production variant must be unique"):
        user.create_config("c", one("m"), ShadowProductionVariants=[one("m")])


@pytest.mark.parametrize(("production", "shadow"), [(2, 1), (1, 2)])
def test_a_shadow_goes_with_one_production_variant(user: User, production: int, shadow: int) -> None:
    """API reference of CreateEndpointConfig, ShadowProductionVariants; wording unverified."""
    user.create_model("m")
    shadows = [one("m", VariantName=f"s{n}") for n in range(shadow)]
    with refused("one production variant and one shadow variant"):
        user.create_config(
            "c", *(one("m", VariantName=f"p{n}") for n in range(production)), ShadowProductionVariants=shadows
        )


def test_managed_scaling_is_for_components_only(user: User) -> None:
    """AWS's words in hashicorp/terraform-provider-aws#45926."""
    user.create_model("m")
    scaling = {"Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": 2}
    with refused("ManagedInstanceScaling is only supported for inference component endpoints"):
        user.create_config("c", one("m", ManagedInstanceScaling=scaling))
    user.create_config("c", one(None, ManagedInstanceScaling=scaling), ExecutionRoleArn=user.role)


def test_a_configuration_for_components_has_a_role(user: User) -> None:
    """Developer guide, "Deploy models with inference components"; wording unverified."""
    with refused("for inference components, without ModelName, needs an ExecutionRoleArn"):
        user.create_config("c", one(None))


def test_variants_have_models_or_components_but_not_both(user: User) -> None:
    """Developer guide, "Deploy models with inference components"; unverified."""
    user.create_model("m")
    with refused("Either every variant has a ModelName, or none has"):
        user.create_config("c", one("m"), one(None, VariantName="other"), ExecutionRoleArn=user.role)


def test_a_configuration_needs_its_models(user: User) -> None:
    """Wording from users' reports."""
    with refused('Could not find model "arn:aws:sagemaker:us-west-2:123456789012:model/nobody"'):
        user.create_config("c", one("nobody"))


# Endpoints


@pytest.mark.parametrize(("quota", "used"), [(0, 0), (1, 1)])
def test_instances_are_limited_by_quotas(standin: StandIn, user: User, quota: int, used: int) -> None:
    """AWS's words in aws/amazon-sagemaker-examples#307."""
    for n in range(used):
        user.deploy(f"ep{n}")
    standin.account.quotas["ml.g6e.xlarge"] = quota
    words = (
        rf"The account-level service limit 'ml.g6e.xlarge for endpoint usage' is {quota} Instances, "
        rf"with current utilization of {used} Instances and a request delta of 1 Instances"
    )
    with pytest.raises(user.sagemaker.exceptions.ResourceLimitExceeded, match=words):
        user.create("ep")
    assert "sagemaker endpoint ep" not in standin.leftovers()


def test_an_update_needs_instances_beside_the_old_ones(standin: StandIn, user: User) -> None:
    """Developer guide, "Blue/Green Deployments": the new fleet comes up beside the old one."""
    user.deploy("ep")
    user.create_config("other", one("ep"))
    standin.account.quotas["ml.g6e.xlarge"] = 1
    with pytest.raises(user.sagemaker.exceptions.ResourceLimitExceeded):
        user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other")
    assert user.statuses("ep", 1) == ["InService"]


def test_an_endpoint_in_progress_can_neither_be_updated_nor_deleted(user: User) -> None:
    """Wording from users' reports."""
    user.create("ep")
    with refused("Cannot update in-progress endpoint"):
        user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="ep")
    with refused("Cannot update in-progress endpoint"):
        user.sagemaker.delete_endpoint(EndpointName="ep")


def test_a_failed_endpoint_can_only_be_deleted(standin: StandIn, user: User) -> None:
    """API reference of DescribeEndpoint, EndpointStatus; wording unverified."""
    standin.script("ep", ["Failed"], "no")
    user.create("ep")
    with refused("Cannot update failed endpoint"):
        user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="ep")
    user.sagemaker.delete_endpoint(EndpointName="ep")


def test_an_update_needs_a_new_configuration(user: User) -> None:
    """API reference of UpdateEndpoint: "To update an endpoint, you must create a new EndpointConfig"; unverified."""
    user.deploy("ep")
    with refused("Cannot update endpoint with the endpoint configuration that it has, ep"):
        user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="ep")


def test_an_update_needs_the_old_configuration_too(user: User) -> None:
    """hashicorp/terraform-provider-aws#40048: the old one had been deleted."""
    user.deploy("ep")
    user.create_config("other", one("ep"))
    user.sagemaker.delete_endpoint_config(EndpointConfigName="ep")
    with refused('Could not find endpoint configuration "arn:aws:sagemaker:us-west-2:123456789012:endpoint-config/ep"'):
        user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other")


def test_an_update_has_one_policy(user: User) -> None:
    """API reference of BlueGreenUpdatePolicy: only one of both; wording unverified."""
    user.deploy("ep")
    user.create_config("other", one("ep"))
    size: Any = {"Type": "CAPACITY_PERCENT", "Value": 25}
    config: Any = {
        "BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}},
        "RollingUpdatePolicy": {"MaximumBatchSize": size, "WaitIntervalInSeconds": 0},
    }
    with refused("BlueGreenUpdatePolicy or RollingUpdatePolicy, not both"):
        user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other", DeploymentConfig=config)


@pytest.mark.parametrize(
    ("names", "words"),
    [(["nobody"], "Could not find CloudWatch alarm nobody"), (["a"] * 11, "length less than or equal to 10")],
)
def test_alarms_of_a_rollback_exist_and_are_at_most_ten(user: User, names: list[str], words: str) -> None:
    """API reference of AutoRollbackConfig, botocore's model; wording of the first unverified."""
    user.deploy("ep")
    user.create_config("other", one("ep"))
    config: Any = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": name} for name in names]}}
    with refused(words):
        user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other", DeploymentConfig=config)


def test_weights_are_of_variants_that_exist(user: User) -> None:
    """API reference of UpdateEndpointWeightsAndCapacities; wording unverified."""
    user.deploy("ep")
    with refused('Could not find variant "other"'):
        user.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName="ep", DesiredWeightsAndCapacities=[{"VariantName": "other", "DesiredWeight": 1}]
        )
