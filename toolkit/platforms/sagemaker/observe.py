"""Read what exists on AWS, and whose it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.planning.names import (
    ENDPOINT_TAG,
    PREVIOUS_TAG,
    STAGED_PREFIX,
    USES_PREFIX,
    WEIGHTS_PREFIX,
    bucket_name,
    compiler,
    is_content_name,
    ran_before,
    role_name,
)
from toolkit.planning.resources import Account, Existing, Kind, Observed, Resource
from toolkit.platforms.sagemaker import repository, training, watching
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import is_missing
from toolkit.platforms.sagemaker.tags import by_key, sagemaker_tags

if TYPE_CHECKING:
    from types_boto3_sagemaker.type_defs import PaginatorConfigTypeDef

_OVERWRITTEN: tuple[Kind, ...] = ("MetricFilter", "Alarm", "Dashboard", "ScalableTarget", "ScalingPolicy")
_PAGES: PaginatorConfigTypeDef = {"PageSize": 100}  # the most; SageMaker gives 10 where nobody says


def observe(clients: Clients, account: Account, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
    """What exists of `desired`, and all that is tagged or marked for one of `endpoints`. Reads only.

    `endpoints` are names of recipes; an endpoint that serves one of them as an inference component belongs to it too.
    Without any, what making tells of is left out: see execute.create.
    """
    if not endpoints:
        return Observed((*_untold(clients, desired), *training.observe(clients, account, desired, endpoints)))
    components = [item for name in endpoints for item in _component(clients, name)]
    hosts = {item.state["EndpointName"] for item in components}
    hosts |= {item.name for item in desired if item.kind == "Endpoint"}
    existing: list[Existing] = [*_storage(clients, account, desired, endpoints), *components]
    existing += repository.observe(clients, desired, endpoints)
    for name in dict.fromkeys((*endpoints, *sorted(hosts))):
        users = _users(clients, name)
        found = [*_role(clients, name), *_models(clients, name), *_configs(clients, name), *_endpoint(clients, name)]
        found += watching.observe(clients, name)
        existing += [replace(item, endpoints=users) if users and item.ours else item for item in found]
        if any(item.kind == "Role" and item.ours for item in found):
            existing += _role_policies(clients, name)
    existing += _compilers(clients, desired, endpoints)
    existing += training.served(account, existing)
    existing += training.observe(clients, account, desired, endpoints)
    return Observed(tuple({(item.kind, item.name): item for item in existing}.values()))


def _compilers(clients: Clients, desired: Sequence[Resource], endpoints: Sequence[str]) -> Iterator[Existing]:
    """The roles that training jobs of the recipes run under, where they are wanted or the recipes go."""
    wanted = {item.name for item in desired if item.kind == "Role"}
    for name in map(compiler, endpoints):
        if not desired or role_name(name) in wanted:
            roles = [*_role(clients, name)]
            yield from roles
            if any(item.ours for item in roles):
                yield from _role_policies(clients, name)


def _untold(clients: Clients, desired: Sequence[Resource]) -> Iterator[Existing]:
    """What exists of that which making would do again, or would do over another's."""
    yield from repository.observe(clients, desired, ())
    if any(item.kind in _OVERWRITTEN for item in desired):
        for item in desired:
            if item.kind == "Endpoint":
                yield from watching.observe(clients, item.name)


def owned_endpoints(clients: Clients) -> Iterator[str]:
    """Names of all endpoints that carry our tag."""
    pages = clients.tagging.get_paginator("get_resources").paginate(
        TagFilters=[{"Key": ENDPOINT_TAG}], ResourceTypeFilters=["sagemaker:endpoint"]
    )
    for page in pages:
        for item in page["ResourceTagMappingList"]:
            yield item["ResourceARN"].rpartition("/")[2]


def _storage(
    clients: Clients, account: Account, desired: Sequence[Resource], endpoints: Sequence[str]
) -> list[Existing]:
    bucket = bucket_name(account)
    try:
        clients.s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=account.id)
        return list(_stored(clients, bucket, desired, endpoints))
    except ClientError as error:
        if is_missing(error):  # or it goes this moment, with somebody's last endpoint
            return []
        raise


def _stored(clients: Clients, bucket: str, desired: Sequence[Resource], endpoints: Sequence[str]) -> Iterator[Existing]:
    uses = _uses(clients, bucket)
    everyone = sorted({user for users in uses.values() for user in users})
    yield Existing("Bucket", bucket, True, tuple(everyone), {"Bucket": bucket})
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
    prefix, mark = f"{WEIGHTS_PREFIX}{name}/", f"{STAGED_PREFIX}{name}"
    state = {"Bucket": bucket, "Prefix": prefix, "Mark": mark}
    if wanted and "Hub" in wanted.request:
        return Existing("Weights", name, True, users, {**state, "Complete": mark in _sizes(clients, bucket, mark)})
    sizes = _sizes(clients, bucket, prefix)
    files = wanted.request["Files"] if wanted else []
    there = sum(sizes.get(prefix + file["path"]) == file["size"] for file in files)
    return Existing("Weights", name, True, users, {**state, "Files": there})


def _sizes(clients: Clients, bucket: str, prefix: str) -> dict[str, int]:
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", [])}


def _role(clients: Clients, endpoint: str) -> Iterator[Existing]:
    name = role_name(endpoint)
    try:
        tags = by_key(clients.iam.list_role_tags(RoleName=name)["Tags"])
    except ClientError as error:
        if is_missing(error):
            return
        raise
    owner = tags.get(ENDPOINT_TAG)
    yield Existing("Role", name, owner is not None, (owner or "",), {})


def _role_policies(clients: Clients, endpoint: str) -> Iterator[Existing]:
    """Of a role that is ours, each for the recipe whose name it has."""
    role = role_name(endpoint)
    try:
        for page in clients.iam.get_paginator("list_role_policies").paginate(RoleName=role):
            for name in page["PolicyNames"]:
                document = clients.iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
                text = document if isinstance(document, str) else json.dumps(document)
                yield Existing("RolePolicy", f"{role}/{name}", True, (name,), {"PolicyDocument": text})
    except ClientError as error:
        if not is_missing(error):
            raise


def _models(clients: Clients, endpoint: str) -> Iterator[Existing]:
    for page in clients.sagemaker.get_paginator("list_models").paginate(NameContains=endpoint, PaginationConfig=_PAGES):
        for item in page["Models"]:
            name = item["ModelName"]
            if is_content_name(endpoint, name) and _owner(clients, item["ModelArn"]) == endpoint:
                yield Existing("Model", name, True, (endpoint,), _model(clients, name))


def _model(clients: Clients, name: str) -> dict[str, Any]:
    """Where in our bucket its files are."""
    container = clients.sagemaker.describe_model(ModelName=name).get("PrimaryContainer", {})
    sources = [container.get("ModelDataSource", {}), *container.get("AdditionalModelDataSources", [])]
    uris = [source.get("S3DataSource", {}).get("S3Uri", "") for source in sources]
    return {"Prefixes": [uri.removeprefix("s3://").partition("/")[2] for uri in uris]}


def _configs(clients: Clients, endpoint: str) -> Iterator[Existing]:
    pages = clients.sagemaker.get_paginator("list_endpoint_configs").paginate(
        NameContains=endpoint, PaginationConfig=_PAGES
    )
    for page in pages:
        for item in page["EndpointConfigs"]:
            name = item["EndpointConfigName"]
            if is_content_name(endpoint, name) and _owner(clients, item["EndpointConfigArn"]) == endpoint:
                yield Existing("EndpointConfig", name, True, (endpoint,), _config(clients, name))


def _config(clients: Clients, name: str) -> dict[str, Any]:
    """Its models, and the instances that it pays for: type (the first of its pools) and number of each variant."""
    described = clients.sagemaker.describe_endpoint_config(EndpointConfigName=name)
    variants = [*described["ProductionVariants"], *described.get("ShadowProductionVariants", [])]
    pools = [pool for variant in variants for pool in variant.get("InstancePools", [])]
    models = {item.get(key) for item in (*variants, *pools) for key in ("ModelName", "ModelNameOverride")}
    instances = [
        [variant.get("InstanceType") or variant["InstancePools"][0]["InstanceType"], variant["InitialInstanceCount"]]
        for variant in variants
    ]
    return {"Models": sorted(model for model in models if model), "Instances": instances}


def _endpoint(clients: Clients, endpoint: str) -> Iterator[Existing]:
    try:
        answer = clients.sagemaker.describe_endpoint(EndpointName=endpoint)
        tags = sagemaker_tags(clients, answer["EndpointArn"])
    except ClientError as error:
        if is_missing(error):
            return
        raise
    owner = tags.get(ENDPOINT_TAG)
    # While an update is under way, EndpointConfigName is still the old one.
    config = answer.get("PendingDeploymentSummary", answer)["EndpointConfigName"]
    state = {
        "EndpointStatus": answer["EndpointStatus"],
        "EndpointConfigName": config,
        "Running": answer["EndpointConfigName"],
        "Previous": ran_before(tags.get(PREVIOUS_TAG), answer["EndpointConfigName"]),
    }
    yield Existing("Endpoint", endpoint, owner is not None, (owner or "",), state)


def _component(clients: Clients, name: str) -> Iterator[Existing]:
    try:
        answer = clients.sagemaker.describe_inference_component(InferenceComponentName=name)
        owner = _owner(clients, answer["InferenceComponentArn"])
    except ClientError as error:
        if is_missing(error):
            return
        raise
    state = {
        "EndpointName": answer["EndpointName"],
        "Status": answer["InferenceComponentStatus"],
        "ModelName": answer.get("Specification", {}).get("ModelName"),
    }
    yield Existing("InferenceComponent", name, owner is not None, (owner or "",), state)


def _users(clients: Clients, endpoint: str) -> tuple[str, ...]:
    """The inference components that live on the endpoint."""
    pages = clients.sagemaker.get_paginator("list_inference_components").paginate(EndpointNameEquals=endpoint)
    return tuple(item["InferenceComponentName"] for page in pages for item in page["InferenceComponents"])


def _owner(clients: Clients, arn: str) -> str | None:
    return sagemaker_tags(clients, arn).get(ENDPOINT_TAG)
