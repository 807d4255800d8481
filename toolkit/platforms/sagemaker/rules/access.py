"""Statements of policies, and which of them let a role read weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit import documents
from toolkit.planning.resources import Resource

PRINCIPAL = "sagemaker.amazonaws.com"
ROLE_VARIABLE = "TOOLKIT_EXECUTION_ROLE"
"""The service that takes execution roles; the same name in all partitions."""

S3_ACTIONS: Mapping[str, str] = {
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "CompleteMultipartUpload": "s3:PutObject",
    "CreateBucket": "s3:CreateBucket",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteBucket": "s3:DeleteBucket",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
    "GetObject": "s3:GetObject",
    "HeadBucket": "s3:ListBucket",
    "HeadObject": "s3:GetObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "ListParts": "s3:ListMultipartUploadParts",
    "PutBucketEncryption": "s3:PutEncryptionConfiguration",
    "PutBucketPolicy": "s3:PutBucketPolicy",
    "PutObject": "s3:PutObject",
    "PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
    "UploadPart": "s3:PutObject",
}
"""The action that IAM asks for each call of S3 that the toolkit makes (Service Authorization Reference)."""

_DECRYPT = "kms:Decrypt"
_GET, _LIST = _READING = (S3_ACTIONS["GetObject"], S3_ACTIONS["ListObjectsV2"])


def storage(arn: str, addresses: Iterable[str]) -> list[dict[str, Any]]:
    """Permissions to read and list its own weights, and no other prefix."""
    prefixes: dict[str, list[str]] = {}
    for uri in addresses:
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        prefixes.setdefault(bucket, []).append(prefix)
    return [
        statement
        for bucket, keys in prefixes.items()
        for statement in (
            allow(_GET, [f"{arn}:s3:::{bucket}/{prefix}*" for prefix in keys]),
            lists(f"{arn}:s3:::{bucket}", keys),
        )
    ]


def s3_actions(*calls: str) -> list[str]:
    """What IAM asks for these calls of S3."""
    return [S3_ACTIONS[call] for call in calls]


def allow(actions: str | list[str], resources: str | list[str]) -> dict[str, Any]:
    """A statement of a policy."""
    return {"Effect": "Allow", "Action": actions, "Resource": resources}


def lists(bucket: str, prefixes: Sequence[str]) -> dict[str, Any]:
    """A statement that lets list what begins with these."""
    condition = {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}}
    return {**allow(_LIST, bucket), "Condition": condition}


def policy(*statements: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a policy."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def also_reading(item: Resource, arn: str, addresses: Iterable[str], before: str | None = None) -> Resource:
    """A role's policy that lets it read these addresses too; the same for the same ones, whichever came first.

    `before` is its document as it is: the keys that it decrypts with are those of what lies at these addresses.
    """
    statements = json.loads(item.request["PolicyDocument"])["Statement"]
    reading = [each for each in statements if each["Action"] in _READING]
    own = {
        f"s3://{each['Resource'].rpartition(':')[2]}/{prefix.removesuffix('*')}"
        for each in reading
        if each["Action"] == _LIST
        for prefix in each["Condition"]["StringLike"]["s3:prefix"]
    }
    every = own.union(addresses)
    if every == own:
        return item
    others = [each for each in statements if each not in reading]
    keys = sorted(_decrypting(_statements(before)) - _decrypting(others))
    text = json.dumps(policy(*storage(arn, sorted(every)), *others, *(allow(_DECRYPT, key) for key in keys)))
    return replace(item, request={**item.request, "PolicyDocument": text})


def _decrypting(statements: Iterable[Any]) -> set[str]:
    """The KMS keys that these statements decrypt with. A policy in an account may have any form: only ours is read."""
    return {
        each["Resource"]
        for each in statements
        if isinstance(each, Mapping)
        and each.get("Effect") == "Allow"
        and (each.get("Action") == _DECRYPT or _DECRYPT in each.get("Action", ()))
        and isinstance(each.get("Resource"), str)
    }


def _statements(document: str | None) -> list[Any]:
    try:
        found: Any = documents.decode(document) if document else None
    except documents.Unfit:
        return []
    statements = found.get("Statement") if isinstance(found, Mapping) else None
    return statements if isinstance(statements, list) else []
