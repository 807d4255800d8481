"""The list of what the caller must be allowed to do, held against the calls that are really made."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_kinds import desired
from pairs import HUB_RECIPE, write_pair, write_recipe
from rights import action_of, not_allowed
from standin import ACCOUNT, StandIn

from toolkit.apply.executor import complete, make, remove
from toolkit.apply.progress import Silent
from toolkit.apply.waiter import wait_in_service
from toolkit.loading import load
from toolkit.planning.kinds import configs
from toolkit.planning.planner import make_plan
from toolkit.planning.record import Record
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.codebuild_project import ensure_project
from toolkit.platforms.sagemaker.image_project import IMAGE_PROJECT
from toolkit.platforms.sagemaker.permissions import permissions
from toolkit.platforms.sagemaker.platform import SageMakerPlatform
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.recipe.recipe import Recipe
from toolkit.registry import rules_of

CREATE = HUB_RECIPE.replace("name: sagemaker,", "name: sagemaker, role: create,").replace("org/", "./")
SCALED = CREATE + "scaling: {max_instances: 3}\n"
UNWATCHED = CREATE + "observability: {alarms: false, dashboard: false}\n"
COMPONENT = CREATE.replace("role: create", "inference_component: {}, role: create") + (
    "scaling: {min_instances: 0, max_instances: 3}\n"
)
HERE = Account(ACCOUNT, "us-west-2")
# What AWS checks without a call of ours, and what an update, a long upload, or other commands call.
WITHOUT_A_CALL = {
    "application-autoscaling:TagResource",
    "cloudwatch:GetMetricData",
    "cloudwatch:ListMetrics",
    "cloudwatch:TagResource",
    "iam:GetRole",
    "iam:PassRole",
    "iam:TagRole",
    "logs:DeleteLogGroup",
    "logs:TagResource",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
    "s3:PutBucketPolicy",  # only over TLS, which the stand-in does not speak
    "sagemaker:AddTags",
    "sagemaker:CallWithBearerToken",
    "sagemaker:CreateModelPackage",
    "sagemaker:CreateModelPackageGroup",
    "sagemaker:DescribeModelPackage",
    "sagemaker:DescribeModelPackageGroup",
    "sagemaker:InvokeEndpoint",
    "sagemaker:InvokeEndpointWithResponseStream",
    "sagemaker:ListModelPackages",
    "sagemaker:UpdateEndpoint",
    "sagemaker:UpdateEndpointWeightsAndCapacities",
    "sagemaker:UpdateModelPackage",
}


def recipe_of(root: Path, text: str) -> Recipe:
    return load(write_recipe(write_pair(root).parent, text))


def listed(recipe: Recipe) -> set[str]:
    return {action for item in permissions(recipe, HERE) for action in item.actions}


def live(standin: StandIn, recipe: Recipe, root: Path) -> None:
    """Plan, deploy with the baseline, look at status and log, destroy."""
    platform = SageMakerPlatform(Clients(standin.session()), poll_seconds=0.0, sleep=lambda _: None)
    record, progress = Record(root / "record.jsonl", print), Silent()
    arms = [recipe, recipe.baseline()]
    names = [arm.name for arm in arms]
    account = platform.account(recipe)
    resources = desired(arms, account)
    made = make_plan("", RULES, names, resources, platform.observe(resources, names), account=account)
    with platform.lease(recipe.name):
        make(made, rules_of(made.platform).kinds, platform, record, progress)
        wait_in_service(platform, configs(made, rules_of(made.platform).kinds), progress, 60)
        complete(made, rules_of(made.platform).kinds, platform, record, progress)
        remove(made, platform, record, progress)
    assert len(list(platform.endpoints())) == len(names)
    list(platform.logs(recipe.name))
    removed = make_plan("", RULES, names, (), platform.observe((), names))
    with platform.lease(recipe.name):
        remove(removed, platform, record, progress)


@pytest.mark.parametrize(
    "text", [CREATE, SCALED, UNWATCHED, COMPONENT], ids=["plain", "scaled", "unwatched", "component"]
)
def test_every_call_is_allowed_on_what_it_names(standin: StandIn, tmp_path: Path, text: str) -> None:
    recipe = recipe_of(tmp_path, text)
    live(standin, recipe, tmp_path)
    assert not_allowed(standin, recipe) == set()


def test_nothing_is_asked_for_in_vain(standin: StandIn, tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, SCALED)
    live(standin, recipe, tmp_path)
    called = {action_of(call) for call in standin.calls}
    assert listed(recipe) - called == WITHOUT_A_CALL


def test_a_recipe_asks_only_for_what_it_uses(tmp_path: Path) -> None:
    plain, scaled, unwatched = (listed(recipe_of(tmp_path, text)) for text in (CREATE, SCALED, UNWATCHED))
    assert "application-autoscaling:PutScalingPolicy" in scaled - plain
    assert "cloudwatch:PutMetricAlarm" in plain - unwatched
    named = listed(recipe_of(tmp_path, CREATE.replace("role: create", "role: execution")))
    assert "iam:CreateRole" in plain - named


def test_a_role_that_exists_is_only_passed_on(tmp_path: Path) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/execution"
    recipe = recipe_of(tmp_path, CREATE.replace("role: create", f"role: {role}"))
    passing = [
        item for item in permissions(recipe, Account(ACCOUNT, "us-west-2", role)) if "iam:PassRole" in item.actions
    ]
    assert [item.resources for item in passing] == [(role,)]


def test_an_inference_component_asks_for_components(tmp_path: Path) -> None:
    text = CREATE.replace("role: create", "inference_component: {endpoint: shared}, role: create")
    found = permissions(recipe_of(tmp_path, text), HERE)
    (creating,) = [item for item in found if "sagemaker:CreateInferenceComponent" in item.actions]
    assert creating.resources[0] == f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:inference-component/hub"
    (endpoint,) = [item for item in found if "sagemaker:DeleteEndpoint" in item.actions]
    assert endpoint.resources == (f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:endpoint/shared",)


KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/1234abcd"


@pytest.mark.parametrize(
    ("container", "more"),
    [("", ()), ("container: {builder: codebuild}\n", ("kms:DescribeKey", "kms:RetireGrant"))],
)
def test_a_key_asks_for_a_grant_unless_its_own_policy_allows_it(
    container: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    """Developer guide, "API permissions"; ECR's user guide, "Encryption at rest", of who makes a repository."""
    recipe = recipe_of(tmp_path, CREATE.replace("role: create", "kms_key: 1234abcd, role: create") + container)
    (found,) = [item for item in permissions(recipe, HERE) if "key's own policy" in item.unless]
    uploads = ("kms:CreateGrant", "kms:Decrypt", "kms:GenerateDataKey")
    assert (found.actions, found.resources) == ((*uploads, *more), (KEY,))


def test_the_first_build_makes_its_project(standin: StandIn, tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, CREATE + "container: {builder: codebuild}\n")
    unless = f"the CodeBuild project {IMAGE_PROJECT.name} exists already"
    found = [item for item in permissions(recipe, HERE) if unless in item.unless]
    standin.calls.clear()
    ensure_project(Clients(standin.session()), IMAGE_PROJECT, lambda _: None, lambda _: None)
    asked = {action_of(call) for call in standin.calls} - {"codebuild:BatchGetProjects", "sts:GetCallerIdentity"}
    listed = {action for item in found for action in item.actions}
    checked = {"iam:TagRole", "iam:PassRole"}  # by AWS, without a call
    adopting = {"iam:ListRoleTags", "iam:UpdateAssumeRolePolicy"}  # a role that was made before
    assert listed - asked == checked | adopting
    assert asked <= listed


def test_other_partitions_have_arns_of_their_own(tmp_path: Path) -> None:
    found = permissions(recipe_of(tmp_path, SCALED), Account(ACCOUNT, "cn-north-1"), scaling_role_exists=False)
    arns = {arn for item in found for arn in item.resources if arn != "*"}
    assert {arn.split(":")[1] for arn in arns} == {"aws-cn"}
