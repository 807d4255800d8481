"""What the stand-in has beside SageMaker's own resources: regions, tags, invocations, what moto lacks."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from openai import OpenAI
from standin import Invocation, Reply, StandIn
from standin_user import User, one

VARIANT: Any = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/ep/variant/only",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
CONCURRENCY = "SageMakerVariantConcurrentRequestsPerModelHighResolution"


# Regions and tags


def test_each_region_has_its_own_resources(standin: StandIn, user: User) -> None:
    user.create_model("m")
    assert standin.session("eu-west-1").client("sagemaker").list_models()["Models"] == []


@pytest.mark.parametrize(
    ("region", "partition"), [("eu-west-1", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")]
)
def test_arns_name_region_and_partition(standin: StandIn, region: str, partition: str) -> None:
    with pytest.raises(ClientError, match=f'"arn:{partition}:sagemaker:{region}:123456789012:model/nobody"'):
        standin.session(region).client("sagemaker").describe_model(ModelName="nobody")


def test_tags_are_listed_by_pages(user: User) -> None:
    user.create_model("m")
    arn = user.sagemaker.describe_model(ModelName="m")["ModelArn"]
    user.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": f"k{n}", "Value": "v"} for n in range(45)])
    assert len(user.sagemaker.list_tags(ResourceArn=arn)["Tags"]) == 20
    pages = user.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    assert len([tag for page in pages for tag in page["Tags"]]) == 45


def test_resources_are_found_by_tag_and_type(user: User) -> None:
    user.create_model("m")
    tags: Any = [{"Key": "owner", "Value": "me"}]
    user.create_config("mine", one("m"), Tags=tags)
    user.create_config("theirs", one("m"), Tags=[{"Key": "owner", "Value": "them"}])
    user.session.client("s3").put_bucket_tagging(Bucket="weights-us-west-2", Tagging={"TagSet": tags})
    tagging = user.session.client("resourcegroupstaggingapi")
    found = tagging.get_resources(TagFilters=[{"Key": "owner", "Values": ["me"]}])["ResourceTagMappingList"]
    assert [item["ResourceARN"] for item in found] == [
        "arn:aws:s3:::weights-us-west-2",
        "arn:aws:sagemaker:us-west-2:123456789012:endpoint-config/mine",
    ]
    only = tagging.get_resources(ResourceTypeFilters=["sagemaker:endpoint-config"], TagFilters=[{"Key": "owner"}])
    assert len(only["ResourceTagMappingList"]) == 2


def test_found_resources_come_by_pages_of_100(user: User) -> None:
    user.create_model("m")
    tags: Any = [{"Key": "owner", "Value": "me"}]
    for n in range(101):
        user.create_config(f"c{n}", one("m"), Tags=tags)
    pages = list(user.session.client("resourcegroupstaggingapi").get_paginator("get_resources").paginate())
    assert [len(page["ResourceTagMappingList"]) for page in pages] == [100, 1]


# Invocations


def test_an_endpoint_in_service_answers(standin: StandIn, user: User) -> None:
    standin.serve(lambda invocation: Reply((json.dumps({"from": invocation.endpoint}).encode(),)))
    user.deploy("ep")
    assert user.invoke("ep", {"prompt": "hello"}) == {"from": "ep"}
    assert standin.calls[-1].request == {"EndpointName": "ep", "Body": {"prompt": "hello"}}


def test_an_endpoint_that_is_not_in_service_does_not(user: User) -> None:
    user.create("ep")
    with pytest.raises(user.runtime.exceptions.ValidationError, match="Endpoint ep of account 123456789012 not found"):
        user.invoke("ep")


def test_an_answer_can_be_a_stream(standin: StandIn, user: User) -> None:
    standin.serve(lambda _: Reply((b"data: 1\n\n", b"data: 2\n\n"), content_type="text/event-stream"))
    user.deploy("ep")
    answer = user.runtime.invoke_endpoint_with_response_stream(EndpointName="ep", Body=b"{}")
    assert [event["PayloadPart"]["Bytes"] for event in answer["Body"]] == [b"data: 1\n\n", b"data: 2\n\n"]


def test_what_the_container_refuses_is_a_model_error(standin: StandIn, user: User) -> None:
    standin.serve(lambda _: Reply((b"too long",), status=400))
    user.deploy("ep")
    with pytest.raises(user.runtime.exceptions.ModelError) as caught:
        user.invoke("ep")
    response = caught.value.response
    assert (response["OriginalStatusCode"], response["OriginalMessage"]) == (400, "too long")


def test_openai_clients_reach_the_container_with_a_bearer_token(standin: StandIn, user: User) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    completion = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    standin.serve(lambda _: Reply((json.dumps(completion).encode(),)))
    user.deploy("ep")
    client = OpenAI(base_url=f"{standin.url}/endpoints/ep/openai/v1", api_key="sagemaker-api-key-bm90IHNpZ25lZA==")
    answer = client.chat.completions.create(model="", messages=[{"role": "user", "content": "hello"}])
    assert answer.choices[0].message.content == "hi"
    assert str(standin.calls[-1]) == "sagemaker-runtime:OpenAI"


def test_a_component_is_invoked_by_its_name(standin: StandIn, user: User) -> None:
    seen: list[Invocation] = []

    def container(invocation: Invocation) -> Reply:
        seen.append(invocation)
        return Reply((b"{}",))

    standin.serve(container)
    user.deploy_for_components("shared")
    user.create_component("llm", "shared")
    with pytest.raises(ClientError, match="Inference Component Name header is required"):
        user.invoke("shared")
    user.invoke("shared", InferenceComponentName="llm")
    assert [(invocation.endpoint, invocation.component) for invocation in seen] == [("shared", "llm")]


# Operations that moto lacks


def test_permissions_are_simulated(standin: StandIn, user: User) -> None:
    """Of the caller what tests deny; of an execution role what its policies say."""
    standin.account.denied.add("sagemaker:CreateModel")
    iam = user.session.client("iam")
    statement = {"Effect": "Allow", "Action": "sagemaker:Create*", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_role_policy(RoleName="execution", PolicyName="p", PolicyDocument=document)
    actions = ["sagemaker:CreateModel", "sagemaker:CreateEndpoint", "sagemaker:DeleteEndpoint"]

    def decisions(source: str) -> list[str]:
        answer = iam.simulate_principal_policy(PolicySourceArn=source, ActionNames=actions)
        return [item["EvalDecision"] for item in answer["EvaluationResults"]]

    assert decisions("arn:aws:iam::123456789012:user/moto") == ["implicitDeny", "allowed", "allowed"]
    assert decisions(user.role) == ["implicitDeny", "allowed", "implicitDeny"]


def test_quotas_are_listed_by_pages_and_got_by_code(standin: StandIn, user: User) -> None:
    standin.account.quotas = {f"ml.g6e.{n}xlarge": n for n in range(150)}
    quotas = user.session.client("service-quotas")
    pages = list(quotas.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker"))
    found = {quota["QuotaName"]: quota for page in pages for quota in page["Quotas"]}
    assert [len(page["Quotas"]) for page in pages] == [100, 50]
    code = found["ml.g6e.7xlarge for endpoint usage"]["QuotaCode"]
    assert quotas.get_service_quota(ServiceCode="sagemaker", QuotaCode=code)["Quota"]["Value"] == 7.0
    with pytest.raises(quotas.exceptions.NoSuchResourceException):
        quotas.get_service_quota(ServiceCode="sagemaker", QuotaCode="L-0")


def test_prices_are_filtered_by_attribute(standin: StandIn, user: User) -> None:
    for name in ("ml.g6e.xlarge", "ml.p5.48xlarge"):
        attributes = {"instanceName": name, "regionCode": "us-west-2"}
        standin.prices.append({"serviceCode": "AmazonSageMaker", "product": {"attributes": attributes}})
    filters: Any = [{"Type": "TERM_MATCH", "Field": "instanceName", "Value": "ml.p5.48xlarge"}]
    answer = user.session.client("pricing").get_products(ServiceCode="AmazonSageMaker", Filters=filters)
    (product,) = answer["PriceList"]
    assert json.loads(product)["product"]["attributes"]["instanceName"] == "ml.p5.48xlarge"


def test_the_hub_has_what_a_test_put_there(standin: StandIn, user: User) -> None:
    standin.put_hub_content("openai-gpt-oss-20b", {"HostingEcrUri": "x"}, HubContentVersion="1.2.0")
    hub: Any = {"HubName": "SageMakerPublicHub", "HubContentType": "Model"}
    content = user.sagemaker.describe_hub_content(**hub, HubContentName="openai-gpt-oss-20b")
    assert json.loads(content["HubContentDocument"]) == {"HostingEcrUri": "x"}
    assert content["HubContentArn"].endswith("/Model/openai-gpt-oss-20b/1.2.0")
    (summary,) = user.sagemaker.list_hub_contents(**hub, NameContains="gpt")["HubContentSummaries"]
    assert summary["HubContentName"] == "openai-gpt-oss-20b"
    with pytest.raises(user.sagemaker.exceptions.ResourceNotFound):
        user.sagemaker.describe_hub_content(**hub, HubContentName="nobody")


def test_metrics_have_percentiles(standin: StandIn, user: User) -> None:
    cloudwatch, now = user.session.client("cloudwatch"), datetime.now(UTC)
    dimensions = [{"Name": "EndpointName", "Value": "ep"}]
    data: Any = [
        {"MetricName": "ModelLatency", "Dimensions": dimensions, "Value": float(n), "Timestamp": now}
        for n in range(1, 101)
    ]
    standin.publish(data)
    metric: Any = {"Namespace": "AWS/SageMaker", "MetricName": "ModelLatency", "Dimensions": dimensions}
    queries: Any = [
        {"Id": stat.lower(), "MetricStat": {"Metric": metric, "Period": 3600, "Stat": stat}}
        for stat in ("p50", "p99", "Sum", "SampleCount")
    ]
    answer = cloudwatch.get_metric_data(
        MetricDataQueries=queries, StartTime=now - timedelta(minutes=30), EndTime=now + timedelta(minutes=30)
    )
    values = {result["Id"]: result["Values"] for result in answer["MetricDataResults"]}
    assert values == {"p50": [50.0], "p99": [99.0], "sum": [5050.0], "samplecount": [100.0]}


def track(user: User) -> Any:
    metric = {"PredefinedMetricType": CONCURRENCY}
    return user.scaling.put_scaling_policy(
        **VARIANT,
        PolicyName="p",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={"TargetValue": 8.0, "PredefinedMetricSpecification": metric},
    )


def test_a_policy_brings_alarms_that_go_with_it(standin: StandIn, user: User) -> None:
    user.deploy("ep")
    user.scaling.register_scalable_target(**VARIANT, MinCapacity=1, MaxCapacity=2, Tags={"owner": "me"})
    assert len(track(user)["Alarms"]) == 2
    (target,) = user.scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert user.scaling.list_tags_for_resource(ResourceARN=target["ScalableTargetARN"])["Tags"] == {"owner": "me"}
    (policy,) = user.scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    assert policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 8.0

    user.scaling.deregister_scalable_target(**VARIANT)

    assert [item for item in standin.leftovers() if item.startswith(("application-autoscaling", "cloudwatch"))] == []


def test_leftovers_name_what_the_product_makes(standin: StandIn, user: User) -> None:
    user.deploy("ep")
    user.scaling.register_scalable_target(**VARIANT, MinCapacity=1, MaxCapacity=2)
    user.session.client("cloudwatch").put_dashboard(DashboardName="d", DashboardBody="{}")
    user.session.client("ecr").create_repository(repositoryName="repo")
    assert standin.leftovers() == [
        "application-autoscaling target endpoint/ep/variant/only",
        "cloudwatch dashboard d",
        "ecr repository repo",
        "iam role execution",
        "logs group /aws/sagemaker/Endpoints/ep",
        "s3 bucket weights-us-west-2",
        "s3 object weights-us-west-2/target/config.json",
        "sagemaker endpoint ep",
        "sagemaker endpoint-config ep",
        "sagemaker model ep",
    ]


def test_a_metric_filter_that_is_put_again_is_replaced(user: User) -> None:
    user.logs.create_log_group(logGroupName="group")
    for pattern in ("old", "new"):
        transformation = {"metricName": "m", "metricNamespace": "n", "metricValue": "1"}
        user.logs.put_metric_filter(
            logGroupName="group", filterName="f", filterPattern=pattern, metricTransformations=[transformation]
        )
    (kept,) = user.logs.describe_metric_filters(logGroupName="group")["metricFilters"]
    assert kept["filterPattern"] == "new"
