"""The account: facts that were read, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pairs import HUB_RECIPE, recipe_with, write_hub_pair, write_pair, write_recipe

from toolkit.api.checking import check
from toolkit.errors import PlatformError, UsageError
from toolkit.findings import Finding
from toolkit.loading import load
from toolkit.platforms.sagemaker.account import account_findings
from toolkit.platforms.sagemaker.keys import ComponentSection
from toolkit.platforms.sagemaker.rules.checks.account import (
    AccountFacts,
    ExecutionRole,
    Permission,
    Quota,
    Subnet,
    Unread,
    check_account,
)
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ScalingSection

ME = "arn:aws:iam::123456789012:user/me"
ROLE = "arn:aws:iam::123456789012:role/execution"
GOOD = AccountFacts("us-west-2", ME, role=ExecutionRole(ROLE, exists=True, trusted=True))
NETWORK = "network: {subnets: [subnet-1, subnet-2], security_groups: [sg-1]}\n"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_recipe(tmp_path, HUB_RECIPE))


def with_keys(recipe: Recipe, text: str) -> Recipe:
    return load(write_recipe(recipe.path.parent, HUB_RECIPE + text))


def on_types(recipe: Recipe, types: str) -> Recipe:
    return load(write_recipe(recipe.path.parent, HUB_RECIPE.replace("[ml.g6.xlarge]", f"[{types}]")))


def findings(recipe: Recipe, facts: AccountFacts) -> list[Finding]:
    """All but the one that says who we are."""
    return [finding for finding in check_account(recipe, facts) if finding.code != "account.identity"]


def only(recipe: Recipe, facts: AccountFacts) -> Finding:
    (finding,) = findings(recipe, facts)
    return finding


def test_an_account_that_will_do(recipe: Recipe) -> None:
    (finding,) = check_account(recipe, GOOD)
    assert (finding.code, finding.severity) == ("account.identity", "info")
    assert finding.message == f"you are logged in as {ME} in us-west-2"


def test_nobody_is_logged_in(recipe: Recipe) -> None:
    problem = PlatformError("reading the AWS identity: Unable to locate credentials", hint="Log in: aws sso login")
    (finding,) = check_account(recipe, AccountFacts("us-west-2", problem=problem))
    assert (finding.code, finding.message, finding.hint) == ("account.credentials", problem.message, problem.hint)


def test_no_region(recipe: Recipe) -> None:
    (finding,) = check_account(recipe, AccountFacts(None))
    assert (finding.code, finding.severity, finding.path) == ("account.region", "error", "platform")
    assert finding.hint == "Add `region: us-west-2` to `platform`, or set AWS_DEFAULT_REGION."


def test_no_role(recipe: Recipe) -> None:
    finding = only(recipe, replace(GOOD, role=None))
    assert (finding.code, finding.path) == ("account.role", "platform.role")
    assert "write `role: create`" in finding.hint


def test_a_role_that_is_to_be_made(recipe: Recipe) -> None:
    text = HUB_RECIPE.replace("name: sagemaker,", "name: sagemaker, role: create,")
    assert not findings(load(write_recipe(recipe.path.parent, text)), replace(GOOD, role=None))


def test_a_role_that_does_not_exist(recipe: Recipe) -> None:
    finding = only(recipe, replace(GOOD, role=ExecutionRole(ROLE, exists=False)))
    assert (finding.code, finding.path) == ("account.role", "platform.role")
    assert finding.message == f"role {ROLE} does not exist"


def test_a_role_that_sagemaker_may_not_take(recipe: Recipe) -> None:
    finding = only(recipe, replace(GOOD, role=ExecutionRole(ROLE, exists=True, trusted=False)))
    assert finding.code == "account.role-trust"
    assert json.loads(finding.hint.partition(": ")[2])["Principal"] == {"Service": "sagemaker.amazonaws.com"}


def test_a_role_that_may_not_see_the_alarms_of_an_update(recipe: Recipe) -> None:
    denied = Permission(("cloudwatch:DescribeAlarms",), ("arn:aws:cloudwatch:us-west-2:1:alarm:ours",))
    finding = only(recipe, replace(GOOD, role=ExecutionRole(ROLE, exists=True, trusted=True, denied=denied)))
    assert (finding.code, finding.path) == ("account.role-permissions", "platform.role")
    assert json.loads(finding.hint.partition(": ")[2]) == denied.statement()


def test_a_role_that_we_may_not_look_at_is_taken_for_good(recipe: Recipe) -> None:
    assert not findings(recipe, replace(GOOD, role=ExecutionRole(ROLE)))


def test_a_role_that_cannot_be_looked_up(recipe: Recipe) -> None:
    problem = UsageError("platform.role: x is not the ARN of a role", hint="It looks like …")
    finding = only(recipe, replace(GOOD, role=None, role_problem=problem))
    assert (finding.code, finding.message, finding.hint) == ("account.role", problem.message, problem.hint)


def test_missing_permissions_come_as_the_policy_to_ask_for(recipe: Recipe) -> None:
    denied = (
        Permission(("sagemaker:CreateModel", "sagemaker:DeleteModel"), ("arn:aws:sagemaker:…:model/hub-*",)),
        Permission(("iam:PassRole",), (ROLE,), {"iam:PassedToService": "sagemaker.amazonaws.com"}),
    )
    finding = only(recipe, replace(GOOD, denied=denied))
    assert finding.code == "account.permissions"
    assert finding.message == "your policies do not allow sagemaker:CreateModel, sagemaker:DeleteModel, iam:PassRole"
    assert json.loads(finding.hint.partition(": ")[2])["Statement"] == [
        {
            "Effect": "Allow",
            "Action": ["sagemaker:CreateModel", "sagemaker:DeleteModel"],
            "Resource": ["arn:aws:sagemaker:…:model/hub-*"],
        },
        {
            "Effect": "Allow",
            "Action": ["iam:PassRole"],
            "Resource": [ROLE],
            "Condition": {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
        },
    ]


def test_permissions_that_the_simulator_cannot_judge_are_a_warning(recipe: Recipe) -> None:
    denied = (
        Permission(("iam:PassRole",), (ROLE,)),
        Permission(("kms:CreateGrant",), ("arn:aws:kms:…:key/ours",), unless="the key's own policy allows it"),
    )
    needed, doubtful = findings(recipe, replace(GOOD, denied=denied))
    assert (needed.severity, needed.message) == ("error", "your policies do not allow iam:PassRole")
    assert doubtful.severity == "warning"
    assert doubtful.message == (
        "your policies do not allow kms:CreateGrant. That is fine if the key's own policy allows it"
    )


@pytest.mark.parametrize(("region", "is_refused"), [("eu-west-3", True), ("eu-west-1", False)])
def test_the_region_of_the_session_may_refuse_to_scale_to_zero(recipe: Recipe, region: str, is_refused: bool) -> None:
    zero = recipe_with(recipe, inference_component=ComponentSection(), scaling=ScalingSection(min_instances=0))
    codes = [finding.code for finding in findings(zero, replace(GOOD, region=region))]
    assert ("sagemaker.scale-to-zero" in codes) is is_refused


@pytest.mark.parametrize(("count", "end"), [(5, "s3:Action3, s3:Action4"), (7, "s3:Action4 and 2 more")])
def test_of_many_missing_permissions_the_first_are_named(recipe: Recipe, count: int, end: str) -> None:
    denied = (Permission(tuple(f"s3:Action{n}" for n in range(count)), ("*",)),)
    assert only(recipe, replace(GOOD, denied=denied)).message.endswith(end)


@pytest.mark.parametrize(
    ("value", "in_use", "message"),
    [
        (0, 0, "is 0; 1 are needed"),
        (2, 2, "is 2, of which other endpoints use 2; 1 are needed"),
        (1, None, None),
        (2, 1, None),
    ],
)
def test_a_quota(recipe: Recipe, value: float, in_use: int | None, message: str | None) -> None:
    found = findings(recipe, replace(GOOD, quotas=(Quota("ml.g6.xlarge", value, "L-1", in_use),)))
    if message is None:
        assert not found
        return
    (finding,) = found
    assert (finding.code, finding.severity, finding.path) == ("account.quota", "error", "platform.instance_types.0")
    assert finding.message == f"the quota `ml.g6.xlarge for endpoint usage` in us-west-2 {message}"
    assert finding.hint == (
        "Request more: aws service-quotas request-service-quota-increase --service-code sagemaker "
        f"--quota-code L-1 --desired-value {1 + (in_use or 0)} --region us-west-2"
    )


def test_a_quota_of_a_type_that_need_not_be_taken(recipe: Recipe) -> None:
    several = on_types(recipe, "ml.g6.xlarge, ml.g6e.xlarge")
    none, one = Quota("ml.g6.xlarge", 0, "L-1"), Quota("ml.g6e.xlarge", 1, "L-2")
    assert only(several, replace(GOOD, quotas=(none, one))).severity == "warning"
    both = findings(several, replace(GOOD, quotas=(none, replace(one, value=0))))
    assert [finding.severity for finding in both] == ["error", "error"]


def test_a_quota_that_scaling_out_would_reach(recipe: Recipe) -> None:
    scaled = with_keys(recipe, "scaling: {min_instances: 2, max_instances: 4}\n")
    finding = only(scaled, replace(GOOD, quotas=(Quota("ml.g6.xlarge", 3, "L-1", 0),)))
    assert (finding.code, finding.severity) == ("account.quota", "warning")
    assert finding.message.endswith("is 3: scaling out to 4 instances would stop at the quota")
    assert "--desired-value 4 " in finding.hint


def test_an_experiment_needs_the_instances_of_both_variants(recipe: Recipe) -> None:
    shadow = with_keys(recipe, "rollout: {shadow: true}\n")
    assert only(shadow, replace(GOOD, quotas=(Quota("ml.g6.xlarge", 1, "L-1"),))).message.endswith("is 1; 2 are needed")


def test_a_type_that_is_not_in_the_region(recipe: Recipe) -> None:
    finding = only(on_types(recipe, "ml.p6-b200.48xlarge"), GOOD)
    assert (finding.code, finding.severity) == ("sagemaker.region", "warning")
    assert finding.message.startswith("AWS lists no price for ml.p6-b200.48xlarge endpoints in us-west-2")
    assert "us-east-1" in finding.hint


def test_an_image_that_the_registry_lacks(recipe: Recipe) -> None:
    uri = "763104351884.dkr.ecr.us-west-2.amazonaws.com/vllm:1"
    finding = only(recipe, replace(GOOD, missing_image=uri))
    assert (finding.code, finding.path) == ("account.image", "engine.version")
    assert finding.message == f"image {uri} does not exist in its registry"


def test_a_base_that_the_registry_lacks(recipe: Recipe) -> None:
    own = with_keys(recipe, "container: {base: 123456789012.dkr.ecr.us-west-2.amazonaws.com/ours:1}\n")
    finding = only(own, replace(GOOD, missing_image="123456789012.dkr.ecr.us-west-2.amazonaws.com/ours:1"))
    assert finding.path == "container.base"


def test_jumpstart_does_not_serve_the_drafter(recipe: Recipe) -> None:
    problem = UsageError("JumpStart has no model target in us-west-2", hint="Did you mean …?")
    finding = only(recipe, replace(GOOD, jumpstart_problem=problem))
    assert (finding.code, finding.path, finding.message) == ("account.jumpstart", "speculation.model", problem.message)


def test_a_region_without_images(recipe: Recipe) -> None:
    problem = UsageError("AWS has no vLLM images in us-gov-east-1", hint="Set platform.region to one of: …")
    finding = only(recipe, replace(GOOD, image_problem=problem))
    assert (finding.code, finding.message, finding.hint) == ("account.image", problem.message, problem.hint)


@pytest.mark.parametrize(
    ("region", "code", "message"),
    [
        ("", "account.bucket", "the bucket of s3://mine/target/ does not exist"),
        (
            "eu-west-1",
            "account.bucket-region",
            "s3://mine/target/ is in eu-west-1, but the endpoint would be in us-west-2",
        ),
        ("us-west-2", None, None),
    ],
)
def test_where_a_bucket_is(recipe: Recipe, region: str, code: str | None, message: str | None) -> None:
    text = HUB_RECIPE.replace("model: org/target", "model: s3://mine/target/")
    in_s3 = load(write_recipe(recipe.path.parent, text))
    found = findings(in_s3, replace(GOOD, buckets={"s3://mine/target/": region}))
    assert [(f.code, f.message, f.path) for f in found] == ([(code, message, "target.model")] if code else [])


def subnet(name: str, *reaches: str, zone: str = "us-west-2a", vpc: str = "vpc-1") -> Subnet:
    return Subnet(name, vpc, zone, frozenset(reaches))


OPEN = (subnet("subnet-1", "internet"), subnet("subnet-2", "internet", zone="us-west-2b"))


def test_subnets_that_reach_the_internet(recipe: Recipe) -> None:
    assert not findings(with_keys(recipe, NETWORK), replace(GOOD, subnets=OPEN))


def test_subnets_that_do_not_exist(recipe: Recipe) -> None:
    facts = replace(GOOD, subnets=OPEN[:1], missing_subnets=("subnet-2",))
    finding = only(with_keys(recipe, NETWORK), facts)
    assert (finding.code, finding.message) == ("account.subnets", "subnet subnet-2 does not exist in us-west-2")


def test_subnets_of_one_zone(recipe: Recipe) -> None:
    facts = replace(GOOD, subnets=(OPEN[0], replace(OPEN[1], zone="us-west-2a")))
    finding = only(with_keys(recipe, NETWORK), facts)
    assert (finding.code, finding.severity) == ("account.subnets", "warning")


def test_subnets_of_two_vpcs(recipe: Recipe) -> None:
    facts = replace(GOOD, subnets=(OPEN[0], replace(OPEN[1], vpc="vpc-2")))
    assert only(with_keys(recipe, NETWORK), facts).message == "the subnets are in 2 VPCs: vpc-1, vpc-2"


def test_closed_subnets_without_an_endpoint_for_s3(recipe: Recipe) -> None:
    closed = subnet("subnet-1", "ecr.api", "ecr.dkr", "logs")
    finding = only(with_keys(recipe, NETWORK), replace(GOOD, subnets=(closed, OPEN[1])))
    assert (finding.code, finding.severity, finding.path) == ("account.vpc-endpoints", "error", "network.subnets")
    assert finding.message == "subnet-1 can reach neither the internet nor S3, where the weights are"
    assert "--vpc-id vpc-1 --service-name com.amazonaws.us-west-2.s3 " in finding.hint


def test_closed_subnets_with_an_endpoint_for_s3_only(recipe: Recipe) -> None:
    finding = only(with_keys(recipe, NETWORK), replace(GOOD, subnets=(subnet("subnet-1", "s3"), OPEN[1])))
    assert (finding.code, finding.severity) == ("account.vpc-endpoints", "info")
    assert finding.message == "subnet-1 has no VPC endpoint for ecr.api, ecr.dkr, logs"
    assert "unverified" in finding.hint


def test_closed_subnets_and_weights_from_the_hub(recipe: Recipe) -> None:
    text = HUB_RECIPE.replace("name: sagemaker,", "name: sagemaker, weights: hub,") + NETWORK
    pulling = load(write_recipe(recipe.path.parent, text))
    closed = subnet("subnet-1", "s3", "ecr.api", "ecr.dkr", "logs")
    finding = only(pulling, replace(GOOD, subnets=(closed, OPEN[1])))
    assert (finding.code, finding.severity) == ("account.internet", "error")


def test_subnets_whose_routes_we_may_not_see(recipe: Recipe) -> None:
    unseen = tuple(replace(item, reaches=None) for item in OPEN)
    assert not findings(with_keys(recipe, NETWORK), replace(GOOD, subnets=unseen))


def test_the_role_of_autoscaling_that_is_yet_to_be_made(recipe: Recipe) -> None:
    finding = only(recipe, replace(GOOD, scaling_role=False))
    assert (finding.code, finding.severity) == ("account.service-linked-role", "info")
    assert "--aws-service-name sagemaker.application-autoscaling.amazonaws.com" in finding.hint


def test_what_could_not_be_read_is_said(recipe: Recipe) -> None:
    unread = Unread("the quota of instances: not authorized (AccessDenied)", "servicequotas:ListServiceQuotas")
    finding = only(recipe, replace(GOOD, unread=(unread,)))
    assert (finding.code, finding.severity) == ("account.unread", "info")
    assert finding.message == "not checked: the quota of instances: not authorized (AccessDenied)"
    assert finding.hint == "Reading it needs servicequotas:ListServiceQuotas."


def test_findings_on_the_account_stand_among_the_others_with_their_lines(tmp_path: Path) -> None:
    recipe = write_hub_pair(tmp_path)
    quotas = (Quota("ml.g6.xlarge", 0, "L-1", 0),)
    found = {
        finding.code: finding
        for finding in check(recipe, account=lambda it: check_account(it, replace(GOOD, quotas=quotas))).findings
    }
    assert found["account.quota"].line == 11
    assert found["account.identity"].line is None


def test_a_recipe_with_errors_of_its_own_is_not_looked_up(tmp_path: Path) -> None:
    def look(recipe: Recipe) -> list[Finding]:
        raise AssertionError("nothing to look up")

    assert not check(write_recipe(tmp_path, HUB_RECIPE.replace("p-eagle", "peagle")), account=look)


def test_a_local_recipe_needs_no_account(tmp_path: Path) -> None:
    (finding,) = check(write_pair(tmp_path), account=account_findings).findings
    assert (finding.code, finding.severity) == ("account.none", "info")
