"""Read what of an AWS account matters to a recipe. Reads only; what may not be read is noted, and nothing fails."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from toolkit.engines.arguments import builds
from toolkit.errors import PlatformError, ToolkitError, UnreadableModel, UsageError
from toolkit.findings import Finding
from toolkit.planning.resources import Account
from toolkit.platforms.image import base_image
from toolkit.platforms.sagemaker.aws_errors import is_missing, unless_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import NOT_LOGGED_IN, aws_errors, hint_for
from toolkit.platforms.sagemaker.images import is_missing_image
from toolkit.platforms.sagemaker.jumpstart import read_jumpstart
from toolkit.platforms.sagemaker.keys import aws, aws_network
from toolkit.platforms.sagemaker.kinds.image import image_uri, image_uris
from toolkit.platforms.sagemaker.kinds.monitoring import alarms_of_updates
from toolkit.platforms.sagemaker.kinds.role import ALARM_ACTION, sees_alarms
from toolkit.platforms.sagemaker.permissions import SCALING_ROLE, hosts, permissions
from toolkit.platforms.sagemaker.reading import Reading, read_plan, read_quotas, read_subnets
from toolkit.platforms.sagemaker.role import STUDIO_METADATA, assumed_role, check_trust, find_role
from toolkit.platforms.sagemaker.rules.arms import endpoint_name, variants
from toolkit.platforms.sagemaker.rules.checks.account import (
    AccountFacts,
    ExecutionRole,
    Permission,
    Quota,
    check_account,
)
from toolkit.platforms.sagemaker.rules.checks.capacity import BoughtPlan, plan_uses
from toolkit.platforms.sagemaker.rules.jumpstart import ids, with_jumpstart_defaults
from toolkit.platforms.sagemaker.rules.names import own_bucket, resource_ids
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from types_boto3_iam.type_defs import ContextEntryTypeDef, EvaluationResultTypeDef

_ATTEMPTS = 3
_SIMULATION = "iam:SimulatePrincipalPolicy"


def account_findings(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the account of this environment's AWS session. Raises PlatformError when AWS cannot be reached."""
    if recipe.platform.name == "sagemaker":
        yield from check_account(recipe, account_facts(recipe))
    else:
        message = f"platform `{recipe.platform.name}` needs no AWS account, so none was checked"
        yield Finding("account.none", message, "platform.name", hint="", severity="info")


def account_facts(recipe: Recipe) -> AccountFacts:
    """What the account of this environment's AWS session holds. Raises PlatformError when AWS cannot be reached."""
    try:
        session = boto3.Session(region_name=recipe.region)
    except BotoCoreError as error:
        return AccountFacts(recipe.region or "", problem=PlatformError(str(error), hint=hint_for(error)))
    clients = Clients(session, attempts=_ATTEMPTS, bucket=own_bucket(os.environ))
    return examine(clients, recipe, environ=os.environ)


def examine(
    clients: Clients, recipe: Recipe, *, environ: Mapping[str, str], studio_metadata: Path = STUDIO_METADATA
) -> AccountFacts:
    """The facts that `check_account` judges. Raises PlatformError when AWS cannot be reached at all."""
    region = clients.session.region_name
    if not region:
        return AccountFacts(None)
    try:
        with aws_errors("reading the AWS identity"):
            caller = clients.sts.get_caller_identity()
    except PlatformError as error:
        # Nobody needs a permission to ask who they are: any refusal is one of the credentials.
        if isinstance(error.__cause__, (ClientError, *NOT_LOGGED_IN)):
            return AccountFacts(region, problem=error)
        raise
    reading = Reading(clients)
    recipe, account, jumpstart_problem = _with_jumpstart(
        reading, recipe, Account(caller["Account"], region, bucket=clients.bucket)
    )
    role: ExecutionRole | None = None
    role_problem: ToolkitError | None = None
    scales = recipe.scaling.max_instances > recipe.scaling.min_instances
    scaling_role = _role(reading, SCALING_ROLE).exists if scales else None
    try:
        found = find_role(clients, written=aws(recipe).role, environ=environ, studio_metadata=studio_metadata)
        _require_here(found.arn if found else None, account)
    except (PlatformError, UsageError) as error:
        role_problem = error
    else:
        role = _role(reading, found.arn) if found else None
    with_role = replace(account, role=role.arn if role else None)
    scales_now = not scales and _scales_now(reading, recipe)
    needed = permissions(recipe, with_role, scaling_role_exists=scaling_role is not False, scales_now=scales_now)
    missing_image, image_problem = _image(reading, recipe, account)
    denied = tuple(_find_denied(reading, caller["Arn"], needed, region))
    subnets, missing_subnets = read_subnets(reading, aws_network(recipe).subnets, region)
    return AccountFacts(
        region,
        caller["Arn"],
        role=role and _with_denied(reading, role, recipe, account),
        role_problem=role_problem,
        denied=denied,
        quotas=tuple(_quotas(reading, recipe, account)),
        plans=dict(_plans(reading, recipe, region)),
        missing_image=missing_image,
        image_problem=image_problem,
        jumpstart_problem=jumpstart_problem,
        jumpstart_types=recipe.platform.types if account.jumpstart and recipe.leaves_instance_type_open else (),
        buckets=dict(_buckets(reading, recipe)),
        subnets=subnets,
        missing_subnets=missing_subnets,
        scaling_role=scaling_role,
        unread=tuple(reading.unread),
    )


def _scales_now(reading: Reading, recipe: Recipe) -> bool:
    """Whether endpoints of an earlier deployment still have autoscaling, which the next one removes."""
    action = "application-autoscaling:DescribeScalableTargets"
    ids = [resource_id for name in {*hosts(recipe), recipe.name} for resource_id in resource_ids(name)]

    def targets() -> bool:
        client = reading.clients.application_autoscaling
        return bool(client.describe_scalable_targets(ServiceNamespace="sagemaker", ResourceIds=ids)["ScalableTargets"])

    return bool(reading.ask("reading which endpoints have autoscaling", action, targets))


def _require_here(role: str | None, account: Account) -> None:
    """Raise UsageError for a role of another account, which cannot be handed to SageMaker in this one."""
    if role and role.split(":")[4] != account.id:
        hint = "Use a role of this account, or log in to the other account."
        raise UsageError(f"{role} is not a role of account {account.id}", hint=hint)


def _role(reading: Reading, arn: str) -> ExecutionRole:
    """A role by its ARN or name, as far as we may look at it."""
    name = arn.rpartition("/")[2]
    find = partial(reading.clients.iam.get_role, RoleName=name)
    found: Any = reading.ask(
        f"the role {name}", "iam:GetRole", lambda: unless_missing(reading.clients, find) or {"Role": None}
    )
    if found is None:
        return ExecutionRole(arn)
    role = found["Role"]
    return ExecutionRole(arn, role is not None, check_trust(role["AssumeRolePolicyDocument"]) if role else None)


def _with_denied(reading: Reading, role: ExecutionRole, recipe: Recipe, account: Account) -> ExecutionRole:
    """The execution role, with whether it may look at the alarms that roll an update back."""
    is_refused = any(one.action == _SIMULATION for one in reading.unread)  # as it was for the caller's permissions
    if is_refused or role.exists is False or not alarms_of_updates(recipe, variants(recipe)):
        return role
    needed = Permission((ALARM_ACTION,), tuple(sees_alarms(recipe, account)["Resource"]))
    ask = partial(_find_refused, reading.clients, role.arn, needed, account.region)
    refused = reading.ask(f"the policies of {role.arn}", _SIMULATION, ask)
    return replace(role, denied=needed if refused else None)


def _find_denied(reading: Reading, caller: str, needed: Sequence[Permission], region: str) -> Iterator[Permission]:
    """Those of the permissions that the caller lacks. The account's root user lacks none."""
    if caller.endswith(":root"):
        return
    what, action = "your permissions", _SIMULATION
    source = caller
    if ":user/" not in caller:
        role = reading.ask(what, "iam:GetRole", lambda: assumed_role(reading.clients, caller))
        if role is None:
            reading.note(f"{what}: cannot find the role of {caller}", f"iam:GetRole and {action}")
            return
        source = role["Arn"]
    for permission in needed:
        actions = reading.ask(what, action, partial(_find_refused, reading.clients, source, permission, region))
        if actions is None:  # the next would be refused likewise
            return
        if actions:
            yield replace(permission, actions=actions)


def _find_refused(clients: Clients, source: str, permission: Permission, region: str) -> tuple[str, ...]:
    """The actions that IAM's policy simulator would not allow on the permission's resources."""
    given = dict(permission.given)
    if not permission.actions[0].startswith("iam:"):  # IAM is global: its calls are made to another region
        given["aws:RequestedRegion"] = region
    context: list[ContextEntryTypeDef] = [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"} for key, value in given.items()
    ]
    pages = clients.iam.get_paginator("simulate_principal_policy").paginate(
        PolicySourceArn=source,
        ActionNames=list(permission.actions),
        ResourceArns=[arn if arn == "*" else arn.replace("*", "x") for arn in permission.resources],
        ContextEntries=context,
    )
    results = [result for page in pages for result in page["EvaluationResults"]]
    refused = {result["EvalActionName"] for result in results if _is_refused(result)}
    return tuple(action for action in permission.actions if action in refused)


def _is_refused(result: EvaluationResultTypeDef) -> bool:
    """On any of the resources. A policy with conditions on what we do not know has the benefit of the doubt."""
    each = [
        (item["EvalResourceDecision"], item.get("MissingContextValues"))
        for item in result.get("ResourceSpecificResults", [])
    ]
    decisions = each or [(result["EvalDecision"], result.get("MissingContextValues"))]
    return any(decision != "allowed" and not missing for decision, missing in decisions)


def _quotas(reading: Reading, recipe: Recipe, account: Account) -> Iterator[Quota]:
    """None for reserved capacity: it is bought, and this quota does not count it (unverified)."""
    is_known = bool(account.jumpstart) or not recipe.leaves_instance_type_open
    if aws(recipe).capacity_reservation is None and is_known:
        own = (endpoint_name(recipe), f"{endpoint_name(recipe)}-baseline")
        yield from read_quotas(reading, recipe.platform.types, own)


def _plans(reading: Reading, recipe: Recipe, region: str) -> Iterator[tuple[str, BoughtPlan | None]]:
    """Those of this region, which alone can be asked for."""
    for arn in sorted({use.arn for use in plan_uses(recipe) if use.arn.split(":")[3] == region}):
        read = partial(read_plan, reading.clients, arn)
        found = reading.ask("the training plan", "sagemaker:DescribeTrainingPlan", read)
        if found is not None:
            yield arn, found[0]


def _with_jumpstart(reading: Reading, recipe: Recipe, account: Account) -> tuple[Recipe, Account, ToolkitError | None]:
    """Both with what JumpStart's hub says of the recipe's models, all of it or nothing; or why it serves them not."""
    entries: dict[str, Mapping[str, Any]] = {}
    try:
        for name in ids(recipe):
            call = partial(read_jumpstart, reading.clients, name)
            entry = reading.ask(f"JumpStart's {name}", "sagemaker:DescribeHubContent", call)
            if entry is None:
                return recipe, account, None
            entries[name] = entry
        return with_jumpstart_defaults(recipe, entries), replace(account, jumpstart=entries), None
    except (UnreadableModel, UsageError) as error:
        return recipe, account, error


def _image(reading: Reading, recipe: Recipe, account: Account) -> tuple[str, ToolkitError | None]:
    """The first image that its registry lacks, or why there is none in the region. What is built is so on its base."""
    try:
        uris = _images(recipe, account)
    except (UnreadableModel, UsageError) as error:
        return "", error
    for uri in uris:
        what, call = f"the image {uri}", partial(is_missing_image, reading.clients, uri)
        if reading.ask(what, "ecr:BatchGetImage", call):
            return uri, None
    return "", None


def _images(recipe: Recipe, account: Account) -> Sequence[str]:
    if recipe.target.kind == "jumpstart":
        return sorted(image_uris(recipe, account)) if account.jumpstart else ()  # else it is said elsewhere why
    has_base = recipe.container is not None and recipe.container.base is not None
    if recipe.image is None and not has_base:  # checks.container says so
        return ()
    return [base_image(recipe, account) if builds(recipe) else image_uri(recipe, account)]


def _buckets(reading: Reading, recipe: Recipe) -> Iterator[tuple[str, str]]:
    for model in recipe.models.values():
        if model.kind == "s3":
            bucket = urlsplit(model.model).netloc
            region = reading.ask(
                f"the bucket {bucket}", "s3:ListBucket", partial(_bucket_region, reading.clients, bucket)
            )
            if region is not None:
                yield model.model, region


def _bucket_region(clients: Clients, bucket: str) -> str:
    """Region of a bucket, empty when there is none. S3 tells it to everybody, in a header."""
    try:
        return clients.s3.head_bucket(Bucket=bucket)["BucketRegion"]
    except ClientError as error:
        if is_missing(error):
            return ""
        if region := error.response["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region"):
            return str(region)
        raise
