"""Carry out one action of a plan with boto3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.apply.progress import Progress
from toolkit.errors import PlatformError
from toolkit.planning.names import ENDPOINT_TAG, PREVIOUS_TAG, ran_before
from toolkit.planning.plan import Action
from toolkit.planning.resources import Kind
from toolkit.platforms.sagemaker import repository, watching
from toolkit.platforms.sagemaker.build import build_image
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import is_missing
from toolkit.platforms.sagemaker.staging import delete_prefix, stage_weights
from toolkit.platforms.sagemaker.tags import by_key, sagemaker_tags
from toolkit.recipe.lock import OpenFiles

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import TagTypeDef

# A role that was just made is not known everywhere at once: SageMaker refuses it for some seconds.
_ROLE_ATTEMPTS = 12
_ROLE_PAUSE_SECONDS = 5.0
_ROLE_UNKNOWN = ("assume role", "role exists")
_EXISTS = ("already existing", "already exists")


def create(
    clients: Clients, action: Action, progress: Progress, open_files: OpenFiles, sleep: Callable[[float], None]
) -> None:
    """Make the resource with the action's own request, under the lease; one of ours that is there already stays.

    Raises PlatformError when what is there is another's, or an endpoint that runs something else.
    """
    for attempt in range(1, _ROLE_ATTEMPTS + 1):
        try:
            _create(clients, action, progress, open_files)
        except ClientError as error:
            message = error.response["Error"].get("Message", "")
            if any(words in message for words in _EXISTS):
                _require_ours(clients, action)
                return
            if attempt == _ROLE_ATTEMPTS or not any(words in message for words in _ROLE_UNKNOWN):
                raise
            progress.update("the new role is not known everywhere yet")
            sleep(_ROLE_PAUSE_SECONDS)
        else:
            return


def _require_ours(clients: Clients, action: Action) -> None:
    """Raise PlatformError unless what exists is what the request makes: by its tag, an endpoint by what it runs too."""
    wanted = action.request.get("Tags", {})
    owner = (wanted if isinstance(wanted, Mapping) else by_key(wanted)).get(ENDPOINT_TAG)
    if owner is None or _tags(clients, action).get(ENDPOINT_TAG) != owner:
        raise PlatformError(
            f"{action.kind} {action.name} exists and was not made by the toolkit for this endpoint",
            hint="Give the recipe another `name:`; what is not tagged as ours is never changed.",
        )
    if action.kind == "Endpoint":  # others have their content in their names, or are brought to it when they are made
        runs = clients.sagemaker.describe_endpoint(EndpointName=action.name)["EndpointConfigName"]
        if runs != action.request["EndpointConfigName"]:
            raise PlatformError(f"somebody else made endpoint {action.name} in this moment, and it runs {runs}")


def _tags(clients: Clients, action: Action) -> dict[str, str]:
    name, sagemaker = action.name, clients.sagemaker
    match action.kind:
        case "Role":
            return by_key(clients.iam.list_role_tags(RoleName=name)["Tags"])
        case "ScalableTarget":
            return watching.tags_of_target(clients, name)
        case "TrainingJob":
            arn = sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobArn"]
        case "Model":
            arn = sagemaker.describe_model(ModelName=name)["ModelArn"]
        case "EndpointConfig":
            arn = sagemaker.describe_endpoint_config(EndpointConfigName=name)["EndpointConfigArn"]
        case "Endpoint":
            arn = sagemaker.describe_endpoint(EndpointName=name)["EndpointArn"]
        case "InferenceComponent":
            arn = sagemaker.describe_inference_component(InferenceComponentName=name)["InferenceComponentArn"]
        case _:
            return {}
    return sagemaker_tags(clients, arn)


def _create(clients: Clients, action: Action, progress: Progress, open_files: OpenFiles) -> None:
    request: Any = action.request
    match action.kind:
        case "Bucket" | "WeightsUse" | "Weights":
            _store(clients, action, progress, open_files)
        case "Repository":
            repository.create_repository(clients, request)
        case "Image":
            build_image(clients, request, progress)
        case "Role":
            clients.iam.create_role(**request)
        case "RolePolicy":
            clients.iam.put_role_policy(**request)
        case "TrainingJob" | "Model" | "EndpointConfig" | "Endpoint" | "InferenceComponent":
            _create_in_sagemaker(clients, action.kind, request)
        case _:
            watching.create(clients, action.kind, request)


def _create_in_sagemaker(clients: Clients, kind: Kind, request: Any) -> None:
    match kind:
        case "TrainingJob":
            clients.sagemaker.create_training_job(**request)
        case "Model":
            clients.sagemaker.create_model(**request)
        case "EndpointConfig":
            clients.sagemaker.create_endpoint_config(**request)
        case "Endpoint":
            clients.sagemaker.create_endpoint(**request)
        case "InferenceComponent":
            clients.sagemaker.create_inference_component(**request)


def _store(clients: Clients, action: Action, progress: Progress, open_files: OpenFiles) -> None:
    """For the bucket itself nothing is left to do: the lease under which we make things lies in it."""
    request: Any = action.request
    if action.kind == "WeightsUse":
        clients.s3.put_object(**request, Body=b"")
    elif action.kind == "Weights":
        stage_weights(clients, request, progress, open_files)


def create_bucket(clients: Clients, request: Mapping[str, Any]) -> None:
    """Make the toolkit's bucket, unless it is there. Nothing in it is public, all is encrypted: S3's defaults."""
    try:
        clients.s3.create_bucket(**request)
    except ClientError as error:
        if error.response["Error"]["Code"] != "BucketAlreadyOwnedByYou":
            raise


def update(clients: Clients, action: Action, progress: Progress, open_files: OpenFiles) -> None:
    """Bring an existing resource, with which nothing is under way, to what the request says."""
    match action.kind:
        case "Endpoint":
            _update_endpoint(clients, action)
        case "InferenceComponent":
            _update_component(clients, action)
        case "TrainingJob":
            pass  # one that runs already, and is waited for
        case _:  # weights half uploaded, a role policy, an alarm: making them again is what updates them
            _create(clients, action, progress, open_files)


def _update_endpoint(clients: Clients, action: Action) -> None:
    request: Any = action.request
    described = clients.sagemaker.describe_endpoint(EndpointName=action.name)
    arn, running = described["EndpointArn"], described["EndpointConfigName"]
    if running == request["EndpointConfigName"]:  # what was under way has come to that
        return
    # Before the update, so that there is no moment at which nobody knows what ran before; and with what ran before
    # that, which is still what it goes back to when the update never comes.
    older = ran_before(sagemaker_tags(clients, arn).get(PREVIOUS_TAG), running)
    previous: TagTypeDef = {
        "Key": PREVIOUS_TAG,
        "Value": running if older in (None, running) else f"{older} {running}",
    }
    clients.sagemaker.add_tags(ResourceArn=arn, Tags=[previous])
    try:
        clients.sagemaker.update_endpoint(**request)
    except ClientError:
        # Refused because it is being updated: by an earlier try, whose answer was lost?
        described = clients.sagemaker.describe_endpoint(EndpointName=action.name)
        coming = described.get("PendingDeploymentSummary", {}).get("EndpointConfigName")
        if request["EndpointConfigName"] not in (described["EndpointConfigName"], coming):
            raise


def _update_component(clients: Clients, action: Action) -> None:
    request: Any = action.request
    if _component(clients, action.name) == ("InService", request["Specification"]["ModelName"]):
        return  # what was under way has come to that
    try:
        clients.sagemaker.update_inference_component(**request)
    except ClientError:
        status, model = _component(clients, action.name)
        # It was settled: only an earlier try of ours, whose answer was lost, can have set it in motion.
        if status != "Updating" and model != request["Specification"]["ModelName"]:
            raise


def _component(clients: Clients, name: str) -> tuple[str, str | None]:
    """Its status and its model."""
    described = clients.sagemaker.describe_inference_component(InferenceComponentName=name)
    return described["InferenceComponentStatus"], described.get("Specification", {}).get("ModelName")


def delete(clients: Clients, action: Action) -> None:
    """Remove the resource; that it is gone already, or going, is fine."""
    try:
        _delete(clients, action)
    except ClientError as error:
        # A bucket in which somebody else's lease or weights lie stays.
        is_used = error.response["Error"]["Code"] == "BucketNotEmpty"
        if not (is_used or is_missing(error) or _is_going(clients, action)):
            raise


def _is_going(clients: Clients, action: Action) -> bool:
    """Whether an earlier try, whose answer was lost, has begun to delete it: SageMaker refuses a second one."""
    sagemaker, name, status = clients.sagemaker, action.name, ""
    try:
        if action.kind == "Endpoint":
            status = sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"]
        elif action.kind == "InferenceComponent":
            status, _ = _component(clients, name)
        elif action.kind == "TrainingJob":
            job = sagemaker.describe_training_job(TrainingJobName=name)
            status = "Deleting" if job["TrainingJobStatus"] != "InProgress" else ""  # it has ended, or is about to
    except ClientError as error:
        if is_missing(error):
            return True
        raise
    return status == "Deleting"


def _delete(clients: Clients, action: Action) -> None:
    request: Any = action.request
    match action.kind:
        case "Bucket":
            # The lease under which we delete.
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
        case "TrainingJob" | "Model" | "EndpointConfig" | "Endpoint" | "InferenceComponent":
            _delete_in_sagemaker(clients, action.kind, action.name)
        case _:
            watching.delete(clients, action.kind, action.name)


def _delete_in_sagemaker(clients: Clients, kind: Kind, name: str) -> None:
    """By name: the request of a replacement is the one that creates."""
    match kind:
        case "TrainingJob":
            clients.sagemaker.stop_training_job(TrainingJobName=name)  # it stays in SageMaker's list
        case "Model":
            clients.sagemaker.delete_model(ModelName=name)
        case "EndpointConfig":
            clients.sagemaker.delete_endpoint_config(EndpointConfigName=name)
        case "Endpoint":
            clients.sagemaker.delete_endpoint(EndpointName=name)
        case "InferenceComponent":
            clients.sagemaker.delete_inference_component(InferenceComponentName=name)
