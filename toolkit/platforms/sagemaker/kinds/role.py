"""The execution role created for an endpoint or for training jobs: its trust policy and permissions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit import documents
from toolkit.errors import PlatformError
from toolkit.planning.kinds import Decision
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.plan import Changes
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.sagemaker.aws_errors import is_denied, is_missing, unless, unless_missing
from toolkit.platforms.sagemaker.keys import aws, aws_network, aws_observability, aws_rollout
from toolkit.platforms.sagemaker.kinds.base import ApiCall, AwsKind, Look, by_key, tagged
from toolkit.platforms.sagemaker.kinds.monitoring import alarms_of_updates, rollback_alarms
from toolkit.platforms.sagemaker.rules.access import PRINCIPAL, S3_ACTIONS, allow, lists, policy, s3_actions, storage
from toolkit.platforms.sagemaker.rules.arms import endpoint_name, variants
from toolkit.platforms.sagemaker.rules.changes import described
from toolkit.platforms.sagemaker.rules.metrics import TRAINING_LOG_GROUP, log_group, log_groups
from toolkit.platforms.sagemaker.rules.model_data import ModelData
from toolkit.platforms.sagemaker.rules.names import (
    CAPTURE_PREFIX,
    bucket_name,
    compiler,
    key_arn,
    made_role_arn,
    on_aws,
    role_name,
    tags,
    trainer,
    volume_key,
)
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

_LOG_ACTIONS = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
IMAGE_ACTIONS = ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"]
# Developer guide, deployment-guardrails-configuration: the execution role needs it for the alarms of an update.
ALARM_ACTION = "cloudwatch:DescribeAlarms"
ALL_COMPONENTS = "all.components"
"""Name of the policy of an endpoint for components; no recipe's, which have no dots."""
# From AWS's guide to SageMaker in a VPC; none of them can be restricted to one VPC.
_VPC_ACTIONS = [
    "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
]


class RoleKind(AwsKind):
    """An execution role that only SageMaker can assume, and only for this account."""

    kind = "Role"
    resource_type = "AWS::IAM::Role"
    references: ClassVar[Mapping[str, str | None]] = {"ExecutionRoleArn": "Arn"}
    creates, updates = ("iam", "CreateRole"), ("iam", "PutRolePermissionsBoundary")

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [item for item in _endpoint_role(deployment) if item.kind == self.kind]

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        return {"RoleName": existing.name}

    def observe(self, look: Look) -> Iterator[Existing]:
        yield from super().observe(look)
        yield from (item for name in _job_owners(look) for item in self.observe_endpoint(look, name))

    def observe_endpoint(self, look: Look, name: str) -> Iterator[Existing]:
        tags, role = look.once(_role_tags, name), role_name(name, look.account)
        if tags is not None:
            is_wanted = role in {item.name for item in look.wanted(self.kind)}
            yield tagged(self.kind, role, tags.get(ENDPOINT_TAG), _settings(look.clients, role) if is_wanted else {})

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing is None or not existing.state:
            return super().decide(resource, existing, observed)
        wanted, path = resource.request.get("PermissionsBoundary"), resource.request.get("Path", "/")
        if (there := existing.state["Path"]) != path:
            raise PlatformError(
                f"Role {existing.name} exists with the path {there}, and IAM moves no role to {path}",
                hint=f"Write `platform.role_path: {there}`, or destroy the endpoint and deploy it again.",
            )
        if existing.state["PermissionsBoundary"] == wanted:
            return Decision("reuse", "exists")
        if wanted is None:  # what bounds a role is never taken away by the way
            return Decision("reuse", "exists, with a permissions boundary that the recipe does not name: it stays")
        bounds = {"RoleName": resource.name, "PermissionsBoundary": wanted}
        return Decision("update", "its permissions boundary has changed", request=bounds)

    def changes(
        self, resource: Resource, existing: Existing, desired: Sequence[Resource], observed: Observed
    ) -> Changes:
        key = "PermissionsBoundary"
        return described({key: existing.state[key]}, {key: resource.request[key]})

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        return (ApiCall("iam", "DeleteRole", {"RoleName": name}),)

    def tags(self, clients: Clients, name: str) -> Mapping[str, str]:
        return by_key(clients.iam.list_role_tags(RoleName=name)["Tags"])

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Sequence[Resource]) -> dict[str, Any]:
        """With its inline policies, which are not separate resources in CloudFormation."""
        document = json.loads(request["AssumeRolePolicyDocument"])
        policies = [
            {"PolicyName": other.request["PolicyName"], "PolicyDocument": json.loads(other.request["PolicyDocument"])}
            for other in resources
            if other.kind == RolePolicyKind.kind and other.request["RoleName"] == item.name
        ]
        return {**request, "AssumeRolePolicyDocument": document, "Policies": policies}

    def named(self, reference: str) -> str:
        """The role's name, from its ARN."""
        return reference.rpartition("/")[2]


class RolePolicyKind(AwsKind):
    """The inline policy of a role: a recipe's, named after it, or what all components of an endpoint have in common."""

    kind = "RolePolicy"
    creates = ("iam", "PutRolePolicy")

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [item for item in _endpoint_role(deployment) if item.kind == self.kind]

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        """Compares parsed policies, because IAM returns them reformatted."""
        if existing is None:
            return super().decide(resource, existing, observed)
        wanted, existing_policy = resource.request["PolicyDocument"], existing.state["PolicyDocument"]
        try:
            same = json.loads(wanted) == documents.decode(existing_policy)
        except documents.Unfit:
            same = False
        return Decision("reuse", "exists") if same else Decision("update", "its permissions have changed")

    def changes(
        self, resource: Resource, existing: Existing, desired: Sequence[Resource], observed: Observed
    ) -> Changes:
        return Changes(described(existing.state["PolicyDocument"], resource.request["PolicyDocument"]).items)

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        role, _, policy = existing.name.partition("/")
        return {"RoleName": role, "PolicyName": policy}

    def observe(self, look: Look) -> Iterator[Existing]:
        """Policies of our roles, each belonging to the recipe in its name, or to all components of the endpoint."""
        for name in (*look.names, *_job_owners(look)):
            if ENDPOINT_TAG in (look.once(_role_tags, name) or {}):
                role = role_name(name, look.account)
                for item in unless_missing(look.clients, partial(_policies, look.clients, role)) or ():
                    shared = item.endpoints == (ALL_COMPONENTS,)
                    yield replace(item, endpoints=look.components(name) or (name,)) if shared else item

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        return (ApiCall("iam", "DeleteRolePolicy", request),)


def role_arn(recipe: Recipe, account: Account, owner: str) -> str:
    """ARN of the role of a recipe, an endpoint or jobs: the one that was found, or the one to create."""
    return account.role or made_role_arn(recipe, account, owner)


def _endpoint_role(deployment: Deployment) -> list[Resource]:
    """Roles and policies to create; empty if a role was found.

    A component has a role of its own, which its model names: "access model artifacts and docker image" and "permissions
    the inference code needs" are asked of that one (API reference, CreateModel). So a container reads no other recipe's
    weights, and the role of the endpoint does not grow with each of its components: IAM has a limit to that.
    """
    recipe, account, endpoint = deployment.recipe, deployment.account, endpoint_name(deployment.recipe)
    captured = f"arn:{account.partition}:s3:::{bucket_name(account)}/{CAPTURE_PREFIX}{endpoint}/*"
    captures = [allow(S3_ACTIONS["PutObject"], captured)] if aws_observability(recipe).data_capture_percent else []
    # A component that is replaced all at once is not rolled back by alarms.
    component, rolls = aws(recipe).inference_component, aws_rollout(recipe).update == "rolling"
    watched = on_aws(recipe) and alarms_of_updates(recipe, variants(recipe)) and (component is None or rolls)
    seen = [sees_alarms(recipe, account)] if watched else []
    # Developer guide, sagemaker-roles: to read what is encrypted, for a volume; S3 asks for GenerateDataKey to write.
    volume = ["kms:CreateGrant"] if volume_key(recipe) else []
    volume += ["kms:GenerateDataKey"] if captures else []
    reading = ["kms:Decrypt"] if deployment.data else []
    own = _statements(recipe, account, [log_group(recipe)], deployment.data, [*captures, *seen], [*reading, *volume])
    roles = _role_and_policy(recipe, role_name(recipe.name, account), tags(recipe), recipe.name, account, own)
    if component is None:
        return roles
    # Of whichever of them rolls an update of the endpoint back. Which role writes a component's log is not documented.
    alarms = allow(ALARM_ACTION, "*")
    groups = [log_groups(endpoint)[0], log_groups("*")[1]]
    shared = _statements(recipe, account, groups, (), [*captures, alarms], volume)
    name = role_name(endpoint, account)
    return [*_role_and_policy(recipe, name, tags(recipe, endpoint), ALL_COMPONENTS, account, shared), *roles]


def sees_alarms(recipe: Recipe, account: Account) -> dict[str, Any]:
    """The statement by which SageMaker may look, as the role, at the alarms that roll back the recipe's updates.

    An alarm that the recipe names may be a composite one, which is seen only with a permission on everything (API
    reference, DescribeAlarms).
    """
    prefix = f"arn:{account.partition}:cloudwatch:{account.region}:{account.id}:alarm:"
    ours = [f"{prefix}{name}" for name in rollback_alarms(recipe, variants(recipe))]
    return allow(ALARM_ACTION, ["*"] if aws_rollout(recipe).alarms else ours)


def job_role(
    recipe: Recipe,
    account: Account,
    data: Sequence[ModelData],
    owner: str,
    prefix: str,
    also: Sequence[str] = (),
    with_key: Sequence[str] = (),
) -> list[Resource]:
    """Role and policy to create for the recipe's jobs that compile or train; empty if a role was found.

    They read their own data, and write below `prefix` of the toolkit's bucket; `also` are further actions there,
    `with_key` further ones with the recipe's KMS key.
    """
    bucket = f"arn:{account.partition}:s3:::{bucket_name(account)}"
    written = [
        # Deleting is allowed too: it is not documented whether SageMaker deletes files in S3 that a job deletes.
        allow([*s3_actions("GetObject", "PutObject", "DeleteObject"), *also], f"{bucket}/{prefix}*"),
        lists(bucket, [prefix]),
    ]
    # botocore 1.44.5, OutputDataConfig: the role "must include permissions to call kms:Encrypt".
    key = ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey", *with_key]
    statements = _statements(recipe, account, [TRAINING_LOG_GROUP], data, written, key)
    return _role_and_policy(recipe, role_name(owner, account), tags(recipe), recipe.name, account, statements)


def _job_owners(look: Look) -> list[str]:
    """Owners of the roles of the recipes' training jobs, if these are desired or the recipes are removed."""
    wanted = {item.name for item in look.wanted(RoleKind.kind)}
    names = [owner(name) for name in look.endpoints for owner in (compiler, trainer)]
    return [name for name in names if not look.desired or role_name(name, look.account) in wanted]


def _role_tags(look: Look, endpoint: str) -> dict[str, str] | None:
    iam, name = look.clients.iam, role_name(endpoint, look.account)
    return unless_missing(look.clients, lambda: by_key(iam.list_role_tags(RoleName=name)["Tags"]))


def _policies(clients: Clients, role: str) -> list[Existing]:
    policies: list[Existing] = []
    for page in clients.iam.get_paginator("list_role_policies").paginate(RoleName=role):
        for name in page["PolicyNames"]:
            document: Any = clients.iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            text = document if isinstance(document, str) else json.dumps(document)
            policies.append(Existing("RolePolicy", f"{role}/{name}", True, (name,), {"PolicyDocument": text}))
    return policies


def _settings(clients: Clients, role: str) -> dict[str, Any]:
    """Path and permissions boundary of a role; nothing for whoever may not look."""
    found = unless(clients, partial(clients.iam.get_role, RoleName=role), is_missing, is_denied)
    if found is None:
        return {}
    boundary = found["Role"].get("PermissionsBoundary", {}).get("PermissionsBoundaryArn")
    return {"Path": found["Role"]["Path"], "PermissionsBoundary": boundary}


def _role_and_policy(
    recipe: Recipe,
    name: str,
    its_tags: list[dict[str, str]],
    policy_name: str,
    account: Account,
    statements: list[dict[str, Any]],
) -> list[Resource]:
    if account.role:
        return []
    # Only SageMaker can assume it, and only for this account (against the confused deputy problem). AWS's guide says
    # not to name single endpoints or jobs here.
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": PRINCIPAL},
        "Action": "sts:AssumeRole",
        "Condition": {
            "StringEquals": {"aws:SourceAccount": account.id},
            "ArnLike": {"aws:SourceArn": f"arn:{account.partition}:sagemaker:*:{account.id}:*"},
        },
    }
    boundary, path = aws(recipe).permissions_boundary, aws(recipe).role_path
    create = {
        **({"Path": path} if path != "/" else {}),
        "RoleName": name,
        "AssumeRolePolicyDocument": json.dumps(policy(trust)),
        **({"PermissionsBoundary": boundary} if boundary else {}),
        "Tags": its_tags,
    }
    put = {"RoleName": name, "PolicyName": policy_name, "PolicyDocument": json.dumps(policy(*statements))}
    return [Resource("Role", name, create), Resource("RolePolicy", f"{name}/{policy_name}", put)]


def _statements(
    recipe: Recipe,
    account: Account,
    groups: Sequence[str],
    data: Sequence[ModelData],
    also: Sequence[dict[str, Any]],
    with_key: list[str],
) -> list[dict[str, Any]]:
    arn = f"arn:{account.partition}"
    prefix = f"{arn}:logs:{account.region}:{account.id}:log-group:"
    logs = [f"{prefix}{group}{rest}" for group in groups for rest in ("", ":*")]
    statements = [
        *storage(arn, [item.uri for item in data]),
        allow(_LOG_ACTIONS, logs),
    ]
    if on_aws(recipe):
        statements.append(allow(["cloudwatch:PutMetricData", "ecr:GetAuthorizationToken"], "*"))
        statements.append(allow(IMAGE_ACTIONS, f"{arn}:ecr:{account.region}:*:repository/*"))
    statements += also
    if (key := aws(recipe).kms_key) and with_key:
        statements.append(allow(with_key, key_arn(key, account)))
    if aws_network(recipe).subnets:
        statements.append(allow(_VPC_ACTIONS, "*"))
    return statements
