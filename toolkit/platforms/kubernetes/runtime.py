"""Requests to an endpoint's pods through the API server: invocations, and the engine's page of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

from kubernetes.client import ApiException
from urllib3 import HTTPResponse
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from toolkit import documents
from toolkit.endpoint import refusal
from toolkit.endpoint.metrics import Metrics
from toolkit.endpoint.prometheus import metrics_of_pages
from toolkit.endpoint.refusal import ErrorAnswer, retry
from toolkit.errors import EndpointNotFound, InvocationError
from toolkit.platforms.kubernetes.cluster import Cluster, labels, path
from toolkit.platforms.kubernetes.errors import LOG_IN, REACH, is_unknown, message_of, status_of, way_to_pods
from toolkit.platforms.kubernetes.pods import Document, is_ready
from toolkit.platforms.kubernetes.rollout import pods
from toolkit.platforms.kubernetes.rules.metadata import COMPONENT
from toolkit.platforms.kubernetes.rules.security import PORT

# A model may think for long before its first byte, and is not hurried.
_ANSWER = documents.Limits(seconds=3600.0)
_BUSY = (429, 502, 503, 504)


def proxy(cluster: Cluster, endpoint: str) -> str:
    """The address under which the API server passes requests on to the endpoint's Service."""
    return f"{path('Service', cluster.namespace, endpoint)}:http/proxy"


def invoke(cluster: Cluster, endpoint: str, body: Mapping[str, Any], sleep: Callable[[float], None]) -> dict[str, Any]:
    answer = _ask(cluster, endpoint, body, sleep)
    try:
        with closing(answer):
            return documents.parse(dict[str, Any], documents.collect(answer.stream(), _ANSWER))
    except documents.Unfit as error:
        raise refusal.unusable(endpoint, error) from error
    except HTTPError as error:
        raise refusal.broken_off(endpoint, error) from error


def stream(cluster: Cluster, endpoint: str, body: Mapping[str, Any], sleep: Callable[[float], None]) -> Iterator[bytes]:
    """What breaks off is never asked for again: half an answer has been given."""
    answer = _ask(cluster, endpoint, body, sleep)
    try:
        with closing(answer):  # also when the caller has had enough
            while part := answer.read1():
                yield part
    except HTTPError as error:
        raise refusal.broken_off(endpoint, error) from error


def _ask(cluster: Cluster, endpoint: str, body: Mapping[str, Any], sleep: Callable[[float], None]) -> HTTPResponse:
    """The head of the answer; the body is still to be read."""

    def send() -> HTTPResponse:
        try:
            return cluster.open("POST", f"{proxy(cluster, endpoint)}/invocations", body)
        except ApiException as error:
            raise _refusal(endpoint, error) from error
        except HTTPError as error:
            transient = isinstance(error, ConnectTimeoutError | NewConnectionError)
            message = f"{endpoint}: the cluster does not answer: {error}"
            raise InvocationError(message, hint=REACH, transient=transient) from error

    return retry(send, sleep)


def on_openai_route(endpoint: str, answer: ErrorAnswer) -> InvocationError | EndpointNotFound:
    """An error of the API server, or one of the container that it passes on."""
    error = ApiException(status=answer.status)
    error.body = answer.text
    return _refusal(endpoint, error)


def _refusal(endpoint: str, error: ApiException) -> InvocationError | EndpointNotFound:
    """The API server's own refusal is a Status document; what is none, the container said."""
    if not status_of(error):
        return refusal.by_container(endpoint, error.status, error.body)
    if error.status == 404:
        return EndpointNotFound(f"there is no endpoint {endpoint}", hint="See: toolkit status --platform kubernetes")
    hint = ""
    if is_unknown(error):
        hint = LOG_IN
    elif error.status == 403:
        hint = 'Ask for this RBAC rule: {apiGroups: [""], resources: ["services/proxy"], verbs: ["create", "get"]}'
    elif way := way_to_pods(error):
        hint = way
    elif error.status in _BUSY:
        hint = "None of its pods is ready. See: toolkit status --platform kubernetes"
    return InvocationError(f"{endpoint}: {message_of(error)}", hint=hint, transient=error.status in _BUSY)


def read_metrics(cluster: Cluster, deployment: Document, minutes: int) -> Metrics:
    """Counted since each container's start. Raises ApiException, PlatformError."""
    answering = (pod for pod in pods(cluster, deployment) if labels(pod).get(COMPONENT) != "worker")
    ready = [pod["metadata"]["name"] for pod in answering if is_ready(pod)]
    pages = {
        f"pod {pod}": cluster.read("GET", f"{path('Pod', cluster.namespace, pod)}:{PORT}/proxy/metrics")
        for pod in ready
    }
    return metrics_of_pages(deployment["metadata"]["name"], minutes, pages)
