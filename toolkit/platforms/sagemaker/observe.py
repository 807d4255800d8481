"""Read what exists on AWS, and whose it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from toolkit.planning.desired import ENDPOINT_TAG, ROLE_POLICY_NAME, USES_PREFIX, WEIGHTS_PREFIX, bucket_name, role_name
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import is_missing


def observe(clients: Clients, account: Account, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
    """What exists of `desired`, and all that is tagged or marked for one of `endpoints`. Reads only."""
    existing: list[Existing] = [*_storage(clients, account, desired, endpoints)]
    for endpoint in endpoints:
        existing += [*_role(clients, endpoint), *_models(clients, endpoint), *_configs(clients, endpoint)]
        existing += _endpoint(clients, endpoint)
    return Observed(tuple(existing))


def owned_endpoints(clients: Clients) -> Iterator[str]:
    """Names of all endpoints that carry our tag."""
    for page in clients.sagemaker.get_paginator("list_endpoints").paginate():
        for item in page["Endpoints"]:
            if _owner(clients, item["EndpointArn"]):
                yield item["EndpointName"]


def _storage(
    clients: Clients, account: Account, desired: Sequence[Resource], endpoints: Sequence[str]
) -> Iterator[Existing]:
    bucket = bucket_name(account)
    try:
        clients.s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=account.id)
    except ClientError as error:
        if is_missing(error):
            return
        raise
    uses = _uses(clients, bucket)
    yield Existing(
        "Bucket", bucket, True, tuple(sorted({user for users in uses.values() for user in users})), {"Bucket": bucket}
    )
    wanted = {item.name: item for item in desired if item.kind == "Weights"}
    for weights, users in sorted(uses.items()):
        for user in users:
            if user in endpoints:
                name = f"{weights}/{user}"
                yield Existing("WeightsUse", name, True, (user,), {"Bucket": bucket, "Key": f"{USES_PREFIX}{name}"})
        if weights in wanted or set(users) & set(endpoints):
            yield _weights(clients, bucket, weights, users, wanted.get(weights))


def _uses(clients: Clients, bucket: str) -> dict[str, tuple[str, ...]]:
    """Which endpoints use which weights, from the marks in S3."""
    uses: dict[str, tuple[str, ...]] = {}
    for key in _sizes(clients, bucket, USES_PREFIX):
        weights, _, endpoint = key.removeprefix(USES_PREFIX).partition("/")
        uses[weights] = (*uses.get(weights, ()), endpoint)
    return uses


def _weights(clients: Clients, bucket: str, name: str, users: tuple[str, ...], wanted: Resource | None) -> Existing:
    prefix = f"{WEIGHTS_PREFIX}{name}/"
    sizes = _sizes(clients, bucket, prefix)
    files = wanted.request["Files"] if wanted else []
    there = sum(sizes.get(prefix + file["path"]) == file["size"] for file in files)
    return Existing("Weights", name, True, users, {"Bucket": bucket, "Prefix": prefix, "Files": there})


def _sizes(clients: Clients, bucket: str, prefix: str) -> dict[str, int]:
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", [])}


def _role(clients: Clients, endpoint: str) -> Iterator[Existing]:
    name = role_name(endpoint)
    try:
        tags = clients.iam.list_role_tags(RoleName=name)["Tags"]
    except ClientError as error:
        if is_missing(error):
            return
        raise
    owner = _tag(tags)
    yield Existing("Role", name, owner is not None, (owner or "",), {})
    try:
        document = clients.iam.get_role_policy(RoleName=name, PolicyName=ROLE_POLICY_NAME)["PolicyDocument"]
    except ClientError as error:
        if is_missing(error):
            return
        raise
    text = document if isinstance(document, str) else json.dumps(document)
    yield Existing("RolePolicy", name, owner is not None, (owner or "",), {"PolicyDocument": text})


def _models(clients: Clients, endpoint: str) -> Iterator[Existing]:
    for page in clients.sagemaker.get_paginator("list_models").paginate(NameContains=endpoint):
        for item in page["Models"]:
            if _owner(clients, item["ModelArn"]) == endpoint:
                yield Existing("Model", item["ModelName"], True, (endpoint,), {})


def _configs(clients: Clients, endpoint: str) -> Iterator[Existing]:
    for page in clients.sagemaker.get_paginator("list_endpoint_configs").paginate(NameContains=endpoint):
        for item in page["EndpointConfigs"]:
            if _owner(clients, item["EndpointConfigArn"]) == endpoint:
                yield Existing("EndpointConfig", item["EndpointConfigName"], True, (endpoint,), {})


def _endpoint(clients: Clients, endpoint: str) -> Iterator[Existing]:
    try:
        answer = clients.sagemaker.describe_endpoint(EndpointName=endpoint)
    except ClientError as error:
        if is_missing(error):
            return
        raise
    owner = _owner(clients, answer["EndpointArn"])
    # While an update is under way, EndpointConfigName is still the old one.
    config = answer.get("PendingDeploymentSummary", answer)["EndpointConfigName"]
    state = {"EndpointStatus": answer["EndpointStatus"], "EndpointConfigName": config}
    yield Existing("Endpoint", endpoint, owner is not None, (owner or "",), state)


def _owner(clients: Clients, arn: str) -> str | None:
    return _tag(clients.sagemaker.list_tags(ResourceArn=arn)["Tags"])


def _tag(tags: Sequence[Mapping[str, Any]]) -> str | None:
    return next((tag["Value"] for tag in tags if tag["Key"] == ENDPOINT_TAG), None)
