"""SageMaker's runtime on this machine: requests to an endpoint go to a container of it, answers come back as AWS's.

Three routes, as on AWS: InvokeEndpoint, InvokeEndpointWithResponseStream, and OpenAI's chat completions. All three end
at the container's POST /invocations, and a copy of the request at the shadow variant's. Tokens pass through here, so
the path of a chunk is kept short: no framework object per chunk, and no copy but the frame around it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from toolkit.endpoint.wire import Client, Response, Unreachable
from toolkit.platforms.local import eventstream, sigv4
from toolkit.platforms.local.aws import ACCOUNT, REGION, log_group
from toolkit.platforms.local.host import Address, Target

Resolve = Callable[[str], Sequence[Target] | None]
"""Where requests to the endpoint of that name go; see `Endpoints.targets`."""

# Of a request, by botocore's service model. AWS is said to take 25 MB by now, which could not be verified.
_LARGEST_BODY = 6 * 1024**2
_BODIES_AT_ONCE = 64  # that are being read; the others wait in their connections

_PAGE_SECONDS = 5.0

_TIMED_OUT = (  # SageMaker's words
    "Your invocation timed out while waiting for a response from container primary. Review the latency metrics for "
    "each container in Amazon CloudWatch, resolve the issue, and try again."
)
_TO_CONTAINER = {
    "content-type": "Content-Type",
    "accept": "Accept",
    "x-amzn-sagemaker-accept": "Accept",
    "x-amzn-sagemaker-custom-attributes": "X-Amzn-SageMaker-Custom-Attributes",
    "x-amzn-sagemaker-session-id": "X-Amzn-SageMaker-Session-Id",
    "x-amzn-sagemaker-inference-id": "X-Amzn-SageMaker-Inference-Id",
}
_TO_CALLER = {
    "x-amzn-sagemaker-custom-attributes": "X-Amzn-SageMaker-Custom-Attributes",
    "x-amzn-sagemaker-new-session-id": "X-Amzn-SageMaker-New-Session-Id",
    "x-amzn-sagemaker-closed-session-id": "X-Amzn-SageMaker-Closed-Session-Id",
}


@dataclass(frozen=True)
class Limits:
    """How long a caller may take for its body, and a container for its answer, in seconds. The latter as SageMaker."""

    body_s: float = 60.0
    first_byte_s: float = 60.0
    stream_s: float = 480.0


def gateway(resolve: Resolve, guard: sigv4.Guard, limits: Limits = Limits()) -> Starlette:
    """The ASGI application. `guard` decides who may ask."""
    upstream, reading = _Upstream(), asyncio.Semaphore(_BODIES_AT_ONCE)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        upstream.close()

    def route(path: str, admit: _Admit, relay: _Relay, error: _ErrorBody) -> Route:
        invocation = _Invocation(resolve, upstream, limits, partial(admit, guard), reading, relay, error)
        return Route(f"/endpoints/{{endpoint}}/{path}", invocation, methods=["POST"])

    return Starlette(
        lifespan=lifespan,
        routes=[
            route("invocations", _admit_signed, _relay_whole, _aws_error),
            route("invocations-response-stream", _admit_signed, _relay_as_event_stream, _aws_error),
            route("openai/v1/chat/completions", _admit_bearer, _relay_as_it_is, _openai_error),
            Route("/endpoints/{endpoint}/metrics", _Pages(resolve, upstream, guard), methods=["GET"]),
        ],
    )


class _Upstream:
    """Connections to containers, used again while they are fresh."""

    def __init__(self) -> None:
        self._clients: dict[Address, Client] = {}

    def ask(
        self, address: Address, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AbstractAsyncContextManager[Response]:
        """The answer of a container, from its head on. Raises Unreachable, or OSError for one that breaks off."""
        if address not in self._clients:
            url = f"http://127.0.0.1:{address}" if isinstance(address, int) else f"unix:{address}"
            self._clients[address] = Client(url, relays=True)
        return self._clients[address].send(method, path, headers, body)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


class _RefusedError(Exception):
    """The caller gets an error for an answer."""

    def __init__(self, status: int, code: str, message: str, **details: str | int) -> None:
        super().__init__(message)
        self.status, self.code, self.details = status, code, details


@dataclass(frozen=True)
class _Call:
    """One request on its way to a container."""

    endpoint: str
    target: Target
    body: bytes
    headers: dict[str, str]
    limits: Limits


_Admit = Callable[[sigv4.Guard, Scope, Receive], Awaitable[bytes]]
"""Gives the request's body. Raises AccessError or _RefusedError."""
_Relay = Callable[[_Call, Response, Send], Awaitable[None]]
_ErrorBody = Callable[[_RefusedError], dict[str, Any]]


@dataclass(frozen=True)
class _Invocation:
    """One route, as an ASGI application: choose a container, ask it, relay its answer."""

    resolve: Resolve
    upstream: _Upstream
    limits: Limits
    admit: Callable[[Scope, Receive], Awaitable[bytes]]
    reading: asyncio.Semaphore
    relay: _Relay
    error: _ErrorBody
    copies: set[asyncio.Task[None]] = field(default_factory=set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        endpoint = scope["path_params"]["endpoint"]
        try:
            sigv4.must_be_a_program(headers, scope["server"][1])
            async with self.reading, asyncio.timeout(self.limits.body_s):
                body = await self.admit(scope, receive)
            targets = self.resolve(endpoint)
            target = _choose(endpoint, targets, headers)
            forwarded = {name: headers[key] for key, name in _TO_CONTAINER.items() if key in headers}
            call = _Call(endpoint, target, body, forwarded, self.limits)
        except sigv4.AccessError as exc:
            await self._refuse(_RefusedError(403, exc.code, str(exc)), send)
            return
        except TimeoutError:
            await self._refuse(_RefusedError(408, "RequestTimeout", "The body did not come in time."), send)
            return
        except _RefusedError as exc:
            await self._refuse(exc, send)
            return
        for shadow in _shadows(targets or (), target):
            copy = asyncio.create_task(_mirror(replace(call, target=shadow), self.upstream))
            self.copies.add(copy)  # asyncio itself keeps no task alive
            copy.add_done_callback(self.copies.discard)
        target.requests += 1
        try:
            await _unless_caller_leaves(self._answer(call, send), receive)
        finally:
            target.requests -= 1

    async def _answer(self, call: _Call, send: Send) -> None:
        try:
            with _explained(call):
                async with AsyncExitStack() as stack:
                    async with asyncio.timeout(call.limits.first_byte_s):
                        answer = await stack.enter_async_context(_post(call, self.upstream))
                    await self.relay(call, answer, send)
        except _RefusedError as exc:
            await self._refuse(exc, send)

    async def _refuse(self, error: _RefusedError, send: Send) -> None:
        body = json.dumps(self.error(error)).encode()
        headers = {"Content-Type": "application/json", "x-amzn-ErrorType": error.code}
        # Its body may still be coming, and would be kept.
        if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.REQUEST_TIMEOUT):
            headers["Connection"] = "close"
        await _send_whole(send, error.status, headers, body)


@dataclass(frozen=True)
class _Pages:
    """The Prometheus page of each container of an endpoint, as a JSON list. AWS has no such route."""

    resolve: Resolve
    upstream: _Upstream
    guard: sigv4.Guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            sigv4.must_be_a_program(headers, scope["server"][1])
            self.guard.admit_bearer(headers, REGION)
        except sigv4.AccessError as exc:
            body = json.dumps(_aws_error(_RefusedError(403, exc.code, str(exc)))).encode()
            await _send_whole(send, 403, {"Content-Type": "application/json"}, body)
            return
        targets = self.resolve(scope["path_params"]["endpoint"]) or ()
        pages = [await _page(self.upstream, target) for target in targets if not target.is_shadow]
        found = [page.decode(errors="replace") for page in pages if page is not None]
        await _send_whole(send, 200, {"Content-Type": "application/json"}, json.dumps(found).encode())


def _post(call: _Call, upstream: _Upstream) -> AbstractAsyncContextManager[Response]:
    return upstream.ask(call.target.address, "POST", "/invocations", call.headers, call.body)


async def _page(upstream: _Upstream, target: Target) -> bytes | None:
    """The container's Prometheus page; None if it has none or does not answer."""
    with suppress(OSError):
        async with asyncio.timeout(_PAGE_SECONDS), upstream.ask(target.address, "GET", "/metrics", {}) as answer:
            page = b"".join([piece async for piece in _pieces(answer)])
            return page if _is_ok(answer) else None
    return None


async def _admit_signed(guard: sigv4.Guard, scope: Scope, receive: Receive) -> bytes:
    """InvokeEndpoint and its stream are signed by Signature Version 4."""
    path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    request = sigv4.Received(scope["method"], path, query, Headers(scope=scope))
    signature = sigv4.signature_of(request)
    sigv4.must_be_signed_for_sagemaker(REGION, signature)
    guard.must_know(request, signature)
    body = await _read(receive)
    guard.admit_signed(request, signature, sha256(body).hexdigest())
    return body


async def _admit_bearer(guard: sigv4.Guard, scope: Scope, receive: Receive) -> bytes:
    """OpenAI's clients send a bearer token."""
    guard.admit_bearer(Headers(scope=scope), REGION)
    return await _read(receive)


async def _read(receive: Receive) -> bytes:
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        piece = message.get("body", b"")
        pieces.append(piece)
        size += len(piece)
        if size > _LARGEST_BODY:
            raise _RefusedError(400, "ValidationError", f"The request is larger than {_LARGEST_BODY} bytes.")
        more = message.get("more_body", False)
    return b"".join(pieces)


def _choose(endpoint: str, targets: Sequence[Target] | None, headers: Headers) -> Target:
    if targets is None:
        raise _RefusedError(400, "ValidationError", f"Endpoint {endpoint} of account {ACCOUNT} not found.")
    if component := headers.get("x-amzn-sagemaker-inference-component"):
        raise _RefusedError(400, "ValidationError", f"The local platform has no inference component {component}.")
    targets = [target for target in targets if not target.is_shadow]
    if not targets:
        message = f"No container of endpoint {endpoint} is running; it is restarted."
        raise _RefusedError(503, "ServiceUnavailable", message)
    if wanted := headers.get("x-amzn-sagemaker-target-variant"):
        targets = [target for target in targets if target.variant == wanted]
    if not targets:
        raise _RefusedError(400, "ValidationError", f"Variant {wanted} of endpoint {endpoint} not found.")
    weights = [target.weight for target in targets]
    return random.choices(targets, weights if any(weights) else None)[0]  # noqa: S311


def _shadows(targets: Sequence[Target], chosen: Target) -> list[Target]:
    """The shadow variants that get a copy: as often as their weight is a part of the chosen variant's (unverified)."""
    return [
        target
        for target in targets
        if target.is_shadow and random.random() * chosen.weight < target.weight  # noqa: S311
    ]


async def _mirror(call: _Call, upstream: _Upstream) -> None:
    """Send a copy of a request to a shadow variant; nobody sees its answer, or that there was none."""
    call.target.requests += 1
    try:
        with suppress(OSError):
            async with asyncio.timeout(call.limits.stream_s), _post(call, upstream) as answer:
                async for _ in answer.chunks():
                    pass
    finally:
        call.target.requests -= 1


async def _unless_caller_leaves(answering: Awaitable[None], receive: Receive) -> None:
    """Finish the answer, or drop it when the caller hangs up, so that the model stops working on it."""
    answer, disconnected = asyncio.ensure_future(answering), asyncio.ensure_future(receive())
    try:
        await asyncio.wait((answer, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            answer.result()
    finally:
        for task in (answer, disconnected):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await answer


@contextmanager
def _explained(call: _Call) -> Iterator[None]:
    """What can go wrong with a container, as AWS would say it."""
    try:
        yield
    except TimeoutError as exc:
        raise _model_error(call, 0, _TIMED_OUT) from exc
    except Unreachable as exc:
        message = f"The container of endpoint {call.endpoint} does not take connections; it is restarted."
        raise _RefusedError(503, "ServiceUnavailable", message) from exc
    except OSError as exc:
        raise _model_error(call, 0, f"The container broke the connection: {exc}") from exc


def _model_error(call: _Call, status: int, message: str) -> _RefusedError:
    side = "client" if 400 <= status < 500 else "server"
    return _RefusedError(
        424,
        "ModelError",
        f'Received {side} error ({status}) from primary with message "{message}". '
        f"See {log_group(call.endpoint)} in account {ACCOUNT} for more information.",
        OriginalStatusCode=status,
        OriginalMessage=message,
        LogStreamArn=call.target.log_stream_arn,
    )


async def _relay_whole(call: _Call, answer: Response, send: Send) -> None:
    """InvokeEndpoint: the answer in one piece, or a ModelError."""
    body = await _read_body(call, answer)
    await _send_whole(send, 200, {"Content-Type": _content_type(answer), **_answer_headers(call, answer)}, body)


async def _relay_as_event_stream(call: _Call, answer: Response, send: Send) -> None:
    """InvokeEndpointWithResponseStream: each piece as it arrives, in frames."""
    if not _is_ok(answer):
        await _read_body(call, answer)
    headers = {
        "Content-Type": "application/vnd.amazon.eventstream",
        "X-Amzn-SageMaker-Content-Type": _content_type(answer),
        **_answer_headers(call, answer),
    }
    await send({"type": "http.response.start", "status": 200, "headers": _encoded(headers)})
    last = b""
    try:
        async with asyncio.timeout(call.limits.stream_s):
            async for piece in _pieces(answer):
                frames = eventstream.payload_parts(piece)
                await send({"type": "http.response.body", "body": frames, "more_body": True})
    except TimeoutError:
        last = eventstream.exception("ModelStreamError", _TIMED_OUT, "ModelInvocationTimeExceeded")
    except OSError as exc:
        last = eventstream.exception("ModelStreamError", f"The container broke the stream: {exc}", "StreamBroken")
    await send({"type": "http.response.body", "body": last})


async def _relay_as_it_is(call: _Call, answer: Response, send: Send) -> None:
    """OpenAI's route: status and body are the container's own. A broken stream ends without its last chunk."""
    headers = {"Content-Type": _content_type(answer)}
    await send({"type": "http.response.start", "status": answer.status, "headers": _encoded(headers)})
    with suppress(OSError):
        async with asyncio.timeout(call.limits.stream_s):
            async for piece in _pieces(answer):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _pieces(answer: Response) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises OSError, after all that came."""
    async for chunks in answer.chunks():
        yield b"".join(chunk.content for chunk in chunks)


async def _read_body(call: _Call, answer: Response) -> bytes:
    async with asyncio.timeout(call.limits.first_byte_s):
        body = b"".join([piece async for piece in _pieces(answer)])
    if not _is_ok(answer):
        raise _model_error(call, answer.status, body.decode(errors="replace"))
    return body


def _is_ok(answer: Response) -> bool:
    return answer.status < HTTPStatus.BAD_REQUEST


def _content_type(answer: Response) -> str:
    return answer.headers.get("content-type", "application/octet-stream")


def _answer_headers(call: _Call, answer: Response) -> dict[str, str]:
    passed = {name: answer.headers[key] for key, name in _TO_CALLER.items() if key in answer.headers}
    return {"x-Amzn-Invoked-Production-Variant": call.target.variant, **passed}


async def _send_whole(send: Send, status: int, headers: dict[str, str], body: bytes) -> None:
    headers = {**headers, "Content-Length": str(len(body))}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def _aws_error(error: _RefusedError) -> dict[str, Any]:
    return {"Message": str(error), **error.details}


def _openai_error(error: _RefusedError) -> dict[str, Any]:
    return {"error": {"message": str(error), "type": error.code, **error.details}}
