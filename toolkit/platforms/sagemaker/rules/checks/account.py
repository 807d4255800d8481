"""Can the recipe be deployed to this AWS account? The facts are read by the caller."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit.errors import ToolkitError
from toolkit.findings import Finding, Severity
from toolkit.platforms.sagemaker.keys import aws, aws_rollout
from toolkit.platforms.sagemaker.rules.access import PRINCIPAL, ROLE_VARIABLE
from toolkit.platforms.sagemaker.rules.checks.capacity import BoughtPlan, check_plans
from toolkit.platforms.sagemaker.rules.checks.component import scale_to_zero
from toolkit.platforms.sagemaker.rules.checks.environment import check_types
from toolkit.recipe.recipe import Recipe

_TYPES = "platform.instance_types"
_TRUST = {"Effect": "Allow", "Principal": {"Service": PRINCIPAL}, "Action": "sts:AssumeRole"}
# VPC endpoints that private subnets usually have besides S3. AWS documents only S3 for hosting (host-vpc.html).
_USUAL_SERVICES = ("ecr.api", "ecr.dkr", "logs")
_SHOWN = 5
NO_ROLE = "no execution role was found: none is set, and this is not a SageMaker Studio space"
NO_ROLE_HINT = f"Set `platform.role` or ${ROLE_VARIABLE}, or write `role: create` to create one."


@dataclass(frozen=True)
class Permission:
    """IAM actions needed on resources (ARNs). `given` are the condition keys that the calls have.

    `unless` says when they are not needed, which IAM's simulator cannot tell; empty if they always are.
    """

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    given: Mapping[str, str] = field(default_factory=dict)
    unless: str = ""

    def statement(self) -> dict[str, Any]:
        """The IAM policy statement that grants exactly this."""
        condition = {"Condition": {"StringEquals": dict(self.given)}} if self.given else {}
        return {"Effect": "Allow", "Action": list(self.actions), "Resource": list(self.resources), **condition}


@dataclass(frozen=True)
class ExecutionRole:
    """The execution role of endpoints. `exists` and `trusted` (by SageMaker) are None if we may not read it.

    `denied` is the permission for the alarms of an update, if its policies do not grant it.
    """

    arn: str
    exists: bool | None = None
    trusted: bool | None = None
    denied: Permission | None = None


@dataclass(frozen=True)
class Quota:
    """The quota of an instance type for all endpoints, and how many of it other endpoints use; None if unknown."""

    instance_type: str
    value: float
    code: str
    in_use: int | None = None


@dataclass(frozen=True)
class Subnet:
    """A subnet for containers. `reaches` names AWS services and `internet`; None if we may not read it."""

    id: str
    vpc: str
    zone: str
    reaches: frozenset[str] | None


@dataclass(frozen=True)
class Unread:
    """Something that could not be read, and why. `action` is the IAM action that is missing."""

    message: str
    action: str


@dataclass(frozen=True)
class AccountFacts:
    """The facts about an AWS account that matter to a recipe. What was not or could not be read is None or empty.

    Fields:
        region: region of the endpoint, None if neither the recipe nor the session has one.
        identity: ARN of the caller; empty if AWS does not know one, and then `problem` says why.
        role: the execution role that was found, if any.
        role_problem: why the role named by the recipe or the environment cannot be used.
        denied: permissions for a deployment that the caller's policies do not grant.
        quotas: quotas of the recipe's instance types.
        plans: the training plans that the recipe names, by ARN; None is one that does not exist.
        missing_image: the recipe's image, if its registry does not have it.
        image_problem: why no image is known.
        jumpstart_problem: why JumpStart's hub cannot serve what the recipe names.
        jumpstart_types: the instance type that JumpStart chooses if the recipe leaves it open.
        buckets: for each model in S3, the region of its bucket; empty if the bucket does not exist.
        subnets, missing_subnets: the recipe's subnets that exist, and those that do not.
        scaling_role: whether the service-linked role of autoscaling exists.
        unread: everything that could not be read.
    """

    region: str | None
    identity: str = ""
    problem: ToolkitError | None = None
    role: ExecutionRole | None = None
    role_problem: ToolkitError | None = None
    denied: tuple[Permission, ...] = ()
    quotas: tuple[Quota, ...] = ()
    plans: Mapping[str, BoughtPlan | None] = field(default_factory=dict)
    missing_image: str = ""
    image_problem: ToolkitError | None = None
    jumpstart_problem: ToolkitError | None = None
    jumpstart_types: tuple[str, ...] = ()
    buckets: Mapping[str, str] = field(default_factory=dict)
    subnets: tuple[Subnet, ...] = ()
    missing_subnets: tuple[str, ...] = ()
    scaling_role: bool | None = None
    unread: tuple[Unread, ...] = ()


def check_account(recipe: Recipe, facts: AccountFacts) -> Iterator[Finding]:
    """Findings on the account. Without credentials or a region, no other finding is possible."""
    if facts.region is None:
        hint = "Add `region: us-west-2` to `platform`, or set AWS_DEFAULT_REGION."
        yield Finding("account.region", "neither the recipe nor your AWS session sets a region", "platform", hint=hint)
        return
    if facts.problem:
        yield Finding("account.credentials", facts.problem.message, hint=facts.problem.hint)
        return
    message = f"you are logged in as {facts.identity} in {facts.region}"
    yield Finding("account.identity", message, hint="", severity="info")
    yield from _role(recipe, facts)
    yield from _permissions(facts)
    yield from _types(recipe, facts, facts.region)
    yield from check_plans(recipe, facts.plans)
    yield from _image(recipe, facts)
    yield from _buckets(recipe, facts, facts.region)
    yield from _network(recipe, facts, facts.region)
    if recipe.region is None:  # else the recipe's own check has said it
        yield from scale_to_zero(recipe, facts.region)
    yield from _scaling(facts)
    for item in facts.unread:
        hint = f"Reading it needs {item.action}."
        yield Finding("account.unread", f"not checked: {item.message}", hint=hint, severity="info")


def needed_instances(recipe: Recipe) -> int:
    """The number of instances that the recipe's endpoint starts with, in all variants."""
    variants = 2 if aws_rollout(recipe).shadow or aws_rollout(recipe).speculative_percent < 100 else 1
    return max(recipe.scaling.min_instances, 1) * variants


def _role(recipe: Recipe, facts: AccountFacts) -> Iterator[Finding]:
    path = "platform.role"
    if facts.role_problem:
        yield Finding("account.role", facts.role_problem.message, path, hint=facts.role_problem.hint)
    elif facts.role is None and aws(recipe).role != "create":
        yield Finding("account.role", NO_ROLE, path, hint=NO_ROLE_HINT)
    elif facts.role and facts.role.exists is False:
        hint = "Correct it, or write `role: create`. Existing roles: aws iam list-roles --query Roles[].Arn"
        yield Finding("account.role", f"role {facts.role.arn} does not exist", path, hint=hint)
    elif facts.role and facts.role.trusted is False:
        message = f"SageMaker is not allowed to assume the role {facts.role.arn}"
        hint = f"Add to its trust policy: {json.dumps(_TRUST)}"
        yield Finding("account.role-trust", message, path, hint=hint)
    elif facts.role and facts.role.denied:
        actions = ", ".join(facts.role.denied.actions)
        message = f"the execution role {facts.role.arn} may not {actions} on the alarms that roll back an update"
        hint = f"Add to its policies: {json.dumps(facts.role.denied.statement())}"
        yield Finding("account.role-permissions", message, path, hint=hint)


def _permissions(facts: AccountFacts) -> Iterator[Finding]:
    for unless in dict.fromkeys(item.unless for item in facts.denied):
        denied = [item for item in facts.denied if item.unless == unless]
        actions = list(dict.fromkeys(action for item in denied for action in item.actions))
        policy = {"Version": "2012-10-17", "Statement": [item.statement() for item in denied]}
        more = f" and {len(actions) - _SHOWN} more" if len(actions) > _SHOWN else ""
        message = f"your policies do not allow {', '.join(actions[:_SHOWN])}{more}"
        hint = f"Ask an administrator for this policy: {json.dumps(policy)}"
        if unless:
            message = f"{message}. That is fine if {unless}"
        yield Finding("account.permissions", message, hint=hint, severity="warning" if unless else "error")


def _types(recipe: Recipe, facts: AccountFacts, region: str) -> Iterator[Finding]:
    types = facts.jumpstart_types if recipe.leaves_instance_type_open else recipe.platform.types
    if recipe.region is None:  # else the check without an account says it
        yield from check_types(tuple(types), region)
    needed, most = needed_instances(recipe), recipe.scaling.max_instances
    room = {quota.instance_type: quota.value - (quota.in_use or 0) for quota in facts.quotas}
    # SageMaker tries the next type of the list if one has no capacity.
    some_type_will_do = any(room.get(name, needed) >= needed for name in types)
    for quota in facts.quotas:
        path = f"{_TYPES}.{types.index(quota.instance_type)}"
        has = f"the quota `{quota.instance_type} for endpoint usage` in {region} is {quota.value:.0f}"
        used = f", of which other endpoints use {quota.in_use}" if quota.in_use else ""
        hint = (
            "Request more: aws service-quotas request-service-quota-increase --service-code sagemaker "
            f"--quota-code {quota.code} --desired-value {max(needed, most) + (quota.in_use or 0)} --region {region}"
        )
        if room[quota.instance_type] < needed:
            severity: Severity = "warning" if some_type_will_do else "error"
            yield Finding("account.quota", f"{has}{used}; {needed} are needed", path, hint=hint, severity=severity)
        elif room[quota.instance_type] < most:
            message = f"{has}{used}: scaling out to {most} instances would stop at the quota"
            yield Finding("account.quota", message, path, hint=hint, severity="warning")


def _image(recipe: Recipe, facts: AccountFacts) -> Iterator[Finding]:
    if problem := facts.jumpstart_problem:
        path = "target.model" if recipe.target.kind == "jumpstart" else "speculation.model"
        yield Finding("account.jumpstart", problem.message, path, hint=problem.hint)
    if facts.image_problem:
        yield Finding("account.image", facts.image_problem.message, "engine.version", hint=facts.image_problem.hint)
    if facts.missing_image:
        message = f"image {facts.missing_image} does not exist in its registry"
        has_base = recipe.container is not None and recipe.container.base is not None
        path = "container.base" if has_base else "engine.version"
        hint = f"Use another {path} or platform.region."
        yield Finding("account.image", message, path, hint=hint)


def _buckets(recipe: Recipe, facts: AccountFacts, region: str) -> Iterator[Finding]:
    for key, model in recipe.models.items():
        bucket_region = facts.buckets.get(model.model, region)
        if not bucket_region:
            yield Finding("account.bucket", f"the bucket of {model} does not exist", key, hint="Correct the address.")
        elif bucket_region != region:
            message = f"{model} is in {bucket_region}, but the endpoint would be in {region}"
            hint = f"Set platform.region to {bucket_region}, or copy it: aws s3 sync {model} s3://BUCKET-IN-{region}/…"
            yield Finding("account.bucket-region", message, key, hint=hint)


def _network(recipe: Recipe, facts: AccountFacts, region: str) -> Iterator[Finding]:
    path = "network.subnets"
    for name in facts.missing_subnets:
        hint = f"See: aws ec2 describe-subnets --region {region}"
        yield Finding("account.subnets", f"subnet {name} does not exist in {region}", path, hint=hint)
    vpcs = sorted({subnet.vpc for subnet in facts.subnets})
    if len(vpcs) > 1:
        message = f"the subnets are in {len(vpcs)} VPCs: {', '.join(vpcs)}"
        yield Finding("account.subnets", message, path, hint="Use subnets of one VPC.")
    zones = {subnet.zone for subnet in facts.subnets}
    if len(zones) == 1 and not facts.missing_subnets:
        message = f"all subnets are in {zones.pop()}, but SageMaker needs at least two availability zones"
        yield Finding("account.subnets", message, path, hint="Add a subnet in another zone.", severity="warning")
    reaches = {s.id: s.reaches for s in facts.subnets if s.reaches is not None and "internet" not in s.reaches}
    if reaches:
        yield from _check_reach(recipe, reaches, vpcs[0], region)


def _check_reach(recipe: Recipe, reaches: Mapping[str, frozenset[str]], vpc: str, region: str) -> Iterator[Finding]:
    """Findings on subnets without internet access. An internet gateway is not enough: containers get no public IP."""
    path, names = "network.subnets", ", ".join(reaches)
    if recipe.platform.weights == "hub":
        message = f"the containers download weights from the hub, but {names} has no route to the internet"
        hint = "Set `platform.weights: s3`, or route 0.0.0.0/0 to a NAT gateway."
        yield Finding("account.internet", message, path, hint=hint)
    elif without := [name for name, services in reaches.items() if "s3" not in services]:
        message = f"{', '.join(without)} can reach neither the internet nor S3, where the weights are"
        tables = f"--service-name com.amazonaws.{region}.s3 --route-table-ids ROUTE-TABLES"
        hint = f"Create a VPC endpoint: aws ec2 create-vpc-endpoint --vpc-id {vpc} {tables} --region {region}"
        yield Finding("account.vpc-endpoints", message, path, hint=hint)
    lacking = [name for name in _USUAL_SERVICES if any(name not in services for services in reaches.values())]
    if lacking:
        message = f"{names} has no VPC endpoint for {', '.join(lacking)}"
        hint = "AWS documents only S3 as necessary. Add them if images or logs do not arrive (unverified)."
        yield Finding("account.vpc-endpoints", message, path, hint=hint, severity="info")


def _scaling(facts: AccountFacts) -> Iterator[Finding]:
    if facts.scaling_role is False:
        message = (
            "the service-linked role of autoscaling does not exist yet; AWS creates it at first use if you may do so"
        )
        hint = (
            "To create it now: aws iam create-service-linked-role "
            "--aws-service-name sagemaker.application-autoscaling.amazonaws.com"
        )
        yield Finding("account.service-linked-role", message, "scaling.max_instances", hint=hint, severity="info")
