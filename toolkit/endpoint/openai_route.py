"""Chats streamed over an endpoint's OpenAI route: for event loops, and for those without the `openai` package."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx

from toolkit.endpoint import refusal
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.retry import retried, retried_async
from toolkit.errors import EndpointNotFound, InvocationError

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 70.0  # SageMaker gives a container a minute for its first byte
_BUSY = (429, 503)
_DENIED = (401, 403)
_MAY_NOT = "Ask for sagemaker:CallWithBearerToken on * and sagemaker:InvokeEndpoint in your IAM policy."
# Both this and SageMaker's error codes on this route were seen on a real endpoint in 2026-08 by the authors of
# stdapi-ai/stdapi.ai (tests/test_aws_sagemaker.py), not by us.
_QUOTED = re.compile(r'Received (?:client|server) error \((\d+)\) from \S+ with message "(.*)"', re.DOTALL)


def stream(
    access: OpenAIAccess, endpoint: str, body: Mapping[str, Any], sleep: Callable[[float], None] = time.sleep
) -> Iterator[bytes]:
    """The answer as it comes; parts may end anywhere. Opens a connection of its own.

    Raises EndpointNotFound or InvocationError.
    """

    def send() -> httpx.Response:
        with _transport_errors(endpoint):
            answer = client.send(_request(client, access, access.token(), body), stream=True)
            if answer.is_error:
                answer.read()
                raise _refusal(endpoint, answer)
            return answer

    with httpx.Client(**_settings(access)) as client:
        answer = retried(send, sleep)
        with _broken_stream(endpoint):
            yield from answer.iter_bytes()


async def stream_async(
    access: OpenAIAccess,
    endpoint: str,
    body: Mapping[str, Any],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[bytes]:
    """The same in an event loop."""

    async def send() -> httpx.Response:
        token = await asyncio.to_thread(access.token)  # fresh credentials may have to be fetched for it
        with _transport_errors(endpoint):
            answer = await client.send(_request(client, access, token, body), stream=True)
            if answer.is_error:
                await answer.aread()
                raise _refusal(endpoint, answer)
            return answer

    async with httpx.AsyncClient(**_settings(access)) as client:
        answer = await retried_async(send, sleep)
        with _broken_stream(endpoint):
            async for part in answer.aiter_bytes():
                yield part


def _settings(access: OpenAIAccess) -> dict[str, Any]:
    return {
        "timeout": httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
        "trust_env": not access.loopback,
        "verify": access.tls or _tls(),
    }


@cache
def _tls() -> ssl.SSLContext:
    """Made once: it reads all certificates, which takes 40 ms."""
    return httpx.create_ssl_context()


def _request(
    client: httpx.Client | httpx.AsyncClient, access: OpenAIAccess, token: str, body: Mapping[str, Any]
) -> httpx.Request:
    # An empty model is the one that is served, whatever its name; vLLM refuses a name that it does not serve.
    document = {"model": "", **body}
    headers = {"Authorization": f"Bearer {token}"}
    return client.build_request("POST", f"{access.base_url}/chat/completions", json=document, headers=headers)


@contextmanager
def _transport_errors(endpoint: str) -> Iterator[None]:
    """What can go wrong before there is an answer."""
    try:
        yield
    except httpx.ReadTimeout as error:
        raise InvocationError(
            f"{endpoint}: no answer within {_READ_SECONDS:.0f} s", hint="Ask for fewer tokens, or stream."
        ) from error
    except httpx.TransportError as error:
        raise refusal.by_sagemaker(endpoint, f"{error}", transient=True) from error


@contextmanager
def _broken_stream(endpoint: str) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise InvocationError(f"{endpoint} broke off: {error}", hint="Ask again.") from error


def _refusal(endpoint: str, answer: httpx.Response) -> InvocationError | EndpointNotFound:
    """The container's error, which SageMaker quotes and the local platform passes on as it is; or SageMaker's own."""
    message = refusal.message_in(answer.text)
    if quoted := _QUOTED.match(message):
        return refusal.by_container(endpoint, int(quoted[1]), quoted[2])
    if not _is_sagemakers(answer):
        return refusal.by_container(endpoint, answer.status_code, answer.text)
    hint = _MAY_NOT if answer.status_code in _DENIED else ""
    return refusal.by_sagemaker(endpoint, message, transient=answer.status_code in _BUSY, hint=hint)


def _is_sagemakers(answer: httpx.Response) -> bool:
    """Whether the error is SageMaker's own: its codes are words, vLLM's are numbers; InvokeEndpoint's have a header."""
    if "x-amzn-errortype" in answer.headers or answer.status_code in _DENIED:
        return True
    try:
        return isinstance(answer.json()["error"]["code"], str)
    except (ValueError, KeyError, TypeError):
        return False
