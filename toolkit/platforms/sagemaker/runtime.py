"""Requests to an endpoint: InvokeEndpoint and InvokeEndpointWithResponseStream."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.eventstream import ParserError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    EventStreamError,
    ProxyConnectionError,
)
from urllib3.exceptions import HTTPError

from toolkit import documents
from toolkit.endpoint import refusal
from toolkit.endpoint.platform import VARIANT_MARK
from toolkit.endpoint.refusal import retry
from toolkit.errors import EndpointNotFound, InvocationError
from toolkit.platforms.sagemaker.errors import hint_for
from toolkit.platforms.sagemaker.refusal import by_sagemaker

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


def invoke(
    client: SageMakerRuntimeClient,
    endpoint: str,
    body: Mapping[str, Any],
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    answer = _asked(client.invoke_endpoint, endpoint, body, sleep)
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
    answer = _asked(client.invoke_endpoint_with_response_stream, endpoint, body, sleep)
    try:
        with closing(answer["Body"]) as events:  # also when the caller has had enough
            for event in events:
                yield event.get("PayloadPart", {}).get("Bytes", b"")
    except _BROKEN as error:
        raise refusal.broken_off(endpoint, error) from error


def _asked(call: Callable[..., T], endpoint: str, body: Mapping[str, Any], sleep: Callable[[float], None]) -> T:
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
            raise _refused(endpoint, error) from error

    return retry(send, sleep)


def _refused(endpoint: str, error: ClientError | BotoCoreError) -> InvocationError | EndpointNotFound:
    if not isinstance(error, ClientError):
        transient = isinstance(error, _NO_CONNECTION)
        return by_sagemaker(endpoint, str(error), transient=transient, hint=hint_for(error))
    code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
    if code == "ModelError":
        details: Mapping[str, Any] = error.response
        said = details.get("OriginalMessage") or message
        return refusal.by_container(endpoint, details.get("OriginalStatusCode", 0), said)
    return by_sagemaker(endpoint, message, transient=code in _BUSY, hint=hint_for(error))
