"""Carry out one action of a plan with boto3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.apply.progress import Progress
from toolkit.planning.names import PREVIOUS_TAG
from toolkit.planning.plan import Action
from toolkit.platforms.sagemaker import watching
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import is_missing
from toolkit.platforms.sagemaker.staging import delete_prefix, stage_weights
from toolkit.recipe.lock import OpenFiles

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import TagTypeDef

# A role that was just made is not known everywhere at once: SageMaker refuses it for some seconds.
_ROLE_ATTEMPTS = 12
_ROLE_PAUSE_SECONDS = 5.0
_ROLE_UNKNOWN = ("assume role", "role exists")
_EXISTS = ("already existing", "already exists", "already own")


def create(
    clients: Clients, action: Action, progress: Progress, open_files: OpenFiles, sleep: Callable[[float], None]
) -> None:
    """Make the resource with the action's own request."""
    for attempt in range(1, _ROLE_ATTEMPTS + 1):
        try:
            _create(clients, action, progress, open_files)
        except ClientError as error:
            message = error.response["Error"].get("Message", "")
            if attempt > 1 and any(words in message for words in _EXISTS):
                return
            if attempt == _ROLE_ATTEMPTS or not any(words in message for words in _ROLE_UNKNOWN):
                raise
            progress.update("the new role is not known everywhere yet")
            sleep(_ROLE_PAUSE_SECONDS)
        else:
            return


def _create(clients: Clients, action: Action, progress: Progress, open_files: OpenFiles) -> None:
    request: Any = action.request
    match action.kind:
        case "Bucket":
            create_bucket(clients, request)
        case "WeightsUse":
            clients.s3.put_object(**request, Body=b"")
        case "Weights":
            stage_weights(clients, request, progress, open_files)
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
        case "InferenceComponent":
            clients.sagemaker.create_inference_component(**request)
        case _:
            watching.create(clients, action.kind, request)


def create_bucket(clients: Clients, request: Mapping[str, Any]) -> None:
    """Make the toolkit's bucket, unless it is there. Nothing in it is public, all is encrypted: S3's defaults."""
    try:
        clients.s3.create_bucket(**request)
    except ClientError as error:
        if error.response["Error"]["Code"] != "BucketAlreadyOwnedByYou":
            raise


def update(clients: Clients, action: Action, progress: Progress, open_files: OpenFiles) -> None:
    """Bring an existing resource to what the request says."""
    request: Any = action.request
    match action.kind:
        case "Endpoint":
            described = clients.sagemaker.describe_endpoint(EndpointName=action.name)
            # Before the update, so that there is no moment at which nobody knows what ran before.
            previous: TagTypeDef = {"Key": PREVIOUS_TAG, "Value": described["EndpointConfigName"]}
            clients.sagemaker.add_tags(ResourceArn=described["EndpointArn"], Tags=[previous])
            clients.sagemaker.update_endpoint(**request)
        case "InferenceComponent":
            clients.sagemaker.update_inference_component(**request)
        case _:  # weights half uploaded, a role policy, an alarm: making them again is what updates them
            _create(clients, action, progress, open_files)


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
            # The lease under which we delete; a bucket with anybody else's in it is not empty, and stays.
            clients.s3.delete_object(Bucket=request["Bucket"], Key=request["Lease"])
            clients.s3.delete_bucket(Bucket=request["Bucket"])
        case "WeightsUse":
            clients.s3.delete_object(**request)
        case "Weights":
            clients.s3.delete_object(Bucket=request["Bucket"], Key=request["Mark"])
            delete_prefix(clients, request["Bucket"], request["Prefix"])
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
        case "InferenceComponent":
            clients.sagemaker.delete_inference_component(InferenceComponentName=action.name)
        case _:
            watching.delete(clients, action.kind, action.name)
