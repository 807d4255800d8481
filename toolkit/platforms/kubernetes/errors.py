"""Translate the Kubernetes client's exceptions into the toolkit's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from toolkit import documents
from toolkit.apply.diagnose import diagnose
from toolkit.errors import PlatformError, Unavailable
from toolkit.platforms.kubernetes.documents import Cause, Refusal, UnreadableAnswer

LOG_IN = (
    "Log in again; for EKS: aws eks update-kubeconfig --name CLUSTER, with credentials that its access entries know."
)
REACH = "Check the VPN, the security group of the API server, and `kubectl cluster-info`."
# The words of Kubernetes' RBAC authorizer.
_FORBIDDEN = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
# Of its proxy (apimachinery, pkg/util/proxy): the pod is ready, so it is the way to it that is closed.
_UNREACHED = "error trying to reach service: "
_ANONYMOUS = 'User "system:anonymous"'
_MISSING_KINDS: Mapping[str, str] = {
    "ScaledObject": "This cluster has no KEDA: install it, or remove platform.kubernetes.prometheus.",
    "LeaderWorkerSet": "This cluster has no LeaderWorkerSet: install it, or remove platform.kubernetes.nodes. See: "
    "https://lws.sigs.k8s.io",
    "InferencePool": "This cluster has no Gateway API inference extension: install it, or remove "
    "platform.kubernetes.routing. See: https://gateway-api-inference-extension.sigs.k8s.io",
    "HTTPRoute": "This cluster has no Gateway API: install it, or remove platform.kubernetes.routing. See: "
    "https://gateway-api.sigs.k8s.io",
    "ResourceClaimTemplate": "This cluster has no resource.k8s.io/v1: it needs Kubernetes 1.34, or write "
    "`neuron_devices: device-plugin`.",
    **dict.fromkeys(
        ("PodMonitor", "PrometheusRule"),
        "This cluster has no Prometheus operator: install it, or remove platform.kubernetes.monitors.",
    ),
    "HorizontalPodAutoscaler": "This cluster has no autoscaling/v2: it needs Kubernetes 1.23.",
}


@contextmanager
def api_errors(doing: str) -> Iterator[None]:
    """Turn what the client raises inside into PlatformError: what was being done, the server's words, and a hint.

    It is Unavailable where the same again may work.
    """
    try:
        yield
    except UnreadableAnswer:  # says it all
        raise
    except ApiException as error:
        kind = Unavailable if error.status == 429 or error.status >= 500 else PlatformError
        raise kind(f"{doing}: {message_of(error)} ({error.status})", hint=_hint(error)) from error
    except ConfigException as error:  # an exec plugin that fails, such as `aws eks get-token`
        raise PlatformError(f"{doing}: {error}", hint=LOG_IN) from error
    except HTTPError as error:
        raise Unavailable(f"{doing}: the cluster does not answer: {error}", hint=REACH) from error


def status_of(error: ApiException) -> Refusal:
    """The Status document that the API server sent, empty when that was none: then it came from behind its proxy."""
    try:
        document = documents.parse(Refusal, error.body or "")
    except documents.Unfit:
        return {}
    return document if document.get("kind") == "Status" else {}


def message_of(error: ApiException) -> str:
    return str(status_of(error).get("message") or error.body or error.reason).strip()


def is_unknown(error: ApiException) -> bool:
    """Whether the API server does not know who asks.

    It takes a request without credentials, as after a login program that failed, for one of `system:anonymous`, unless
    it was told to answer 401.
    """
    return error.status == 401 or (error.status == 403 and _ANONYMOUS in message_of(error))


def way_to_pods(error: ApiException) -> str:
    """What to do where the API server does not reach a pod that is ready; empty where something else is wrong."""
    message = message_of(error)
    cause = diagnose((), message, "kubernetes") if _UNREACHED in message else None
    return cause.hint if cause else ""


def causes_of(error: ApiException) -> list[Cause]:
    """Reason, message and field of all that is wrong."""
    return (status_of(error).get("details") or {}).get("causes") or []


def missing_kind(kind: str) -> PlatformError:
    """The error for a kind of objects that the cluster does not know."""
    return PlatformError(f"the cluster does not know the kind {kind}", hint=_MISSING_KINDS.get(kind, ""))


def _hint(error: ApiException) -> str:
    message = message_of(error)
    if is_unknown(error):
        return LOG_IN
    if error.status == 403 and (refused := _FORBIDDEN.search(message)):
        return _allow(refused)
    if way := way_to_pods(error):
        return way
    if error.status in (429, 503, 504):
        return "The API server is busy. Run the same command again in a minute."
    cause = diagnose((), message, "kubernetes")
    return cause.hint if cause else ""


def _allow(refused: re.Match[str]) -> str:
    scope = f"a Role of namespace {refused['namespace']}" if refused["namespace"] else "a ClusterRole"
    rule = f'{{apiGroups: ["{refused["group"]}"], resources: ["{refused["resource"]}"], verbs: ["{refused["verb"]}"]}}'
    return f"Ask for this rule in {scope}: {rule}. `toolkit render RECIPE --part rbac` writes all that its users need."
