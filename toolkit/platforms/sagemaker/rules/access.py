"""Statements of policies, and which of them let a role read weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit.planning.resources import Resource

_GET, _LIST = _READING = ("s3:GetObject", "s3:ListBucket")


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


def also_reading(item: Resource, arn: str, addresses: Iterable[str]) -> Resource:
    """A role's policy that lets it read these addresses too; the same for the same ones, whichever came first."""
    document = json.loads(item.request["PolicyDocument"])
    reading = [each for each in document["Statement"] if each["Action"] in _READING]
    own = {
        f"s3://{each['Resource'].rpartition(':')[2]}/{prefix.removesuffix('*')}"
        for each in reading
        if each["Action"] == _LIST
        for prefix in each["Condition"]["StringLike"]["s3:prefix"]
    }
    every = own.union(addresses)
    if every == own:
        return item
    others = [each for each in document["Statement"] if each not in reading]
    text = json.dumps(policy(*storage(arn, sorted(every)), *others))
    return replace(item, request={**item.request, "PolicyDocument": text})
