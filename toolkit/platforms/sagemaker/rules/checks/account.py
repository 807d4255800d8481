"""Will this AWS account take the deployment? Facts that a platform has read in, findings out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit.catalog import lookup
from toolkit.errors import ToolkitError
from toolkit.findings import Finding, Severity
from toolkit.recipe.resolve import Recipe

_TYPES = "platform.instance_types"
_SERVICE = "sagemaker.amazonaws.com"
_TRUST = {"Effect": "Allow", "Principal": {"Service": _SERVICE}, "Action": "sts:AssumeRole"}
# What private subnets are usually given besides S3. AWS documents only S3 for hosting (host-vpc.html).
_USUAL_SERVICES = ("ecr.api", "ecr.dkr", "logs")
_SHOWN = 5


@dataclass(frozen=True)
class Permission:
    """Actions that somebody needs on resources, as ARNs. `given` are condition keys of the calls that matter."""

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    given: Mapping[str, str] = field(default_factory=dict)

    def statement(self) -> dict[str, Any]:
        """The statement of an IAM policy that grants it, and no more."""
        condition = {"Condition": {"StringEquals": dict(self.given)}} if self.given else {}
        return {"Effect": "Allow", "Action": list(self.actions), "Resource": list(self.resources), **condition}


@dataclass(frozen=True)
class ExecutionRole:
    """The role that endpoints shall run under. `exists` and `trusted` (by SageMaker) are None when we may not look."""

    arn: str
    exists: bool | None = None
    trusted: bool | None = None


@dataclass(frozen=True)
class Quota:
    """How many instances of a type endpoints may have in all, and how many other endpoints have; None: not known."""

    instance_type: str
    value: float
    code: str
    in_use: int | None = None


@dataclass(frozen=True)
class Subnet:
    """A subnet that a container shall run in. `reaches` are AWS services, and `internet`; None when we may not look."""

    id: str
    vpc: str
    zone: str
    reaches: frozenset[str] | None


@dataclass(frozen=True)
class Unread:
    """What could not be read and why; `action` is what IAM calls the right to."""

    message: str
    action: str


@dataclass(frozen=True)
class AccountFacts:
    """What an AWS account holds that matters to one recipe. What was not, or could not be, read is None or empty.

    Fields:
        region: where the endpoint would be, None when neither recipe nor session say it.
        identity: ARN of the caller; empty with `problem`, which says why AWS does not know one.
        role: the execution role that was found, None when there is none.
        role_problem: why the role that recipe or environment name cannot be used.
        denied: what the caller's policies do not allow of all that a deployment takes.
        quotas: of the recipe's instance types.
        missing_image: the recipe's image, when its registry does not have it.
        image_problem: why there is no image to look for.
        jumpstart_problem: why JumpStart's hub does not serve what the recipe names.
        jumpstart_types: the instance type that JumpStart chooses, where the recipe leaves it to that.
        buckets: region of the bucket of each model that is in S3, by its address; empty when there is no such bucket.
        subnets, missing_subnets: of the recipe's, those that exist and those that do not.
        scaling_role: whether the service-linked role of autoscaling exists.
        unread: all that could not be read.
    """

    region: str | None
    identity: str = ""
    problem: ToolkitError | None = None
    role: ExecutionRole | None = None
    role_problem: ToolkitError | None = None
    denied: tuple[Permission, ...] = ()
    quotas: tuple[Quota, ...] = ()
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
    """Findings on the account. Nothing more when nobody is logged in, or no region is chosen."""
    if facts.region is None:
        hint = "Add `region: us-west-2` to `platform`, or set AWS_DEFAULT_REGION."
        yield Finding("account.region", "neither the recipe nor your AWS session says a region", "platform", hint=hint)
        return
    if facts.problem:
        yield Finding("account.credentials", facts.problem.message, hint=facts.problem.hint)
        return
    yield Finding("account.identity", f"you are {facts.identity} in {facts.region}", severity="info")
    yield from _role(recipe, facts)
    yield from _permissions(facts)
    yield from _types(recipe, facts, facts.region)
    yield from _image(recipe, facts)
    yield from _buckets(recipe, facts, facts.region)
    yield from _network(recipe, facts, facts.region)
    yield from _scaling(facts)
    for item in facts.unread:
        hint = f"To look it takes {item.action}."
        yield Finding("account.unread", f"not known: {item.message}", hint=hint, severity="info")


def needed_instances(recipe: Recipe) -> int:
    """Instances that an endpoint of the recipe starts with, those of both variants when the baseline is one."""
    variants = 2 if recipe.rollout.shadow or recipe.rollout.speculative_percent < 100 else 1
    return max(recipe.scaling.min_instances, 1) * variants


def _role(recipe: Recipe, facts: AccountFacts) -> Iterator[Finding]:
    path = "platform.role"
    if facts.role_problem:
        yield Finding("account.role", facts.role_problem.message, path, hint=facts.role_problem.hint)
    elif facts.role is None and recipe.platform.role != "create":
        message = "no execution role was found: this is no Studio, and no role is named"
        hint = "Name one as `platform.role`, or in $TOOLKIT_EXECUTION_ROLE; or write `role: create` to have one made."
        yield Finding("account.role", message, path, hint=hint)
    elif facts.role and facts.role.exists is False:
        hint = "Correct it, or write `create`: aws iam list-roles --query Roles[].Arn"
        yield Finding("account.role", f"there is no role {facts.role.arn}", path, hint=hint)
    elif facts.role and facts.role.trusted is False:
        message = f"SageMaker may not take the role {facts.role.arn}"
        hint = f"Add to its trust policy: {json.dumps(_TRUST)}"
        yield Finding("account.role-trust", message, path, hint=hint)


def _permissions(facts: AccountFacts) -> Iterator[Finding]:
    if facts.denied:
        actions = list(dict.fromkeys(action for item in facts.denied for action in item.actions))
        policy = {"Version": "2012-10-17", "Statement": [item.statement() for item in facts.denied]}
        more = f" and {len(actions) - _SHOWN} more" if len(actions) > _SHOWN else ""
        message = f"your policies do not allow {', '.join(actions[:_SHOWN])}{more}"
        yield Finding("account.permissions", message, hint=f"Ask for this policy: {json.dumps(policy)}")


def _types(recipe: Recipe, facts: AccountFacts, region: str) -> Iterator[Finding]:
    types = facts.jumpstart_types if recipe.leaves_instance_type_open else recipe.platform.instance_types
    for index, name in enumerate(types):
        instance = lookup.instance(name)
        if instance and instance.regions and region not in instance.regions:
            message = f"AWS lists no price for {name} endpoints in {region}: it may not be there"
            hint = f"It is in {', '.join(instance.regions)}. Set platform.region, or choose another type."
            yield Finding("account.region", message, f"{_TYPES}.{index}", hint=hint, severity="warning")
    needed, most = needed_instances(recipe), recipe.scaling.max_instances
    room = {quota.instance_type: quota.value - (quota.in_use or 0) for quota in facts.quotas}
    # SageMaker goes on to the next type of the list where one cannot be had.
    some_type_will_do = any(room.get(name, needed) >= needed for name in types)
    for quota in facts.quotas:
        path = f"{_TYPES}.{types.index(quota.instance_type)}"
        has = f"the quota `{quota.instance_type} for endpoint usage` in {region} is {quota.value:.0f}"
        used = f", other endpoints have {quota.in_use} of them" if quota.in_use else ""
        hint = (
            "Ask for more: aws service-quotas request-service-quota-increase --service-code sagemaker "
            f"--quota-code {quota.code} --desired-value {max(needed, most) + (quota.in_use or 0)} --region {region}"
        )
        if room[quota.instance_type] < needed:
            severity: Severity = "warning" if some_type_will_do else "error"
            yield Finding("account.quota", f"{has}{used}, {needed} needed", path, hint=hint, severity=severity)
        elif room[quota.instance_type] < most:
            message = f"{has}{used}: scaling out to {most} would stop there"
            yield Finding("account.quota", message, path, hint=hint, severity="warning")


def _image(recipe: Recipe, facts: AccountFacts) -> Iterator[Finding]:
    if problem := facts.jumpstart_problem:
        path = "target.model" if recipe.target.kind == "jumpstart" else "speculation.model"
        yield Finding("account.jumpstart", problem.message, path, hint=problem.hint)
    if facts.image_problem:
        yield Finding("account.image", facts.image_problem.message, "engine.version", hint=facts.image_problem.hint)
    if facts.missing_image:
        message = f"the registry has no image {facts.missing_image}"
        has_base = recipe.container is not None and recipe.container.base is not None
        path = "container.base" if has_base else "engine.version"
        hint = f"Use another {path} or platform.region."
        yield Finding("account.image", message, path, hint=hint)


def _buckets(recipe: Recipe, facts: AccountFacts, region: str) -> Iterator[Finding]:
    for key, model in recipe.models.items():
        bucket_region = facts.buckets.get(model.written, region)
        if not bucket_region:
            yield Finding("account.bucket", f"there is no bucket for {model}", key, hint="Correct the address.")
        elif bucket_region != region:
            message = f"{model} is in {bucket_region}, the endpoint would be in {region}"
            hint = f"Set platform.region to {bucket_region}, or copy it: aws s3 sync {model} s3://BUCKET-IN-{region}/…"
            yield Finding("account.bucket-region", message, key, hint=hint)


def _network(recipe: Recipe, facts: AccountFacts, region: str) -> Iterator[Finding]:
    path = "network.subnets"
    for name in facts.missing_subnets:
        hint = f"See: aws ec2 describe-subnets --region {region}"
        yield Finding("account.subnets", f"there is no subnet {name} in {region}", path, hint=hint)
    vpcs = sorted({subnet.vpc for subnet in facts.subnets})
    if len(vpcs) > 1:
        message = f"the subnets are in {len(vpcs)} VPCs: {', '.join(vpcs)}"
        yield Finding("account.subnets", message, path, hint="Give subnets of one VPC.")
    zones = {subnet.zone for subnet in facts.subnets}
    if len(zones) == 1 and not facts.missing_subnets:
        message = f"all subnets are in {zones.pop()}: SageMaker wants at least two availability zones"
        yield Finding("account.subnets", message, path, hint="Add a subnet of another zone.", severity="warning")
    reaches = {s.id: s.reaches for s in facts.subnets if s.reaches is not None and "internet" not in s.reaches}
    if reaches:
        yield from _closed(recipe, reaches, vpcs[0], region)


def _closed(recipe: Recipe, reaches: Mapping[str, frozenset[str]], vpc: str, region: str) -> Iterator[Finding]:
    """Subnets without a way to the internet: an internet gateway is none, as containers get no public address."""
    path, names = "network.subnets", ", ".join(reaches)
    if recipe.platform.weights == "hub":
        message = f"the containers fetch weights from the hub, and from {names} no way leads to the internet"
        hint = "Set platform.weights to s3, or route 0.0.0.0/0 to a NAT gateway."
        yield Finding("account.internet", message, path, hint=hint)
    elif without := [name for name, services in reaches.items() if "s3" not in services]:
        message = f"neither the internet nor S3, where the weights are, can be reached from {', '.join(without)}"
        tables = f"--service-name com.amazonaws.{region}.s3 --route-table-ids ROUTE-TABLES"
        hint = f"Make one: aws ec2 create-vpc-endpoint --vpc-id {vpc} {tables} --region {region}"
        yield Finding("account.vpc-endpoints", message, path, hint=hint)
    lacking = [name for name in _USUAL_SERVICES if any(name not in services for services in reaches.values())]
    if lacking:
        message = f"from {names} no VPC endpoint leads to {', '.join(lacking)}"
        hint = "AWS documents none but S3 for endpoints: add them if images or logs do not arrive (unverified)."
        yield Finding("account.vpc-endpoints", message, path, hint=hint, severity="info")


def _scaling(facts: AccountFacts) -> Iterator[Finding]:
    if facts.scaling_role is False:
        message = "the service-linked role of autoscaling does not exist yet: AWS makes it when first used, if you may"
        hint = (
            "Or make it now: aws iam create-service-linked-role "
            "--aws-service-name sagemaker.application-autoscaling.amazonaws.com"
        )
        yield Finding("account.service-linked-role", message, "scaling.max_instances", hint=hint, severity="info")
