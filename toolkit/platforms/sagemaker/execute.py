"""Carry out one action of a plan with boto3; how, its kind knows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from botocore.exceptions import ClientError

from toolkit.errors import PlatformError, StalePlanError
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.plan import Action
from toolkit.platforms.sagemaker.aws_errors import is_missing, message_of, unless_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.kinds.base import AwsKind, Work, by_key

_ATTEMPTS = 12
# What was just created is not known everywhere at once: for some seconds AWS refuses what names it. Weights are not
# among them ("Could not find model data at"): S3 knows them at once.
_NOT_KNOWN_YET: Mapping[re.Pattern[str], str] = {
    re.compile(r"assume role|role exists"): "waiting until the new role is available",
    re.compile(r"Could not find (model|endpoint configuration|endpoint|inference component) \""): (
        "waiting until AWS knows what was just created"
    ),
}
# What a role may do is not known everywhere at once either. These are errors too, so only a role of which this run has
# changed something is waited for: CreateModel (philschmid/llm-sagemaker-sample#2), CreateTrainingJob
# (aws/amazon-sagemaker-examples#2267), and IAM's own words.
_OF_A_ROLE = re.compile(
    r'Could not access model data at .* role "\S+/(?P<named>[^"/]+)" exists|'
    r'No S3 objects found under .* role "\S+/(?P<job>[^"/]+)" has|'
    r"assumed-role/(?P<taken>[^/]+)/\S+ is not authorized to perform"
)
_FRESH_SECONDS = 300.0
_EXISTS = ("already existing", "already exists")


@dataclass(frozen=True)
class FreshRoles:
    """Roles that this run has made or given other rights, by name, and when."""

    clock: Callable[[], float] = time.monotonic
    _changed: dict[str, float] = field(default_factory=dict)

    def note(self, action: Action) -> None:
        """Remember what the action has done to a role."""
        if action.kind in ("Role", "RolePolicy"):
            self._changed[action.request["RoleName"]] = self.clock()

    def may_explain(self, message: str) -> bool:
        """Whether AWS's refusal may be because a role's rights are not known everywhere yet."""
        found = _OF_A_ROLE.search(message)
        changed = self._changed.get(next(filter(None, found.groups()))) if found else None
        return changed is not None and self.clock() - changed < _FRESH_SECONDS


def create(kind: AwsKind, work: Work, action: Action, pause: Callable[[], None], fresh_roles: FreshRoles) -> None:
    """Make the resource with the action's own request, under the lease; one of ours that exists already stays.

    Raises PlatformError when what exists is another's, or an endpoint that runs something else.
    """
    try:
        _retry(lambda: kind.create(work, action.request), work, pause, fresh_roles)
    except ClientError as error:
        if not any(words in message_of(error) for words in _EXISTS):
            raise
        _require_ours(kind, work.clients, action)


def update(kind: AwsKind, work: Work, action: Action, pause: Callable[[], None], fresh_roles: FreshRoles) -> None:
    """Change the existing resource with the action's own request."""
    _retry(lambda: kind.update(work, action.request), work, pause, fresh_roles)


def _retry(call: Callable[[], None], work: Work, pause: Callable[[], None], fresh_roles: FreshRoles) -> None:
    """Call again while AWS does not know yet what the request names, twelve times: a minute, if a pause takes 5 s."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            call()
        except ClientError as error:
            message = message_of(error)
            waiting = next((text for words, text in _NOT_KNOWN_YET.items() if words.search(message)), None)
            if fresh_roles.may_explain(message):
                waiting = "waiting until the role's new rights are known everywhere"
            if waiting is None or attempt == _ATTEMPTS:
                raise
            work.progress.update(waiting)
            pause()
        else:
            return


def delete(kind: AwsKind, clients: Clients, action: Action, sleep: Callable[[float], None] = time.sleep) -> None:
    """Remove the resource, and before what would bring it back; that it is gone already, or going, is fine."""
    try:
        if action.kind == "Weights":
            from toolkit.platforms.sagemaker.staging_job import stop_jobs

            stop_jobs(clients, action.request["Bucket"], action.request["Prefix"], sleep)
        kind.delete(clients, action.name, action.request)
    except ClientError as error:
        if is_missing(error) or unless_missing(clients, partial(kind.is_going, clients, action.name)) is not False:
            return
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
        hint = "Look at what changes now: toolkit plan RECIPE"
        raise StalePlanError(f"somebody else has just created endpoint {action.name}, which runs {runs}", hint=hint)
