"""Connections to served models: any OpenAI-like URL, or an endpoint of a platform."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from toolkit import documents
from toolkit.endpoint import refusal
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.generation import Acceptance
from toolkit.endpoint.openai_route import machine_tls
from toolkit.endpoint.platform import VARIANT_MARK, EndpointPlatform
from toolkit.endpoint.prometheus import acceptance_of_page, counts_drafts
from toolkit.endpoint.wire import Chunk, Client, Response, Unreachable
from toolkit.errors import InvocationError, PlatformError, UsageError
from toolkit.measure.arm import Connection

KEY_VARIABLE = "OPENAI_API_KEY"
"""The environment variable with the key of servers that want one."""

_LONGEST_ERROR = 64 * 1024
_MOST_STREAMS = 256
_PAGE_SECONDS = 60.0  # a list of models, or counters: nothing that has to wait for its turn
_ROUTE = re.compile(r"/((chat/)?completions|models)$")
_INVALID = re.compile(": answered (?:400|422): ")
_NEEDED_FIELDS = {"messages", "stream", "max_tokens", "temperature"}
_OPENAIS_FIELDS = {"stream_options", "user", "frequency_penalty", "presence_penalty"}

Invoke = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class ServedModel:
    """A model as its server lists it.

    vLLM and SGLang tell the folder or the hub's model that it is from; for others `source` is the name that they give
    it. `max_model_len` is None where it is not listed.
    """

    source: str
    max_model_len: int | None = None


@dataclass(frozen=True)
class HttpConnection:
    """Chats over an OpenAI route. `name` is for messages; an empty `model` is the served one, whatever its name.

    Fields of requests that are among `refused` are not sent. What is not generated has to come within `page_seconds`.
    """

    name: str
    access: OpenAIAccess
    client: Client = field(repr=False)
    model: str = ""
    invoker: Invoke | None = field(default=None, repr=False)
    refused: frozenset[str] = frozenset()
    page_seconds: float = _PAGE_SECONDS

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        """The answer to a chat completion. A request that fails is not sent again: that would hide the failure."""
        async with self._answer("POST", f"{self._base}/chat/completions", {"model": self.model, **body}) as response:
            async for chunks in response.chunks():
                yield chunks

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The whole answer to a completion (`prompt`) or a chat (`messages`)."""
        if self.invoker:
            return await self.invoker(body)
        route = "completions" if "prompt" in body else "chat/completions"
        return refusal.parse_answer(
            self.name, await self._read("POST", f"{self._base}/{route}", {"model": self.model, **body})
        )

    async def models(self) -> dict[str, ServedModel]:
        """The models that it serves by name, as far as it lists them. Raises InvocationError."""
        listed = refusal.parse_answer(self.name, await self._read("GET", f"{self._base}/models")).get("data")
        found = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
        return {str(item.get("id")): _served_model(item) for item in found}

    async def acceptance(self) -> Acceptance | None:
        """The acceptance of all drafts since the engine's start; None if its `/metrics` cannot be read or has none."""
        try:
            return acceptance_of_page(await self._metrics(), self.name)
        except PlatformError:
            return None

    async def counts_drafts(self) -> bool:
        """Whether its `/metrics` can be read, and would show drafts if there were any."""
        try:
            return counts_drafts(await self._metrics(), self.name)
        except PlatformError:
            return False

    async def _metrics(self) -> bytes:
        return await self._read("GET", f"{self._base.removesuffix('/v1')}/metrics")

    @property
    def _base(self) -> str:
        return urlsplit(self.access.base_url).path

    async def _read(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        try:
            async with (
                asyncio.timeout(self.page_seconds if method == "GET" else None),
                self._answer(method, path, body) as response,
            ):
                return await _content(response, documents.LIMITS.size)
        except TimeoutError as error:
            late = TimeoutError(f"{path} was not there after {self.page_seconds:g} s")
            raise refusal.broken_off(self.name, late) from error

    @asynccontextmanager
    async def _answer(self, method: str, path: str, body: Mapping[str, Any] | None) -> AsyncIterator[Response]:
        token = await asyncio.to_thread(self.access.token)  # getting a token may have to fetch credentials
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        sent = {key: value for key, value in (body or {}).items() if key not in self.refused}
        content = json.dumps(sent).encode() if sent else b""
        try:
            async with self.client.send(method, path, headers, content) as response:
                if not 200 <= response.status < 300:
                    text = (await _content(response, _LONGEST_ERROR)).decode(errors="replace")
                    answer = refusal.ErrorAnswer(response.status, text, response.headers)
                    raise self.access.explain(self.name, answer)
                yield response
        except Unreachable as error:
            raise InvocationError(f"{self.name}: {error}", hint=refusal.not_reached(error)) from error
        except OSError as error:  # a TimeoutError too
            raise refusal.broken_off(self.name, error) from error


@dataclass(frozen=True)
class InvocationConnection:
    """Chats over the platform's own route: it can name a production variant, and the OpenAI route cannot.

    `name` is the address, such as `chat@AllTraffic`. Chunks are timed where they arrive, in a thread.
    """

    name: str
    platform: EndpointPlatform = field(repr=False)
    threads: Executor = field(repr=False)

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        chunks, loop = self._chunks(body), asyncio.get_running_loop()
        while chunk := await loop.run_in_executor(self.threads, next, chunks, None):
            yield [chunk]

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The whole answer to a completion (`prompt`) or a chat (`messages`)."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, self.platform.invoke, self.name, body)

    async def acceptance(self) -> Acceptance | None:
        """None: an engine's counters cannot be read over this route."""
        return None

    def _chunks(self, body: Mapping[str, Any]) -> Iterator[Chunk]:
        sent = time.perf_counter()
        for content in self.platform.stream(self.name, body):
            yield Chunk(time.perf_counter() - sent, content)


@asynccontextmanager
async def connect_url(url: str, model: str = "", key_variable: str | None = None) -> AsyncIterator[HttpConnection]:
    """A connection to an OpenAI-like server, such as `http://127.0.0.1:9000/v1`.

    `key_variable` names the environment variable that holds the API key. Without `model`, the server's only model is
    asked. Raises UsageError or InvocationError.
    """
    key = _key(key_variable)
    require_address(url)
    access = OpenAIAccess(url.rstrip("/"), lambda: key, explain=_by_server)
    async with _connection(access.base_url, access) as connection:
        yield replace(connection, model=model or await _only_model(connection))


def _by_server(url: str, answer: refusal.ErrorAnswer) -> InvocationError:
    """The error of a server that is known by its URL alone, of which the URL or the key may be what is wrong."""
    error = refusal.of_container(url, answer)
    hint = error.hint
    if answer.status in (401, 403):
        hint = f"Set {KEY_VARIABLE} to the API key that it wants, or correct it."
    elif answer.status == 404 and (base := _ROUTE.sub("", url)) != url:
        hint = f"Write {base}: what comes after it is added."
    elif answer.status == 404:
        route = "" if urlsplit(url).path else f"{url}/v1, where OpenAI's routes are, or "
        hint = f"Write {route}the name of a model that it serves (--model)."
    elif 300 <= answer.status < 400:
        hint = f"Write the address that it sends you to: {answer.headers.get('location', 'it does not say which')}"
    return InvocationError(error.message, hint=hint)


def require_address(url: str) -> None:
    """Raise UsageError unless it is the address of a server, with no secret in it."""
    if not _names_a_server(url):
        hint = "Write it like http://127.0.0.1:9000/v1. An API key is read from an environment variable."
        raise UsageError(f"not the URL of a server: {url}", hint=hint)


def _names_a_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _, host = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:  # no such port, half an IPv6 address, or a host that cannot be looked up
        return False
    return parts.scheme in ("http", "https") and bool(host) and "@" not in parts.netloc and not parts.query


@asynccontextmanager
async def connect_endpoint(platform: EndpointPlatform, address: str) -> AsyncIterator[Connection]:
    """A connection to an endpoint, `endpoint/component`, or `endpoint@variant`.

    Whole answers take the platform's own route.
    """
    if VARIANT_MARK in address:
        threads = ThreadPoolExecutor(_MOST_STREAMS)
        try:
            yield InvocationConnection(address, platform, threads)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        return

    async def invoke(body: Mapping[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(platform.invoke, address, body)

    access = await asyncio.to_thread(platform.openai_access, address)
    async with _connection(address, access, invoke) as connection:
        yield connection


@asynccontextmanager
async def _connection(name: str, access: OpenAIAccess, invoke: Invoke | None = None) -> AsyncIterator[HttpConnection]:
    client = Client(access.base_url, access.tls or machine_tls(), proxy_of(access))
    try:
        yield HttpConnection(name, access, client, invoker=invoke)
    finally:
        client.close()


async def _only_model(connection: HttpConnection) -> str:
    names = [*await connection.models()]
    if len(names) != 1:
        served = f"serves {len(names)} models: {', '.join(names)}" if names else "names no model on /models"
        raise UsageError(f"{connection.name} {served}", hint="Name the model with --model.")
    return names[0]


async def refused_fields(connection: HttpConnection, body: Mapping[str, Any]) -> frozenset[str]:
    """The fields of a chat that its server refuses by their names, as strict ones do with what OpenAI's API has not.

    Empty where it does not answer without them either: then something else is wrong, which the next request tells.
    """
    refused: frozenset[str] = frozenset()
    while True:
        try:
            async for _ in replace(connection, refused=refused).stream(body):
                pass
        except InvocationError as error:
            said = _INVALID.split(error.message, 1)[1:]
            others = body.keys() - refused - _NEEDED_FIELDS
            if not (named := {name for name in others if re.search(rf"\b{name}\b", "".join(said))}):
                return frozenset()
            refused |= named - _OPENAIS_FIELDS or named  # some repeat the whole request in their answer
        else:
            return refused


async def served_model(connection: HttpConnection) -> ServedModel:
    """The model that is asked, as far as its server tells."""
    try:
        models = await connection.models()
    except InvocationError:
        models = {}
    return models.get(connection.model, ServedModel(connection.model))


def _served_model(listed: Mapping[str, Any]) -> ServedModel:
    longest = listed.get("max_model_len")
    known = longest if isinstance(longest, int) and longest > 0 else None
    return ServedModel(str(listed.get("root") or listed.get("id")), known)


def proxy_of(access: OpenAIAccess) -> str | None:
    """The URL of the endpoint's own proxy, or the one that the environment (`HTTPS_PROXY`, `NO_PROXY`, …) sets."""
    if access.proxy:
        return access.proxy
    parts = urlsplit(access.base_url)
    if access.loopback or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _key(variable: str | None) -> str:
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key or not key.isprintable():
        hint = f"Set {variable} to the API key."
        raise UsageError(f"the environment variable {variable} holds no API key", hint=hint)
    return key


async def _content(response: Response, longest: int) -> bytes:
    """The whole body, up to just beyond the longest that is read."""
    content = bytearray()
    async for chunks in response.chunks():
        content += b"".join(chunk.content for chunk in chunks)
        if len(content) > longest:
            break
    return bytes(content)
