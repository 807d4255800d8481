"""Stream chats over an endpoint's OpenAI route, in event loops too, without the `openai` package."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx

from toolkit import documents
from toolkit.endpoint import refusal
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.refusal import retry, retry_async
from toolkit.errors import EndpointNotFound, InvocationError

_LONGEST_ERROR = 64 * 1024
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 70.0  # SageMaker waits a minute for a container's first byte


def stream(
    access: OpenAIAccess,
    endpoint: str,
    body: Mapping[str, Any],
    sleep: Callable[[float], None] = time.sleep,
    read_seconds: float = _READ_SECONDS,
) -> Iterator[bytes]:
    """The answer as it arrives, in chunks that may end anywhere. Opens a new connection.

    At most `read_seconds` may pass before the first chunk, and between two. Raises EndpointNotFound, InvocationError.
    """

    def send() -> httpx.Response:
        with _transport_errors(endpoint, read_seconds):
            answer = client.send(_request(client, access, access.token(), body), stream=True)
            if answer.is_error:
                raise _refusal(access, endpoint, answer, _text(answer.iter_bytes()))
            return answer

    with httpx.Client(**_settings(access, read_seconds)) as client:
        answer = retry(send, sleep)
        with _broken_stream(endpoint):
            yield from answer.iter_bytes()


async def stream_async(
    access: OpenAIAccess,
    endpoint: str,
    body: Mapping[str, Any],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    read_seconds: float = _READ_SECONDS,
) -> AsyncIterator[bytes]:
    """`stream` for event loops."""

    async def send() -> httpx.Response:
        token = await asyncio.to_thread(access.token)  # getting a token may have to fetch credentials
        with _transport_errors(endpoint, read_seconds):
            answer = await client.send(_request(client, access, token, body), stream=True)
            if answer.is_error:
                raise _refusal(access, endpoint, answer, _text([part async for part in _few(answer.aiter_bytes())]))
            return answer

    async with httpx.AsyncClient(**_settings(access, read_seconds)) as client:
        answer = await retry_async(send, sleep)
        with _broken_stream(endpoint):
            async for part in answer.aiter_bytes():
                yield part


def _settings(access: OpenAIAccess, read_seconds: float) -> dict[str, Any]:
    return {
        "timeout": httpx.Timeout(read_seconds, connect=_CONNECT_SECONDS),
        "trust_env": not access.loopback,
        "proxy": access.proxy,
        "verify": access.tls or machine_tls(),
    }


@cache
def machine_tls() -> ssl.SSLContext:
    """This machine's own certificates. Cached, because reading them takes 40 ms."""
    with documents.making_client():
        return httpx.create_ssl_context()


def _request(
    client: httpx.Client | httpx.AsyncClient, access: OpenAIAccess, token: str, body: Mapping[str, Any]
) -> httpx.Request:
    # An empty `model` means the served model, whatever its name; vLLM rejects any other name.
    document = {"model": "", **body}
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
    return client.build_request("POST", f"{access.base_url}/chat/completions", json=document, headers=headers)


@contextmanager
def _transport_errors(endpoint: str, read_seconds: float) -> Iterator[None]:
    """Turn httpx's errors before the first byte into InvocationError."""
    try:
        yield
    except httpx.ReadTimeout as error:
        raise InvocationError(
            f"{endpoint}: no answer within {read_seconds:.0f} s", hint="Request fewer tokens, or stream."
        ) from error
    except httpx.ConnectError as error:
        raise InvocationError(f"{endpoint}: {error}", hint=refusal.not_reached(error), transient=True) from error
    except httpx.TransportError as error:
        raise InvocationError(f"{endpoint}: {error}", hint=refusal.ASKED_AGAIN, transient=True) from error


@contextmanager
def _broken_stream(endpoint: str) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise InvocationError(f"{endpoint}: the answer broke off: {error}", hint="Send the request again.") from error


def _text(parts: Iterable[bytes]) -> str:
    """The beginning of an error: what is longer says no more."""
    content = b""
    for part in parts:
        content += part
        if len(content) >= _LONGEST_ERROR:
            break
    return content[:_LONGEST_ERROR].decode(errors="replace")


async def _few(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The parts up to the longest error."""
    size = 0
    async for part in parts:
        yield part
        size += len(part)
        if size >= _LONGEST_ERROR:
            return


def _refusal(
    access: OpenAIAccess, endpoint: str, answer: httpx.Response, text: str
) -> InvocationError | EndpointNotFound:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return access.explain(endpoint, refusal.ErrorAnswer(answer.status_code, text, headers))
