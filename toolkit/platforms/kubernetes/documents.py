"""What the API server answers, as far as it is read here: objects and lists of any kind, and its refusals."""

# ruff: noqa: N815 - the names are Kubernetes'
from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from kubernetes.client import ApiException
from pydantic import AfterValidator
from typing_extensions import TypedDict

from toolkit import documents
from toolkit.errors import PlatformError
from toolkit.open_object import OpenObject

_LIMITS = documents.Limits(size=64 * 1024**2, items=2_000_000)


def _check_time(text: str) -> str:
    seconds(text)
    return text


_Time = Annotated[str, AfterValidator(_check_time)]


def seconds(time: str) -> float:
    """Seconds since 1970 of a time as Kubernetes writes it, which may have nanoseconds."""
    whole, dot, fraction = time.removesuffix("Z").partition(".")
    moment = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return moment + float(f"0.{fraction}") if dot else moment


class UnreadableAnswer(PlatformError, ApiException):  # type: ignore[misc]  # the client is not typed
    """What the API server answered is not what it answers to that."""

    def __init__(self, message: str) -> None:
        ApiException.__init__(self, status=200, reason=message)
        self.message = message
        self.hint = "What answers there is not a Kubernetes API server, or a proxy between cut the answer short."


class _Owner(OpenObject):
    uid: str


class _Managed(OpenObject, total=False):
    manager: str
    time: _Time | None
    fieldsV1: dict[str, Any] | None


class _Metadata(OpenObject, total=False):
    annotations: dict[str, str] | None
    creationTimestamp: _Time | None
    deletionTimestamp: _Time | None
    finalizers: list[str] | None
    generation: int
    labels: dict[str, str] | None
    managedFields: list[_Managed] | None
    name: str
    namespace: str
    ownerReferences: list[_Owner] | None
    resourceVersion: str
    uid: str


class _Template(OpenObject, total=False):
    spec: _Spec


class _Selector(OpenObject, total=False):
    matchLabels: dict[str, str]


class _Spec(OpenObject, total=False):
    claimRef: dict[str, str] | None
    holderIdentity: str | None
    leaseDurationSeconds: int | None
    nodeSelector: dict[str, str] | None
    replicas: int
    scaleTargetRef: dict[str, str]
    selector: _Selector
    template: _Template


class _Condition(OpenObject, total=False):
    message: str
    reason: str
    status: str
    type: str


class _Reason(OpenObject, total=False):
    exitCode: int
    message: str
    reason: str


class _State(OpenObject, total=False):
    terminated: _Reason | None
    waiting: _Reason | None


class _Container(OpenObject, total=False):
    lastState: _State | None
    name: str
    restartCount: int
    state: _State | None


class _Status(OpenObject, total=False):
    availableReplicas: int
    conditions: list[_Condition] | None
    containerStatuses: list[_Container] | None
    initContainerStatuses: list[_Container] | None
    observedGeneration: int
    replicas: int
    updatedReplicas: int


class _Object(OpenObject, total=False):
    """An object of any kind; an event has what it says on its top level."""

    eventTime: _Time | None
    lastTimestamp: _Time | None
    message: str
    metadata: _Metadata
    reason: str
    spec: _Spec
    status: _Status


class _Answer(_Object, total=False):
    items: list[_Object]


class _Done(OpenObject, total=False):
    """The answer to a deletion that is done at once. Its `status` is a word, elsewhere it is an object."""

    metadata: _Metadata


class Cause(TypedDict, total=False):
    field: str
    message: str
    reason: str


class _Details(TypedDict, total=False):
    causes: list[Cause] | None


class Refusal(TypedDict, total=False):
    """The Status document of a request that was refused."""

    details: _Details | None
    kind: str
    message: str
    reason: str


def read_answer(content: bytes, asked: str) -> dict[str, Any]:
    """What was answered to `asked`, such as `GET /api/v1/pods`. Raises UnreadableAnswer."""
    try:
        document = documents.parse(dict[str, Any], content, _LIMITS)
        answer = documents.fit(_Done if document.get("kind") == "Status" else _Answer, document)
    except documents.Unfit as error:
        why = "that is not an API server, but perhaps a proxy or a login page"
        raise UnreadableAnswer(f"the answer to {asked} cannot be used: {error}: {why}") from error
    named: dict[str, Any] = documents.named(answer, f"the answer to {asked}", UnreadableAnswer)
    return named
