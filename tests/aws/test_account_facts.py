"""What is read of an account, from the first question to the findings."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from jumpstart_entries import GPT_OSS, gpt_oss
from pairs import HUB_RECIPE, write_recipe
from standin import ACCOUNT, StandIn
from standin_user import EVERYTHING

from toolkit.errors import PlatformError
from toolkit.loading import load
from toolkit.platforms.sagemaker.account import account_facts, examine
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.permissions import SCALING_ROLE
from toolkit.platforms.sagemaker.rules.checks.account import AccountFacts, Quota, check_account
from toolkit.recipe.recipe import Recipe

CREATE = HUB_RECIPE.replace("name: sagemaker,", "name: sagemaker, role: create,")
NOWHERE = Path("/nowhere")
IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/vllm:server-sagemaker-cuda-v2.6"


@pytest.fixture
def clients(standin: StandIn) -> Clients:
    return Clients(standin.session(), attempts=1)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_recipe(tmp_path, CREATE))


@pytest.fixture(autouse=True)
def quotas(standin: StandIn) -> None:
    standin.account.quotas = {"ml.g6.xlarge": 2}


def written(root: Path, old: str = "", new: str = "", more: str = "") -> Recipe:
    return load(write_recipe(root, CREATE.replace(old, new) + more))


def read(clients: Clients, recipe: Recipe, **environ: str) -> AccountFacts:
    return examine(clients, recipe, environ=environ, studio_metadata=NOWHERE)


def codes(facts: AccountFacts, recipe: Recipe) -> list[str]:
    return [finding.code for finding in check_account(recipe, facts) if finding.severity != "info"]


def make_endpoint(clients: Clients, name: str, instance_type: str, count: int) -> None:
    """An endpoint that is none of ours, in service."""
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = clients.iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]["Arn"]
    clients.iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=json.dumps(EVERYTHING))
    clients.sagemaker.create_model(ModelName=name, ExecutionRoleArn=role, PrimaryContainer={"Image": IMAGE})
    variant: Any = {
        "VariantName": "only",
        "ModelName": name,
        "InitialInstanceCount": count,
        "InstanceType": instance_type,
    }
    clients.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    clients.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    clients.sagemaker.describe_endpoint(EndpointName=name)


def test_an_account_that_will_do(clients: Clients, recipe: Recipe) -> None:
    facts = read(clients, recipe)
    assert (facts.region, facts.identity) == ("us-west-2", f"arn:aws:sts::{ACCOUNT}:user/moto")
    assert [(quota.instance_type, quota.value, quota.in_use) for quota in facts.quotas] == [("ml.g6.xlarge", 2.0, 0)]
    assert not facts.unread
    assert not codes(facts, recipe)


def test_nothing_is_changed(standin: StandIn, clients: Clients, recipe: Recipe) -> None:
    standin.calls.clear()
    read(clients, recipe)
    reading = ("Get", "List", "Describe", "Head", "Simulate", "BatchGet")
    assert [str(call) for call in standin.calls if not call.operation.startswith(reading)] == []


def test_every_refusal_is_noted_and_none_is_fatal(standin: StandIn, clients: Clients, tmp_path: Path) -> None:
    more = "network: {subnets: [subnet-1], security_groups: [sg-1]}\nscaling: {max_instances: 3}\n"
    recipe = written(tmp_path, "role: create", f"role: arn:aws:iam::{ACCOUNT}:role/execution", more)
    refused = ("GetRole", "SimulatePrincipalPolicy", "BatchGetImage", "DescribeSubnets", "ListServiceQuotas")
    for operation in refused:
        standin.faults.fail(operation, "AccessDenied", status=403, times=9)
    facts = read(clients, recipe)
    assert {item.action for item in facts.unread} == {
        "iam:GetRole",
        "iam:SimulatePrincipalPolicy",
        "ecr:BatchGetImage",
        "ec2:DescribeSubnets",
        "servicequotas:ListServiceQuotas and servicequotas:ListAWSDefaultServiceQuotas",
    }
    assert not codes(facts, recipe)
    asked = [call.operation for call in standin.calls]
    assert asked.count("SimulatePrincipalPolicy") == 1, "the next would be refused likewise"


def test_nobody_is_logged_in(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    (finding,) = check_account(recipe, account_facts(recipe))
    assert (finding.code, finding.severity) == ("account.credentials", "error")
    assert finding.message == "reading the AWS identity: Unable to locate credentials"
    assert finding.hint.startswith("Log in: ")


def test_a_profile_that_does_not_exist(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    (finding,) = check_account(recipe, account_facts(recipe))
    assert (finding.code, finding.message) == (
        "account.credentials",
        "The config profile (production) could not be found",
    )


def test_credentials_that_have_expired(standin: StandIn, clients: Clients, recipe: Recipe) -> None:
    standin.faults.expire_token()
    (finding,) = check_account(recipe, read(clients, recipe))
    assert finding.code == "account.credentials"
    assert "expired" in finding.message


def test_aws_cannot_be_reached(recipe: Recipe) -> None:
    session = boto3.Session("testing", "testing", region_name="us-west-2")
    clients = Clients(session, attempts=1)
    with Stubber(clients.sts), pytest.raises(PlatformError, match="reading the AWS identity"):
        read(clients, recipe)


def test_no_region(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    assert account_facts(recipe) == AccountFacts(None)


def test_a_role_that_does_not_exist(clients: Clients, tmp_path: Path) -> None:
    recipe = written(tmp_path, "role: create", f"role: arn:aws:iam::{ACCOUNT}:role/execution")
    assert codes(read(clients, recipe), recipe) == ["account.role"]


def test_a_role_of_another_account(clients: Clients, tmp_path: Path) -> None:
    recipe = written(tmp_path, "role: create", "role: arn:aws:iam::210987654321:role/execution")
    facts = read(clients, recipe)
    assert facts.role_problem
    assert facts.role_problem.message.endswith(f"is not a role of account {ACCOUNT}")


def test_a_role_that_sagemaker_may_not_take(clients: Clients, tmp_path: Path) -> None:
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    clients.iam.create_role(RoleName="execution", AssumeRolePolicyDocument=document)
    recipe = written(tmp_path, "role: create", "role: execution")
    assert codes(read(clients, recipe), recipe) == ["account.role-trust"]


def test_permissions_that_are_missing(standin: StandIn, clients: Clients, recipe: Recipe) -> None:
    standin.account.denied = {"sagemaker:CreateEndpoint", "iam:PassRole"}
    facts = read(clients, recipe)
    assert [item.actions for item in facts.denied] == [("sagemaker:CreateEndpoint",), ("iam:PassRole",)]
    endpoint, role = facts.denied
    assert f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:endpoint/hub" in endpoint.resources
    assert f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:endpoint-config/hub-*" in endpoint.resources
    assert role.resources == (
        f"arn:aws:iam::{ACCOUNT}:role/toolkit-hub-us-west-2",
        f"arn:aws:iam::{ACCOUNT}:role/toolkit-hub-baseline-us-west-2",
    )


def test_the_simulator_is_asked_about_examples_of_patterns(standin: StandIn, clients: Clients, recipe: Recipe) -> None:
    read(clients, recipe)
    asked = [call.request for call in standin.calls if call.operation == "SimulatePrincipalPolicy"]
    assert {arn for request in asked for arn in request["ResourceArns"] if "*" in arn} == {"*"}
    (passing,) = [request for request in asked if request["ActionNames"] == ["iam:PassRole"]]
    assert passing["ContextEntries"] == [
        {
            "ContextKeyName": "iam:PassedToService",
            "ContextKeyValues": ["sagemaker.amazonaws.com"],
            "ContextKeyType": "string",
        }
    ]


def test_quotas_that_were_never_changed_are_among_the_defaults(clients: Clients, tmp_path: Path) -> None:
    recipe = written(tmp_path, "[ml.g6.xlarge]", "[ml.g6.xlarge, ml.g6e.xlarge]")
    g6, g6e = "ml.g6.xlarge for endpoint usage", "ml.g6e.xlarge for endpoint usage"
    with Stubber(clients.service_quotas) as stub:
        other = {"QuotaName": "other", "QuotaCode": "L-0", "Value": 9.0}
        stub.add_response("list_service_quotas", {"Quotas": [other], "NextToken": "more"})
        own = {"QuotaName": g6, "QuotaCode": "L-1", "Value": 3.0}
        without_value = {"QuotaName": g6e, "QuotaCode": "L-2"}
        stub.add_response("list_service_quotas", {"Quotas": [own, without_value]})
        defaults = [{**own, "Value": 1.0}, {"QuotaName": g6e, "QuotaCode": "L-2", "Value": 0.0}]
        stub.add_response("list_aws_default_service_quotas", {"Quotas": defaults})
        facts = read(clients, recipe)
    assert facts.quotas == (Quota("ml.g6.xlarge", 3.0, "L-1", 0), Quota("ml.g6e.xlarge", 0.0, "L-2", 0))


def test_a_quota_that_is_not_listed(standin: StandIn, clients: Clients, recipe: Recipe) -> None:
    standin.account.quotas = {"ml.g6e.xlarge": 2}
    facts = read(clients, recipe)
    assert not facts.quotas
    message = "Service Quotas lists no quota `ml.g6.xlarge for endpoint usage`"
    assert [item.message for item in facts.unread] == [message]


def test_instances_of_other_endpoints_count(clients: Clients, recipe: Recipe, standin: StandIn) -> None:
    standin.account.iam.late = 0.0
    make_endpoint(clients, "theirs", "ml.g6.xlarge", 1)
    make_endpoint(clients, "others", "ml.g6e.xlarge", 4)
    make_endpoint(clients, "hub", "ml.g6.xlarge", 1)  # the recipe's own
    facts = read(clients, recipe)
    assert [quota.in_use for quota in facts.quotas] == [1]
    assert not codes(facts, recipe)
    clients.sagemaker.delete_endpoint(EndpointName="hub")
    clients.sagemaker.describe_endpoint(EndpointName="hub")
    make_endpoint(clients, "theirs-too", "ml.g6.xlarge", 1)
    assert codes(read(clients, recipe), recipe) == ["account.quota"]


def test_an_image_that_the_registry_lacks(standin: StandIn, clients: Clients, tmp_path: Path) -> None:
    standin.account.images.clear()
    recipe = written(tmp_path)
    facts = read(clients, recipe)
    assert facts.missing_image == IMAGE
    assert codes(facts, recipe) == ["account.image"]


def test_a_region_without_images(standin: StandIn, tmp_path: Path) -> None:
    recipe = written(tmp_path)
    facts = read(Clients(standin.session("us-isob-east-1"), attempts=1), recipe)
    assert facts.image_problem
    assert "AWS has no known vllm images in us-isob-east-1" in facts.image_problem.message


@pytest.mark.parametrize(
    ("bucket", "expected"),
    [("here", []), ("elsewhere", ["account.bucket-region"]), ("nowhere", ["account.bucket"])],
)
def test_where_a_bucket_is(
    standin: StandIn, clients: Clients, tmp_path: Path, bucket: str, expected: list[str]
) -> None:
    for name, region in (("here", "us-west-2"), ("elsewhere", "eu-west-1")):
        location: Any = {"LocationConstraint": region}
        s3 = standin.session(region).client("s3")
        s3.create_bucket(Bucket=name, CreateBucketConfiguration=location)
    recipe = written(tmp_path, "model: org/target", f"model: s3://{bucket}/target/")
    assert codes(read(clients, recipe), recipe) == expected


class Vpc:
    """A VPC with two subnets in two zones; their routes and endpoints are up to the test."""

    def __init__(self, clients: Clients) -> None:
        self.ec2 = clients.ec2
        self.id = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.subnets = [self._subnet(number) for number in range(2)]

    def recipe(self, root: Path) -> Recipe:
        return written(root, more=f"network: {{subnets: [{', '.join(self.subnets)}], security_groups: [sg-1]}}\n")

    def route(self, **target: str) -> str:
        """The main route table leads to everywhere through `target`; its id."""
        filters = [{"Name": "vpc-id", "Values": [self.id]}]
        table: str = self.ec2.describe_route_tables(Filters=filters)["RouteTables"][0]["RouteTableId"]
        if target:
            self.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **target)
        return table

    def internet_gateway(self) -> str:
        gateway: str = self.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        self.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=self.id)
        return gateway

    def nat_gateway(self) -> str:
        address = self.ec2.allocate_address(Domain="vpc")["AllocationId"]
        gateway = self.ec2.create_nat_gateway(SubnetId=self.subnets[0], AllocationId=address)
        return str(gateway["NatGateway"]["NatGatewayId"])

    def _subnet(self, number: int) -> str:
        block, zone = f"10.0.{number}.0/24", f"us-west-2{'ab'[number]}"
        subnet = self.ec2.create_subnet(VpcId=self.id, CidrBlock=block, AvailabilityZone=zone)
        return str(subnet["Subnet"]["SubnetId"])


def test_subnets_with_a_nat_gateway(clients: Clients, tmp_path: Path) -> None:
    vpc = Vpc(clients)
    vpc.route(NatGatewayId=vpc.nat_gateway())
    facts = read(clients, vpc.recipe(tmp_path))
    assert [(item.id, item.vpc, item.zone, item.reaches) for item in facts.subnets] == [
        (vpc.subnets[0], vpc.id, "us-west-2a", frozenset({"internet"})),
        (vpc.subnets[1], vpc.id, "us-west-2b", frozenset({"internet"})),
    ]


def test_an_internet_gateway_leads_nowhere_without_public_addresses(clients: Clients, tmp_path: Path) -> None:
    vpc = Vpc(clients)
    vpc.route(GatewayId=vpc.internet_gateway())
    recipe = vpc.recipe(tmp_path)
    assert codes(read(clients, recipe), recipe) == ["account.vpc-endpoints"]


def test_endpoints_of_a_closed_vpc(clients: Clients, tmp_path: Path) -> None:
    vpc = Vpc(clients)
    main = vpc.route()
    table = vpc.ec2.create_route_table(VpcId=vpc.id)["RouteTable"]["RouteTableId"]
    vpc.ec2.associate_route_table(RouteTableId=table, SubnetId=vpc.subnets[1])
    service = "com.amazonaws.us-west-2"
    gateway = {"VpcEndpointType": "Gateway", "RouteTableIds": [main]}
    vpc.ec2.create_vpc_endpoint(VpcId=vpc.id, ServiceName=f"{service}.s3", **gateway)
    vpc.ec2.create_vpc_endpoint(VpcId=vpc.id, ServiceName=f"{service}.logs", VpcEndpointType="Interface")
    recipe = vpc.recipe(tmp_path)
    facts = read(clients, recipe)
    assert [item.reaches for item in facts.subnets] == [frozenset({"s3", "logs"}), frozenset({"logs"})]
    assert codes(facts, recipe) == ["account.vpc-endpoints"]


def test_a_subnet_that_does_not_exist(clients: Clients, tmp_path: Path) -> None:
    vpc = Vpc(clients)
    there, vpc.subnets[1] = vpc.subnets[0], "subnet-gone"
    facts = read(clients, vpc.recipe(tmp_path))
    assert ([item.id for item in facts.subnets], facts.missing_subnets) == ([there], ("subnet-gone",))


def test_routes_that_we_may_not_see(standin: StandIn, clients: Clients, tmp_path: Path) -> None:
    vpc = Vpc(clients)
    standin.faults.fail("DescribeRouteTables", "UnauthorizedOperation", status=403)
    facts = read(clients, vpc.recipe(tmp_path))
    assert [item.reaches for item in facts.subnets] == [None, None]


def test_the_role_of_autoscaling(clients: Clients, tmp_path: Path) -> None:
    recipe = written(tmp_path, more="scaling: {max_instances: 2}\n")
    assert read(clients, recipe).scaling_role is False
    clients.iam.create_role(RoleName=SCALING_ROLE, AssumeRolePolicyDocument='{"Statement": []}')
    assert read(clients, recipe).scaling_role is True


def test_without_the_role_of_autoscaling_one_must_be_allowed_to_make_it(
    standin: StandIn, clients: Clients, tmp_path: Path
) -> None:
    standin.account.denied = {"iam:CreateServiceLinkedRole"}
    assert codes(read(clients, written(tmp_path)), written(tmp_path)) == []
    recipe = written(tmp_path, more="scaling: {max_instances: 2}\n")
    assert codes(read(clients, recipe), recipe) == ["account.permissions"]


JUMPSTART = f"""\
name: gpt-oss
target: {{model: "jumpstart:{GPT_OSS}"}}
speculation: {{method: p-eagle, model: "jumpstart:{GPT_OSS}"}}
engine: {{version: 0.18.0, max_num_batched_tokens: 16384}}
platform: {{name: sagemaker, role: create}}
"""


@pytest.fixture
def jumpstart(standin: StandIn, tmp_path: Path) -> Recipe:
    """A recipe that leaves the instance type to JumpStart, which has the model."""
    entry = gpt_oss()
    standin.put_hub_content(GPT_OSS, entry["HubContentDocument"], HubContentVersion=entry["HubContentVersion"])
    standin.account.quotas = {"ml.g7e.2xlarge": 1}
    return load(write_recipe(tmp_path, JUMPSTART))


def test_a_model_of_jumpstart_on_the_instance_that_it_chooses(clients: Clients, jumpstart: Recipe) -> None:
    facts = read(clients, jumpstart)
    assert [quota.instance_type for quota in facts.quotas] == ["ml.g7e.2xlarge"]
    assert not facts.unread
    assert codes(facts, jumpstart) == []


def test_the_quota_of_jumpstarts_instance_type_is_judged(standin: StandIn, clients: Clients, jumpstart: Recipe) -> None:
    standin.account.quotas = {"ml.g7e.2xlarge": 0}
    assert codes(read(clients, jumpstart), jumpstart) == ["account.quota"]


def test_a_model_that_jumpstart_does_not_have(clients: Clients, tmp_path: Path) -> None:
    recipe = load(write_recipe(tmp_path, JUMPSTART))
    (finding,) = [item for item in check_account(recipe, read(clients, recipe)) if item.severity == "error"]
    assert (finding.code, finding.path) == ("account.jumpstart", "target.model")
    assert finding.message == f"JumpStart has no model {GPT_OSS} in us-west-2"


def test_an_entry_of_jumpstart_that_we_may_not_read(standin: StandIn, clients: Clients, jumpstart: Recipe) -> None:
    standin.account.denied = {"sagemaker:DescribeHubContent"}
    facts = read(clients, jumpstart)
    assert [item.action for item in facts.unread] == ["sagemaker:DescribeHubContent"]
    assert codes(facts, jumpstart) == ["account.permissions"]


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ("custom", []),
        ("{base: docker.io/vllm/vllm-openai:v1}", []),
        (f"{{base: '{IMAGE}'}}", []),
        (f"{{base: '{IMAGE}.1'}}", ["account.image"]),
    ],
)
def test_of_an_image_that_is_yet_to_be_built_its_base_must_be_there(
    clients: Clients, tmp_path: Path, container: str, expected: list[str]
) -> None:
    recipe = written(tmp_path, more=f"container: {container}\n")
    assert codes(read(clients, recipe), recipe) == expected


def test_autoscaling_that_the_recipe_no_longer_has_must_be_removable(
    standin: StandIn, clients: Clients, recipe: Recipe
) -> None:
    standin.account.denied = {"application-autoscaling:DeregisterScalableTarget"}
    assert read(clients, recipe).denied == ()

    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/hub/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        "MinCapacity": 1,
        "MaxCapacity": 3,
        "RoleARN": f"arn:aws:iam::{ACCOUNT}:role/{SCALING_ROLE}",
        "CreationTime": datetime(2026, 11, 1),
    }
    with Stubber(clients.application_autoscaling) as stubbed:
        stubbed.add_response("describe_scalable_targets", {"ScalableTargets": [target]})
        (denied,) = read(clients, recipe).denied
    assert denied.actions == ("application-autoscaling:DeregisterScalableTarget",)


PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/ours"
RESERVED = f"name: sagemaker, role: create, capacity_reservation: '{PLAN}',"


def plan_findings(clients: Clients, recipe: Recipe) -> list[tuple[str, str]]:
    found = check_account(recipe, read(clients, recipe))
    return [(item.path, item.message) for item in found if item.code == "account.training-plan"]


@pytest.mark.parametrize(
    ("offering", "training", "endpoint"),
    [
        ("jobs", "", "is for training jobs, not for endpoints"),
        ("endpoints", "is for endpoints, not for training jobs", ""),
        ("jobs-later", "", "is for training jobs, not for endpoints"),
        ("endpoints-later", "is for endpoints, not for training jobs", "is Scheduled"),
        ("", "does not exist", "does not exist"),
    ],
)
def test_a_plan_is_for_one_use(clients: Clients, tmp_path: Path, offering: str, training: str, endpoint: str) -> None:
    """A job may wait until its plan begins; an endpoint may not (developer guide)."""
    if offering:
        clients.sagemaker.create_training_plan(TrainingPlanName="ours", TrainingPlanOfferingId=offering)
    job = f"training: {{data: [hf://org/chats], instance_type: ml.p5.48xlarge, training_plan: '{PLAN}'}}\n"
    recipe = load(write_recipe(tmp_path, CREATE + job))
    expected = [("training.training_plan", f"training plan ours {training}")] if training else []
    assert plan_findings(clients, recipe) == expected
    served = CREATE.replace("name: sagemaker, role: create,", RESERVED).replace("ml.g6.xlarge", "ml.p5.48xlarge")
    expected = [("platform.capacity_reservation", f"training plan ours {endpoint}")] if endpoint else []
    assert plan_findings(clients, load(write_recipe(tmp_path, served))) == expected


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("instance_type: ml.p4d.24xlarge", "is of ml.p5.48xlarge, not of ml.p4d.24xlarge"),
        ("instance_type: ml.p5.48xlarge, instance_count: 2", "has 1 ml.p5.48xlarge, and 2 are wanted"),
    ],
)
def test_a_plan_has_machines_of_one_type(clients: Clients, tmp_path: Path, keys: str, said: str) -> None:
    clients.sagemaker.create_training_plan(TrainingPlanName="ours", TrainingPlanOfferingId="jobs")
    job = f"training: {{data: [hf://org/chats], {keys}, training_plan: '{PLAN}'}}\n"
    found = plan_findings(clients, load(write_recipe(tmp_path, CREATE + job)))
    assert found == [("training.training_plan", f"training plan ours {said}")]


def test_a_plan_that_may_not_be_read_is_said_to_be_unread(standin: StandIn, clients: Clients, tmp_path: Path) -> None:
    standin.account.denied = {"sagemaker:DescribeTrainingPlan"}
    job = f"training: {{data: [hf://org/chats], instance_type: ml.p5.48xlarge, training_plan: '{PLAN}'}}\n"
    recipe = load(write_recipe(tmp_path, CREATE + job))
    facts = read(clients, recipe)
    assert [item.action for item in facts.unread] == ["sagemaker:DescribeTrainingPlan"]
    assert "account.training-plan" not in codes(facts, recipe)
