"""Errors of SageMaker in front of a container, and those of the container that it quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from toolkit import documents
from toolkit.endpoint import refusal
from toolkit.endpoint.refusal import ErrorAnswer
from toolkit.errors import EndpointNotFound, InvocationError

_NOT_FOUND = re.compile(r"(Endpoint|Inference [Cc]omponent) \S+ .*not found")
_BUSY = (429, 503)
_DENIED = (401, 403)
_MAY_NOT = (
    "Ask an administrator to allow sagemaker:CallWithBearerToken on * and sagemaker:InvokeEndpoint in your IAM policy."
)
# Both this and SageMaker's error codes on the OpenAI route were seen on a real endpoint in 2026-08 by the authors of
# stdapi-ai/stdapi.ai (tests/test_aws_sagemaker.py), not by us.
_QUOTED = re.compile(r'Received (?:client|server) error \((\d+)\) from \S+ with message "(.*)"', re.DOTALL)


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
    return by_sagemaker(endpoint, message, transient=answer.status in _BUSY, hint=hint)


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
