"""What the control plane of the local platform takes, refuses and lists."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from local_account import IMAGE, ROLE, Account

SOURCE = {"S3Uri": "s3://weights/target/", "S3DataType": "S3Prefix", "CompressionType": "None"}


@pytest.fixture(scope="module", autouse=True)
def weights(account: Account) -> None:
    account.s3.create_bucket(Bucket="weights", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    account.s3.put_object(Bucket="weights", Key="target/config.json", Body=b"{}")


@pytest.mark.parametrize("kind", ["model", "config", "endpoint"])
def test_duplicates_are_refused(account: Account, kind: str) -> None:
    name = f"twice-{kind}"
    account.create(name)
    again = {
        "model": lambda: account.create_model(name),
        "config": lambda: account.create_config(name, name),
        "endpoint": lambda: account.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name),
    }
    with pytest.raises(ClientError, match="Cannot create already existing") as caught:
        again[kind]()
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_a_configuration_needs_its_model_and_an_endpoint_its_configuration(account: Account) -> None:
    with pytest.raises(
        ClientError, match='Could not find model "arn:aws:sagemaker:us-west-2:123456789012:model/nobody"'
    ):
        account.create_config("headless", "nobody")
    with pytest.raises(ClientError, match="Could not find endpoint configuration"):
        account.sagemaker.create_endpoint(EndpointName="headless", EndpointConfigName="nobody")


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"Image": "nginx:latest"}, "Requested image nginx:latest not found. This machine runs .*/echo:<version>-cpu"),
        ({"Image": IMAGE.replace("-cpu", "-gpu")}, "Requested image .*gpu not found"),
        ({"Image": IMAGE.replace("echo", "../echo")}, "Requested image .* not found"),
        ({"ModelDataUrl": "s3://weights/model.tar.gz"}, "does not do ModelDataUrl in PrimaryContainer"),
        ({"ModelDataSource": {"S3DataSource": SOURCE | {"S3Uri": "s3://weights/none/"}}}, "Could not find model data"),
        ({"ModelDataSource": {"S3DataSource": SOURCE | {"S3Uri": "s3://no-bucket/a/"}}}, "Could not find model data"),
        ({"ModelDataSource": {"S3DataSource": SOURCE | {"S3Uri": "s3://weights/target"}}}, "end with a forward slash"),
        ({"ModelDataSource": {"S3DataSource": SOURCE | {"CompressionType": "Gzip"}}}, "CompressionType None only"),
        ({"Environment": {"A": "x" * 1025}}, "environment.A.value' failed .* length less than or equal to 1024"),
        ({"Environment": {"1A": "x"}}, "environment.1A.key' failed .* regular expression pattern"),
        ({"Environment": {f"A{n}": "" for n in range(101)}}, "environment' failed .* length less than or equal to 100"),
        (
            {"Mode": "Magic"},
            r"Value 'Magic' at 'primaryContainer.mode' failed .* enum value set: \[MultiModel, SingleM",
        ),
    ],
)
def test_models_that_are_refused(account: Account, container: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError, match=message):
        account.create_model("refused", **{"environment": container.pop("Environment", None), **container})
    assert "refused" not in _names(account, "Model")


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ({"InstanceType": "ml.bogus.xlarge"}, "productionVariants.1.member.instanceType' failed .* enum value set"),
        ({"ContainerStartupHealthCheckTimeoutInSeconds": 3601}, "value less than or equal to 3600"),
        ({"InferenceAmiVersion": "al2023-ami-of-mine"}, "enum value set"),
        ({"RoutingConfig": {"RoutingStrategy": "BEST"}}, "routingConfig.routingStrategy' failed"),
        ({"VariantName": "under_score"}, "variantName' failed .* regular expression pattern"),
        ({"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}, "does not do ServerlessConfig"),
    ],
)
def test_variants_that_are_refused(account: Account, variant: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError, match=message):
        account.create_config("refused", "refused", **variant)
    assert "refused" not in _names(account, "EndpointConfig")


def test_a_variant_needs_a_count_a_type_and_a_model(account: Account) -> None:
    account.create_model("counted")
    for missing in ({"InitialInstanceCount": 1}, {"InstanceType": "ml.g6e.xlarge"}):
        variants = [{"VariantName": "v", "ModelName": "counted", **missing}]
        with pytest.raises(
            ClientError, match="Variant v needs InitialInstanceCount, and InstanceType or InstancePools"
        ):
            account.sagemaker.create_endpoint_config(EndpointConfigName="counted", ProductionVariants=variants)
    with pytest.raises(ClientError, match="no inference components"):
        account.sagemaker.create_endpoint_config(
            EndpointConfigName="counted", ProductionVariants=[{"VariantName": "v"}], ExecutionRoleArn=ROLE
        )


def test_there_are_no_components_and_no_training_jobs(account: Account) -> None:
    assert account.sagemaker.list_inference_components()["InferenceComponents"] == []
    assert account.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
    with pytest.raises(ClientError, match=r'Could not find inference component "arn:aws:sagemaker:.*/part"'):
        account.sagemaker.describe_inference_component(InferenceComponentName="part")
    with pytest.raises(ClientError, match="The local platform has no CreateInferenceComponent"):
        account.sagemaker.create_inference_component(
            InferenceComponentName="part", EndpointName="chat", Specification={"ModelName": "chat"}
        )


def test_instances_are_scaled_for_components_only(account: Account) -> None:
    scaling = {"MinInstanceCount": 1, "MaxInstanceCount": 2}
    account.create_model("scaled")
    with pytest.raises(ClientError, match="ManagedInstanceScaling is only supported for inference component"):
        account.create_config("scaled", "scaled", ManagedInstanceScaling=scaling)


@pytest.mark.parametrize("instance_type", ["ml.g5.xlarge", "ml.g7e.2xlarge", "ml.p5.48xlarge", "ml.trn1.32xlarge"])
def test_instance_types_of_today_are_known(account: Account, instance_type: str) -> None:
    name = instance_type.replace(".", "-")
    account.create_model(name)
    account.create_config(name, name, InstanceType=instance_type)


def test_one_machine_runs_one_instance(account: Account) -> None:
    account.create_model("two")
    account.create_config("two", "two", InitialInstanceCount=2)
    with pytest.raises(account.sagemaker.exceptions.ResourceLimitExceeded, match="Set InitialInstanceCount to 1"):
        account.sagemaker.create_endpoint(EndpointName="two", EndpointConfigName="two")


def test_all_problems_are_said_at_once(account: Account) -> None:
    with pytest.raises(ClientError, match=r"2 validation errors detected: .*executionRoleArn.*; .*mode"):
        account.sagemaker.create_model(
            ModelName="both", ExecutionRoleArn="x" * 20, PrimaryContainer={"Image": IMAGE, "Mode": "Magic"}
        )


def test_what_is_not_built_is_said(account: Account) -> None:
    with pytest.raises(ClientError, match=r"The local platform has no ListHubs. It has: CreateModel, "):
        account.sagemaker.list_hubs()


def test_a_client_that_checks_nothing_is_checked_here(account: Account) -> None:
    answer = account.post_to_sagemaker("CreateModel", b'{"Surprise": 1}')
    assert answer.status_code == 400
    assert answer.json()["__type"] == "ValidationException"
    assert answer.json()["message"].startswith("2 validation errors detected: Value 'null' at 'modelName' failed to")
    broken = account.post_to_sagemaker("CreateModel", b"{")
    assert broken.json()["__type"] == "SerializationException"


def test_a_model_is_described_as_it_was_asked_for(account: Account) -> None:
    asked = {"Image": IMAGE, "Environment": {"SM_VLLM_X": "1"}, "ModelDataSource": {"S3DataSource": SOURCE}}
    account.create_model("described", {"SM_VLLM_X": "1"}, ModelDataSource={"S3DataSource": SOURCE})
    described = account.sagemaker.describe_model(ModelName="described")
    assert described["PrimaryContainer"] == asked
    assert described["ModelArn"] == "arn:aws:sagemaker:us-west-2:123456789012:model/described"
    account.sagemaker.delete_model(ModelName="described")
    with pytest.raises(ClientError, match="Could not find model"):
        account.sagemaker.describe_model(ModelName="described")


def test_tags_are_replaced_by_key_and_removed(account: Account) -> None:
    arn = account.sagemaker.create_model(
        ModelName="tagged",
        ExecutionRoleArn=ROLE,
        PrimaryContainer={"Image": IMAGE},
        Tags=[{"Key": "owner", "Value": "Zoë"}, {"Key": "step", "Value": "1"}],
    )["ModelArn"]
    account.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "step", "Value": "2"}])
    assert _tags(account, arn) == {"owner": "Zoë", "step": "2"}
    account.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["owner", "unknown"])
    assert _tags(account, arn) == {"step": "2"}
    with pytest.raises(ClientError, match="can have 50 tags"):
        account.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": f"k{n}", "Value": ""} for n in range(50)])
    with pytest.raises(ClientError, match="Could not find resource"):
        account.sagemaker.list_tags(ResourceArn=arn + "-other")


def test_lists_come_in_pages_newest_first(account: Account) -> None:
    names = [f"page-{n:02}" for n in range(12)]
    for name in names:
        account.create_model(name)
    first = account.sagemaker.list_models(NameContains="page-", MaxResults=5)
    assert [model["ModelName"] for model in first["Models"]] == names[:6:-1]
    second = account.sagemaker.list_models(NameContains="page-", MaxResults=5, NextToken=first["NextToken"])
    assert [model["ModelName"] for model in second["Models"]] == names[6:1:-1]
    assert _names(account, "Model", NameContains="page-", SortBy="Name", SortOrder="Ascending") == names
    assert len(account.sagemaker.list_models()["Models"]) == 10, "SageMaker's page, when none is asked for"


def test_deleting_while_listing_skips_nothing(account: Account) -> None:
    for n in range(7):
        account.create_model(f"gone-{n}")
    pages = account.sagemaker.get_paginator("list_models").paginate(
        NameContains="gone-", PaginationConfig={"PageSize": 2}
    )
    for page in pages:
        for model in page["Models"]:
            account.sagemaker.delete_model(ModelName=model["ModelName"])
    assert _names(account, "Model", NameContains="gone-") == []


def test_a_token_from_elsewhere_is_refused(account: Account) -> None:
    with pytest.raises(ClientError, match="Invalid pagination token"):
        account.sagemaker.list_models(NextToken="bm8gdG9rZW4=")


def test_endpoints_are_listed_by_status(account: Account) -> None:
    account.deploy("listed-well")
    account.create("listed-badly", {"DIE_AT_START": "1"})
    account.settled("listed-badly")
    assert _names(account, "Endpoint", NameContains="listed", StatusEquals="Failed") == ["listed-badly"]
    assert _names(account, "Endpoint", NameContains="listed", StatusEquals="InService") == ["listed-well"]


def test_iam_and_sts_are_there_too(account: Account) -> None:
    iam = account.session.client("iam")
    iam.create_role(RoleName="execution", AssumeRolePolicyDocument="{}")
    assert iam.get_role(RoleName="execution")["Role"]["Arn"] == ROLE
    assert account.session.client("sts").get_caller_identity()["Account"] == "123456789012"


def _names(account: Account, kind: str, **request: Any) -> list[str]:
    operation = {"Model": "list_models", "EndpointConfig": "list_endpoint_configs", "Endpoint": "list_endpoints"}[kind]
    pages = account.sagemaker.get_paginator(operation).paginate(**request)
    return [item[f"{kind}Name"] for page in pages for item in page[f"{kind}s"]]


def _tags(account: Account, arn: str) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in account.sagemaker.list_tags(ResourceArn=arn)["Tags"]}
