"""The execution role that is made for an endpoint: who may take it, and what it may do. Least privilege."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.planning.metrics import TRAINING_LOG_GROUP, log_group
from toolkit.planning.names import ARTIFACTS_PREFIX, bucket_name, compiler, role_name, tags
from toolkit.planning.resources import Account, Resource
from toolkit.planning.storage import ModelData
from toolkit.recipe.resolve import Recipe

CAPTURE_PREFIX = "capture/"

_LOG_ACTIONS = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
_IMAGE_ACTIONS = ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"]
# Of AWS's guide to SageMaker in a VPC; none of them can be limited to one VPC's resources.
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


def role_arn(recipe: Recipe, account: Account, endpoint: str) -> str:
    """The role that the endpoint's containers run under: the one that was found, else the one that is made."""
    return account.role or f"arn:{account.partition}:iam::{account.id}:role/{role_name(endpoint)}"


def role(recipe: Recipe, account: Account, endpoint: str, data: Sequence[ModelData]) -> list[Resource]:
    """Role and policy; none where a role was found."""
    captured = f"arn:{account.partition}:s3:::{bucket_name(account)}/{CAPTURE_PREFIX}{endpoint}/*"
    captures = [_allow("s3:PutObject", captured)] if recipe.observability.data_capture_percent else []
    statements = _statements(recipe, account, log_group(recipe), data, captures)
    return _made(role_name(endpoint), tags(recipe, endpoint), recipe, account, statements)


def compile_role(recipe: Recipe, account: Account, data: Sequence[ModelData]) -> list[Resource]:
    """Role and policy of the jobs that compile for the recipe and its baseline; none where a role was found.

    They may write all that is compiled, and no key alone: a job for another K may be under way under the same role.
    """
    bucket = f"arn:{account.partition}:s3:::{bucket_name(account)}"
    artifacts = [
        # Whether SageMaker removes from S3 what a job removes is not documented: it may.
        _allow(["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], f"{bucket}/{ARTIFACTS_PREFIX}*"),
        {
            **_allow("s3:ListBucket", bucket),
            "Condition": {"StringLike": {"s3:prefix": [f"{ARTIFACTS_PREFIX}*"]}},
        },
    ]
    statements = _statements(recipe, account, TRAINING_LOG_GROUP, data, artifacts)
    return _made(role_name(compiler(recipe.name)), tags(recipe), recipe, account, statements)


def _made(
    name: str, its_tags: list[dict[str, str]], recipe: Recipe, account: Account, statements: list[dict[str, Any]]
) -> list[Resource]:
    if account.role:
        return []
    # Only SageMaker may take it, and only for this account (confused deputy).
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": account.id}},
    }
    create = {"RoleName": name, "AssumeRolePolicyDocument": _policy([trust]), "Tags": its_tags}
    # One policy for each recipe: components that share an endpoint share its role, and each goes with its own.
    put = {"RoleName": name, "PolicyName": recipe.name, "PolicyDocument": _policy(statements)}
    return [Resource("Role", name, create), Resource("RolePolicy", f"{name}/{recipe.name}", put)]


def _statements(
    recipe: Recipe, account: Account, group: str, data: Sequence[ModelData], also: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    arn = f"arn:{account.partition}"
    logs = f"{arn}:logs:{account.region}:{account.id}:log-group:{group}"
    found = [
        *_storage(arn, data),
        _allow(_LOG_ACTIONS, [logs, f"{logs}:*"]),
    ]
    if recipe.platform.name == "sagemaker":
        found.append(_allow(["cloudwatch:PutMetricData", "ecr:GetAuthorizationToken"], "*"))
        found.append(_allow(_IMAGE_ACTIONS, f"{arn}:ecr:{account.region}:*:repository/*"))
    found += also
    if key := recipe.platform.kms_key:
        key = key if key.startswith("arn:") else _key_arn(key, account)
        found.append(_allow(["kms:Decrypt", "kms:GenerateDataKey", "kms:CreateGrant"], key))
    if recipe.network.subnets:
        found.append(_allow(_VPC_ACTIONS, "*"))
    return found


def _storage(arn: str, data: Sequence[ModelData]) -> list[dict[str, Any]]:
    """Read its own weights: the objects, and listing of no other prefix."""
    prefixes: dict[str, list[str]] = {}
    for item in data:
        bucket, _, prefix = item.uri.removeprefix("s3://").partition("/")
        prefixes.setdefault(bucket, []).append(prefix)
    return [
        statement
        for bucket, found in prefixes.items()
        for statement in (
            _allow("s3:GetObject", [f"{arn}:s3:::{bucket}/{prefix}*" for prefix in found]),
            {
                **_allow("s3:ListBucket", f"{arn}:s3:::{bucket}"),
                "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in found]}},
            },
        )
    ]


def _key_arn(key: str, account: Account) -> str:
    return f"arn:{account.partition}:kms:{account.region}:{account.id}:key/{key}"


def _allow(actions: str | list[str], resources: str | list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources}


def _policy(statements: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
