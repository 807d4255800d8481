"""Requests to an endpoint: InvokeEndpoint, InvokeEndpointWithResponseStream, and what OpenAI clients need."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.eventstream import ParserError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    EventStreamError,
    NoCredentialsError,
    ProxyConnectionError,
)
from urllib3.exceptions import HTTPError

from toolkit import documents
from toolkit.endpoint import refusal
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.platform import VARIANT_MARK
from toolkit.endpoint.refusal import ErrorAnswer, retry
from toolkit.errors import EndpointNotFound, InvocationError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors, hint_for

if TYPE_CHECKING:
    from types_boto3_sagemaker_runtime import SageMakerRuntimeClient

T = TypeVar("T")

_BUSY = (
    "ThrottlingException",
    "Throttling",
    "TooManyRequestsException",
    "ServiceUnavailable",
    "InternalFailure",
    "ModelNotReadyException",
)
_NO_CONNECTION = (EndpointConnectionError, ConnectTimeoutError, ConnectionClosedError, ProxyConnectionError)
# botocore lets urllib3's errors through while a body is read.
_BROKEN = (EventStreamError, BotoCoreError, HTTPError, ParserError)
_NOT_FOUND = re.compile(r"(Endpoint|Inference [Cc]omponent) \S+ .*not found")
_BUSY_STATUS = (429, 503)
_DENIED = (401, 403)
_MAY_NOT = (
    "Ask an administrator to allow sagemaker:CallWithBearerToken on * and sagemaker:InvokeEndpoint in your IAM policy."
)
# Both this and SageMaker's error codes on the OpenAI route were seen on a real endpoint in 2026-08 by the authors of
# stdapi-ai/stdapi.ai (tests/test_aws_sagemaker.py), not by us.
_QUOTED = re.compile(r'Received (?:client|server) error \((\d+)\) from \S+ with message "(.*)"', re.DOTALL)
# The control plane's name without a region, in every partition; the region is in the signature.
_HOST = "sagemaker.amazonaws.com"
_LIFETIME_SECONDS = 900


def invoke(
    client: SageMakerRuntimeClient,
    endpoint: str,
    body: Mapping[str, Any],
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    answer = _ask(client.invoke_endpoint, endpoint, body, sleep)
    try:
        return refusal.parse_answer(endpoint, answer["Body"].read(documents.LIMITS.size + 1))
    except _BROKEN as error:
        raise refusal.broken_off(endpoint, error) from error


def stream(
    client: SageMakerRuntimeClient,
    endpoint: str,
    body: Mapping[str, Any],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """What breaks off is never asked for again: half an answer has been given."""
    answer = _ask(client.invoke_endpoint_with_response_stream, endpoint, body, sleep)
    try:
        with closing(answer["Body"]) as events:  # also when the caller has had enough
            for event in events:
                yield event.get("PayloadPart", {}).get("Bytes", b"")
    except _BROKEN as error:
        raise refusal.broken_off(endpoint, error) from error


def _ask(call: Callable[..., T], endpoint: str, body: Mapping[str, Any], sleep: Callable[[float], None]) -> T:
    """The head of the answer; the body is still to be read."""
    address, _, component = endpoint.partition("/")
    name, _, variant = address.partition(VARIANT_MARK)
    request = {"EndpointName": name, "Body": json.dumps(body).encode(), "ContentType": "application/json"}
    if component:
        request["InferenceComponentName"] = component
    if variant:
        request["TargetVariant"] = variant

    def send() -> T:
        try:
            return call(**request)
        except (ClientError, BotoCoreError) as error:
            raise _refusal(endpoint, error) from error

    return retry(send, sleep)


def _refusal(endpoint: str, error: ClientError | BotoCoreError) -> InvocationError | EndpointNotFound:
    if not isinstance(error, ClientError):
        transient = isinstance(error, _NO_CONNECTION)
        return by_sagemaker(endpoint, str(error), transient=transient, hint=hint_for(error))
    code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
    if code == "ModelError":
        details: Mapping[str, Any] = error.response
        said = details.get("OriginalMessage") or message
        return refusal.by_container(endpoint, details.get("OriginalStatusCode", 0), said)
    return by_sagemaker(endpoint, message, transient=code in _BUSY, hint=hint_for(error))


def by_sagemaker(endpoint: str, message: str, *, transient: bool, hint: str = "") -> InvocationError | EndpointNotFound:
    """SageMaker did not pass the request on. `transient` when it may yet, `hint` when there is a better one."""
    if _NOT_FOUND.match(message):
        return EndpointNotFound(f"there is no endpoint {endpoint} in service", hint="See: toolkit status")
    if "has no capacity" in message:
        hint = "It is scaled to zero. This request makes it scale up: try again in a few minutes."
    elif transient:
        hint = refusal.ASKED_AGAIN
    return InvocationError(f"{endpoint}: {message}", hint=hint, transient=transient)


def on_openai_route(endpoint: str, answer: ErrorAnswer) -> InvocationError | EndpointNotFound:
    """The container's error, which SageMaker quotes and the local platform passes on as it is; or SageMaker's own."""
    message = refusal.message_in(answer.text)
    if quoted := _QUOTED.match(message):
        return refusal.by_container(endpoint, int(quoted[1]), quoted[2])
    if not _is_sagemakers(answer):
        return refusal.of_container(endpoint, answer)
    hint = _MAY_NOT if answer.status in _DENIED else ""
    return by_sagemaker(endpoint, message, transient=answer.status in _BUSY_STATUS, hint=hint)


@dataclass(frozen=True)
class _Error:
    code: str | int


@dataclass(frozen=True)
class _ErrorDocument:
    error: _Error


def _is_sagemakers(answer: ErrorAnswer) -> bool:
    """Whether the error is SageMaker's own: its codes are words, vLLM's are numbers; InvokeEndpoint's have a header."""
    if "x-amzn-errortype" in answer.headers or answer.status in _DENIED:
        return True
    try:
        return isinstance(documents.parse(_ErrorDocument, answer.text).error.code, str)
    except documents.Unfit:
        return False


def openai_access(clients: Clients, endpoint: str) -> OpenAIAccess:
    """Access to an endpoint, or `endpoint/component`. Raises PlatformError without credentials."""
    name, _, component = endpoint.partition("/")
    path = f"{name}/inference-components/{component}" if component else name
    with aws_errors("looking for credentials"):
        runtime = clients.runtime.meta  # knows the partition's domain, FIPS and endpoints of one's own
        credentials = clients.session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
    token = partial(bearer_token, credentials, runtime.region_name)
    return OpenAIAccess(f"{runtime.endpoint_url}/endpoints/{path}/openai/v1", token, explain=on_openai_route)


def bearer_token(credentials: Credentials, region: str, lifetime: int = _LIFETIME_SECONDS) -> str:
    """A token for requests in a region; `lifetime` is in seconds, at most 12 hours. Raises PlatformError.

    It is a presigned request for CallWithBearerToken, which AWS's own `sagemaker.core.token_generator` (2.27.0) makes
    the same way. It costs a tenth of a millisecond and no request, so every request gets a new one: none can expire,
    and credentials that are renewed are used at once.
    """
    request = AWSRequest("POST", f"https://{_HOST}/", {"host": _HOST}, params={"Action": "CallWithBearerToken"})
    with aws_errors("signing a token"):
        frozen = credentials.get_frozen_credentials()  # of one moment: they may be renewed while we sign
        SigV4QueryAuth(frozen, "sagemaker", region, expires=lifetime).add_auth(request)
    signed = str(request.url).removeprefix("https://") + "&Version=1"
    return f"sagemaker-api-key-{base64.b64encode(signed.encode()).decode()}"
