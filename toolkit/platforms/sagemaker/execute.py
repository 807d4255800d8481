"""Carry out one action of a plan with boto3."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.apply.progress import Progress
from toolkit.planning.plan import Action
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import is_missing

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import ObjectIdentifierTypeDef

# DeleteObjects takes at most 1000 keys.
_DELETE_BATCH = 1000


def create(clients: Clients, action: Action, progress: Progress) -> None:
    """Make the resource with the action's own request."""
    request: Any = action.request
    match action.kind:
        case "Bucket":
            clients.s3.create_bucket(**request)
        case "WeightsUse":
            clients.s3.put_object(**request, Body=b"")
        case "Weights":
            stage_weights(clients, request, progress)
        case "Role":
            clients.iam.create_role(**request)
        case "RolePolicy":
            clients.iam.put_role_policy(**request)
        case "Model":
            clients.sagemaker.create_model(**request)
        case "EndpointConfig":
            clients.sagemaker.create_endpoint_config(**request)
        case "Endpoint":
            clients.sagemaker.create_endpoint(**request)


def update(clients: Clients, action: Action, progress: Progress) -> None:
    """Bring an existing resource to what the request says."""
    if action.kind == "Endpoint":
        name, config = action.request["EndpointName"], action.request["EndpointConfigName"]
        clients.sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=config)
    else:  # weights half uploaded, a role policy: making them again is what updates them
        create(clients, action, progress)


def delete(clients: Clients, action: Action) -> None:
    """Remove the resource; that it is gone already is fine."""
    try:
        _delete(clients, action)
    except ClientError as error:
        if not is_missing(error):
            raise


def _delete(clients: Clients, action: Action) -> None:
    request: Any = action.request
    match action.kind:
        case "Bucket":
            clients.s3.delete_bucket(**request)
        case "WeightsUse":
            clients.s3.delete_object(**request)
        case "Weights":
            _delete_prefix(clients, request["Bucket"], request["Prefix"])
        case "Role":
            clients.iam.delete_role(**request)
        case "RolePolicy":
            clients.iam.delete_role_policy(**request)
        case "Model":
            clients.sagemaker.delete_model(**request)
        case "EndpointConfig":
            clients.sagemaker.delete_endpoint_config(**request)
        case "Endpoint":
            # Not `request`: that of a replacement is the one that creates.
            clients.sagemaker.delete_endpoint(EndpointName=action.name)


def stage_weights(clients: Clients, request: Mapping[str, Any], progress: Progress) -> None:
    """Upload the files that S3 lacks. The prefix says their content, so a file there of that size is that file."""
    bucket, prefix = request["Bucket"], request["Prefix"]
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    there = {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", [])}
    for file in request["Files"]:
        key = prefix + file["path"]
        if there.get(key) != file["size"]:
            progress.update(f"{file['path']} ({file['size'] / 1e6:.1f} MB)")
            clients.s3.upload_file(str(Path(request["Source"]) / file["path"]), bucket, key)


def _delete_prefix(clients: Clients, bucket: str, prefix: str) -> None:
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys: list[ObjectIdentifierTypeDef] = [{"Key": item["Key"]} for page in pages for item in page.get("Contents", [])]
    for start in range(0, len(keys), _DELETE_BATCH):
        clients.s3.delete_objects(Bucket=bucket, Delete={"Objects": keys[start : start + _DELETE_BATCH]})
