"""What stands between SageMaker and vLLM's server: health checks that are true, and an end that loses no request.

entrypoint.py adds them to vLLM with `--middleware`. They are plain ASGI and know no more of vLLM than its routes, its
keys and how the names of its metrics begin. Standard library only.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COMPLETIONS = "/v1/completions"
# Without a name of a model vLLM takes its own. 32 tokens are several draft steps, however many a step drafts.
REQUEST = {"prompt": "One, two, three,", "max_tokens": 32, "temperature": 0, "ignore_eos": True}

# How long the engine may go without a step while requests wait: as long as vLLM itself gives a step of its workers,
# before it takes them for dead. A step is one batch of at most max_num_batched_tokens, so that a long prompt is many.
STEP_SECONDS = float(os.environ.get("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS") or 300)
METRIC = "vllm:"
LAST = "http.response.body"  # unless it says that there are more

# A file that says that the engine was healthy once (neuron_entrypoint.py).
MARK = os.environ.get("TOOLKIT_MARK_WHEN_HEALTHY")

# SageMaker kills a container 30 s after its SIGTERM; the rest is for vLLM to end its processes. A cluster gives more.
DRAIN_SECONDS = int(os.environ.get("TOOLKIT_DRAIN_SECONDS") or 25)

JSON = (b"content-type", b"application/json")
SHOWN_CHARACTERS = 500
FAILED = "the first generation failed"  # how the reason of a 503 begins that will not change any more


class GenerationHealth:
    """Answers `/ping` with 503 until a generation has gone through `app`.

    vLLM's own `/ping` is 200 as soon as it listens; a drafter that loads and dies in its first step shows only with
    the first request. So the first ping makes that request, through vLLM's own app. Once it has worked vLLM answers.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._attempt: asyncio.Task[None] | None = None
        self._reason = "the first generation has not finished"  # empty from when it has worked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""
        if self._reason and scope["type"] == "http" and scope["path"] == "/ping":
            if self._attempt is None:
                self._attempt = asyncio.create_task(self._generate(scope))
            await _answer_503(send, self._reason)
        else:
            await self._app(scope, receive, send)

    async def _generate(self, ping: Scope) -> None:
        """The first generation; its outcome is the health from then on, and a line in the log."""
        started = time.monotonic()
        status, body = await _ask(self._app, ping, "POST", COMPLETIONS, REQUEST)
        seconds = time.monotonic() - started
        if status == HTTPStatus.OK and (tokens := _tokens(body)):
            self._works()
            _log(f"the first generation worked ({tokens} tokens in {seconds:.2f} s): /ping is vLLM's from here on")
        elif 400 <= status < 500:  # a model that generates nothing, or not from such a request: no sign of a fault
            self._works()
            _log(f"no first generation ({COMPLETIONS} is {status}: {_shown(body)}): /ping is vLLM's from here on")
        else:
            self._reason = f"{FAILED} ({COMPLETIONS} is {status}: {_shown(body)})"
            _log(f"{self._reason}: /ping stays 503")

    def _works(self) -> None:
        """The engine is healthy: what it compiled is complete, which the next start of this container may want."""
        self._reason = ""
        if MARK:
            with suppress(OSError):  # without it the next start compiles again
                Path(MARK).touch()


class ProgressHealth:
    """Answers `/ping` and `/health` with 503 while requests wait and the engine has made no step for a long time.

    vLLM's own health checks see an engine that died, not one that hangs (a stopped process, a deadlock between GPUs).
    Every step changes vLLM's metrics, that of a part of a long prompt too. So it is stuck when they stay the same
    while a request waits, which is one that has come in whole and whose answer is not held up by a slow client.
    The time adds up over requests whose clients gave up. With --disable-log-stats there are no metrics to judge by.
    """

    def __init__(self, app: App, seconds: float = STEP_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._seconds, self._clock = app, seconds, clock
        self._waiting: set[object] = set()
        self._metrics = ""
        self._waited, self._looked_at = 0.0, clock()
        self._is_stuck = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] in ("/ping", "/health"):
            if await self._makes_no_step(scope):
                await _answer_503(send, f"requests wait, and the engine has made no step for {self._waited:.0f} s")
            else:
                await self._app(scope, receive, send)
        elif scope["method"] == "POST":
            await self._request(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Between its last part and its end it waits for the engine, except while its client takes what there is."""
        request = object()

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                self._waiting.add(request)
            return message

        async def sent(message: Message) -> None:
            goes_on = request in self._waiting and (message["type"] != LAST or message.get("more_body"))
            self._waiting.discard(request)
            await send(message)
            if goes_on:
                self._waiting.add(request)

        try:
            await self._app(scope, received, sent)
        finally:
            self._waiting.discard(request)

    async def _makes_no_step(self, ping: Scope) -> bool:
        now = self._clock()
        since, self._looked_at = now - self._looked_at, now
        if not self._waiting and not self._is_stuck:
            return False
        _, text = await _ask(self._app, ping, "GET", "/metrics")
        metrics = "\n".join(line for line in text.splitlines() if line.startswith(METRIC))
        if metrics != self._metrics or not metrics:
            self._metrics, self._waited = metrics, 0.0
        else:
            self._waited += since
        was_stuck, self._is_stuck = self._is_stuck, self._waited >= self._seconds
        if self._is_stuck != was_stuck:
            _log("requests wait, and the engine makes no step" if self._is_stuck else "the engine makes steps again")
        return self._is_stuck


def _interrupt() -> None:
    """Ends vLLM: for it SIGINT is what SIGTERM is, and that one is ours."""
    os.kill(os.getpid(), signal.SIGINT)


class Drain:
    """On SIGTERM lets open requests finish, up to DRAIN_SECONDS, and answers new ones and `/ping` with 503.

    vLLM 0.32.0 by itself closes its port and leaves open streams hanging until their clients give up. With its
    --shutdown-timeout (since 0.18.0) it finishes them, but says 200 to `/ping` and 500 to new requests meanwhile.
    """

    def __init__(self, app: App, seconds: float = DRAIN_SECONDS, end: Callable[[], None] = _interrupt) -> None:
        self._app, self._seconds, self._end = app, seconds, end
        self._open: set[asyncio.Task[Any]] = set()
        self._draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it; or the server's own life, which begins after vLLM has taken the signals."""
        if scope["type"] == "lifespan":
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._drain)
        if scope["type"] != "http" or scope["path"] == "/metrics":
            await self._app(scope, receive, send)
        elif self._draining:
            await _answer_503(send, "the server is shutting down")
        else:
            await self._request(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._app(scope, receive, send)
        finally:
            self._open.remove(task)
            if self._draining and not self._open:
                self._end()

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        _log(f"SIGTERM: {len(self._open)} open requests get up to {self._seconds} s to finish")
        if not self._open:
            self._end()
        asyncio.get_running_loop().call_later(self._seconds, self._cut)

    def _cut(self) -> None:
        for task in self._open:
            task.cancel()


async def _ask(app: App, ping: Scope, method: str, path: str, document: object = None) -> tuple[int, str]:
    """Status and body of a request of our own; 500 and the exception where the app raises one."""
    status, body, content = 0, b"", json.dumps(document).encode() if document else b""
    unread = [{"type": "http.request", "body": content}]

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()  # for ever: this client does not hang up
        return unread.pop()

    async def send(message: Message) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    headers = [JSON, (b"content-length", str(len(content)).encode()), *_authorization(ping)]
    request = {"method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    (error,) = await asyncio.gather(app({**ping, **request, "headers": headers}, receive, send), return_exceptions=True)
    if error:
        return HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"
    return status, body.decode(errors="replace")


def _authorization(ping: Scope) -> list[tuple[bytes, bytes]]:
    """The header that vLLM asks for when it was given keys: by --api-key, else by VLLM_API_KEY.

    vLLM 0.9.1 takes one key only and does not show its arguments; there the key is what entrypoint.py made a flag of.
    """
    args = getattr(ping["app"].state, "args", None)
    given = getattr(args, "api_key", None) or [os.environ.get("SM_VLLM_API_KEY")]
    keys = [*given, os.environ.get("VLLM_API_KEY")]
    return [(b"authorization", f"Bearer {key}".encode()) for key in keys if key][:1]


def _tokens(body: str) -> int:
    """How many tokens the answer says were generated."""
    try:
        return int(json.loads(body)["usage"]["completion_tokens"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return 0


def _shown(body: str) -> str:
    """The body as part of one line."""
    return " ".join(body.split())[:SHOWN_CHARACTERS]


async def _answer_503(send: Send, reason: str) -> None:
    body = json.dumps({"reason": reason}).encode()
    headers = [JSON, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": HTTPStatus.SERVICE_UNAVAILABLE.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _log(message: str) -> None:
    sys.stderr.write(f"serve: {message}\n")
