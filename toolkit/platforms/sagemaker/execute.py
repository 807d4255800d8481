"""Carry out one action of a plan with boto3; how, its kind knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from botocore.exceptions import ClientError

from toolkit.errors import PlatformError
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.plan import Action
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.rules.aws_errors import is_missing, message_of
from toolkit.platforms.sagemaker.rules.kinds.base import AwsKind, Work, by_key

# A role that was just made is not known everywhere at once: SageMaker refuses it for some seconds.
_ROLE_ATTEMPTS = 12
_ROLE_PAUSE_SECONDS = 5.0
_ROLE_UNKNOWN = ("assume role", "role exists")
_EXISTS = ("already existing", "already exists")


def create(kind: AwsKind, work: Work, action: Action, sleep: Callable[[float], None]) -> None:
    """Make the resource with the action's own request, under the lease; one of ours that exists already stays.

    Raises PlatformError when what exists is another's, or an endpoint that runs something else.
    """
    for attempt in range(1, _ROLE_ATTEMPTS + 1):
        try:
            kind.create(work, action.request)
        except ClientError as error:
            message = message_of(error)
            if any(words in message for words in _EXISTS):
                _require_ours(kind, work.clients, action)
                return
            if attempt == _ROLE_ATTEMPTS or not any(words in message for words in _ROLE_UNKNOWN):
                raise
            work.progress.update("waiting until the new role is available")
            sleep(_ROLE_PAUSE_SECONDS)
        else:
            return


def delete(kind: AwsKind, clients: Clients, action: Action) -> None:
    """Remove the resource; that it is gone already, or going, is fine."""
    try:
        kind.delete(clients, action.name, action.request)
    except ClientError as error:
        if not (is_missing(error) or _is_going(kind, clients, action.name)):
            raise


def _require_ours(kind: AwsKind, clients: Clients, action: Action) -> None:
    """Raise PlatformError unless what exists is what the request makes: by its tag, an endpoint by what it runs too."""
    wanted = action.request.get("Tags", {})
    owner = (wanted if isinstance(wanted, Mapping) else by_key(wanted)).get(ENDPOINT_TAG)
    if owner is None or kind.tags(clients, action.name).get(ENDPOINT_TAG) != owner:
        raise PlatformError(
            f"{action.kind} {action.name} exists and was not created by the toolkit for this endpoint",
            hint="Give the recipe another `name:`. The toolkit only changes resources with its own tag.",
        )
    if runs := kind.runs(clients, action.request):
        raise PlatformError(f"somebody else has just created endpoint {action.name}, which runs {runs}")


def _is_going(kind: AwsKind, clients: Clients, name: str) -> bool:
    try:
        return kind.is_going(clients, name)
    except ClientError as error:
        if is_missing(error):
            return True
        raise
