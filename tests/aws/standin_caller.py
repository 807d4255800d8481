"""Calls as IAM sees them: which actions they are, on what, and with which condition keys.

Dependent actions are those of the Service Authorization Reference: who makes something with tags tags it, who names a
role passes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from moto.iam.models import iam_backends
from standin_http import Call
from standin_policies import Access

from toolkit.platforms.local.aws import ACCOUNT

CALLER = f"arn:aws:sts::{ACCOUNT}:assumed-role/deployer/me"
# Where the name in policies is not botocore's.
_PREFIXES = {
    "service-quotas": "servicequotas",
    "resourcegroupstaggingapi": "tag",
    "sagemaker-runtime": "sagemaker",
}
_ACTIONS = {
    ("s3", "HeadBucket"): "ListBucket",
    ("s3", "ListObjectsV2"): "ListBucket",
    ("s3", "ListObjects"): "ListBucket",
    ("s3", "ListBuckets"): "ListAllMyBuckets",
    ("s3", "HeadObject"): "GetObject",
    ("s3", "ListMultipartUploads"): "ListBucketMultipartUploads",
    ("s3", "ListParts"): "ListMultipartUploadParts",
    ("s3", "CreateMultipartUpload"): "PutObject",
    ("s3", "UploadPart"): "PutObject",
    ("s3", "CompleteMultipartUpload"): "PutObject",
    ("s3", "DeleteObjects"): "DeleteObject",
    ("s3", "PutBucketEncryption"): "PutEncryptionConfiguration",
    ("s3", "PutPublicAccessBlock"): "PutBucketPublicAccessBlock",
    ("s3", "PutBucketLifecycleConfiguration"): "PutLifecycleConfiguration",
    ("sagemaker-runtime", "OpenAI"): "InvokeEndpoint",
    ("cloudwatch", "PromQL"): "GetMetricData",
}
# Where a request says what it is about.
NAMED = {
    ("secretsmanager", "SecretId"): "arn:aws:secretsmanager:us-west-2:{account}:secret:{name}-abcdef",
    ("sagemaker", "EndpointName"): "arn:aws:sagemaker:us-west-2:{account}:endpoint/{name}",
    ("sagemaker", "EndpointConfigName"): "arn:aws:sagemaker:us-west-2:{account}:endpoint-config/{name}",
    ("sagemaker", "ModelName"): "arn:aws:sagemaker:us-west-2:{account}:model/{name}",
    ("sagemaker", "InferenceComponentName"): "arn:aws:sagemaker:us-west-2:{account}:inference-component/{name}",
    ("sagemaker", "TrainingJobName"): "arn:aws:sagemaker:us-west-2:{account}:training-job/{name}",
    ("sagemaker", "ModelPackageGroupName"): "arn:aws:sagemaker:us-west-2:{account}:model-package-group/{name}",
    ("sagemaker", "ModelPackageName"): "{name}",
    ("sagemaker", "ModelPackageArn"): "{name}",
    ("sagemaker", "HubContentName"): "arn:aws:sagemaker:us-west-2:aws:hub-content/SageMakerPublicHub/Model/{name}/1",
    ("sagemaker", "ResourceArn"): "{name}",
    ("ecr", "repositoryName"): "arn:aws:ecr:us-west-2:{account}:repository/{name}",
    ("ecr", "resourceArn"): "{name}",
    ("iam", "RoleName"): "arn:aws:iam::{account}:role/{name}",
    ("logs", "logGroupName"): "arn:aws:logs:us-west-2:{account}:log-group:{name}",
    ("logs", "resourceArn"): "{name}",
    ("cloudwatch", "AlarmName"): "arn:aws:cloudwatch:us-west-2:{account}:alarm:{name}",
    ("cloudwatch", "ResourceARN"): "{name}",
    ("cloudwatch", "DashboardName"): "arn:aws:cloudwatch::{account}:dashboard/{name}",
}
# What tagging is called, where it is not what makes the thing. S3's buckets are tagged by a call of their own.
_TAGGING = {"sagemaker": "AddTags", "iam": "TagRole"}
_PASSED = {
    ("sagemaker", "ExecutionRoleArn"): "sagemaker.amazonaws.com",
    ("sagemaker", "RoleArn"): "sagemaker.amazonaws.com",
    ("codebuild", "serviceRole"): "codebuild.amazonaws.com",
}
# Nobody needs a right to it.
_FREE = ("sts:GetCallerIdentity",)


def accesses_of(call: Call) -> Iterator[Access]:
    """Everything that a call takes of its caller."""
    action, context = action_of(call), _context(call)
    if action in _FREE:
        return
    for resource in resources_of(call):
        yield Access(CALLER, action, resource, context)
        if _tags(call) and (call.operation.startswith(("Create", "Put", "Register"))):
            verb = _TAGGING.get(call.service, "TagResource")
            yield Access(CALLER, f"{action.partition(':')[0]}:{verb}", resource, context)
    for (service, key), principal in _PASSED.items():
        if service == call.service and key in call.request:
            yield Access(CALLER, "iam:PassRole", call.request[key], {"iam:PassedToService": principal})
    if key := call.request.get("SSEKMSKeyId"):
        arn = key if key.startswith("arn:") else f"arn:aws:kms:{call.region}:{ACCOUNT}:key/{key}"
        yield Access(CALLER, "kms:GenerateDataKey", arn, context)


def action_of(call: Call) -> str:
    return iam_action(call.service, call.operation)


def resources_of(call: Call) -> list[str]:
    """ARNs of what the request names; `*` when it names nothing."""
    if call.service == "s3":
        bucket, deleted = call.request["Bucket"], call.request.get("Delete", {}).get("Objects", [])
        keys = [call.request["Key"]] if "Key" in call.request else [item["Key"] for item in deleted]
        return [f"arn:aws:s3:::{bucket}/{key}" for key in keys] or [f"arn:aws:s3:::{bucket}"]
    found = []
    for key, value in call.request.items():
        if pattern := NAMED.get((call.service, key.removesuffix("s"))):
            names = value if isinstance(value, list) else [value]
            path = _path(call) if key == "RoleName" else ""
            found += [pattern.format(account=ACCOUNT, name=f"{path}{name}") for name in names]
    return found or ["*"]


def _path(call: Call) -> str:
    """Of a role, without its first slash: what it is made with, or what it has."""
    role = next((role for role in _iam().roles.values() if role.name == call.request["RoleName"]), None)
    path: str = role.path if role else call.request.get("Path", "/")
    return path[1:]


def _iam() -> Any:
    return iam_backends[ACCOUNT]["aws"]


def iam_action(service: str, operation: str) -> str:
    """What a policy calls an API call, by the Service Authorization Reference."""
    prefix = _PREFIXES.get(service, service)
    return f"{prefix}:{_ACTIONS.get((service, operation), operation)}"


def _context(call: Call) -> dict[str, str]:
    region = "us-east-1" if call.service == "iam" else call.region
    named = {
        "s3:prefix": call.request.get("Prefix"),
        "iam:PermissionsBoundary": call.request.get("PermissionsBoundary"),
    }
    tags = {f"aws:RequestTag/{key}": value for key, value in _tags(call).items()}
    return {"aws:RequestedRegion": region, **tags, **{key: value for key, value in named.items() if value}}


def _tags(call: Call) -> Mapping[str, str]:
    found: Any = call.request.get("Tags", call.request.get("tags", {}))
    if isinstance(found, Mapping):
        return found
    return {item.get("Key", item.get("key")): item.get("Value", item.get("value")) for item in found or ()}
