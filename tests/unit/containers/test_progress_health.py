"""When an engine counts as stuck: requests wait for it, and it makes no step. vLLM's app is a stand-in here."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FILE = Path(__file__).parents[3] / "containers" / "on-vllm" / "serve_middleware.py"
MIDDLEWARE = runpy.run_path(str(FILE))
APP = SimpleNamespace(state=SimpleNamespace())
PATIENCE = 300.0


class Vllm:
    """An engine whose steps are counted in its metrics, and which answers a request as `finish` and `stream` say."""

    def __init__(self) -> None:
        self.steps = 0
        self.logs_stats = True
        self.finish = asyncio.Event()
        self.stream = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/metrics":
            text = f"process_cpu_seconds_total {id(scope)}\n"
            text += f"vllm:iteration_tokens_total_count {self.steps}\n" if self.logs_stats else ""
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": text.encode()})
            return
        if scope["method"] == "POST":
            while (await receive()).get("more_body"):
                pass
            for go in (self.stream, self.finish):
                await go.wait()
                await send({"type": "http.response.body", "body": b"part", "more_body": go is self.stream})
            return
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"vLLM"})


class Server:
    """The middleware around it, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.vllm, self.now = Vllm(), 0.0
        self.app = MIDDLEWARE["ProgressHealth"](self.vllm, PATIENCE, lambda: self.now)
        self._requests: list[asyncio.Task[None]] = []

    async def ping(self, path: str = "/ping") -> int:
        status: list[int] = []

        async def send(message: Any) -> None:
            status.append(message.get("status", 0))

        async def receive() -> Any:
            return {"type": "http.request"}

        await self.app({"type": "http", "method": "GET", "path": path, "headers": [], "app": APP}, receive, send)
        return status[0]

    async def pings_for(self, seconds: float) -> set[int]:
        """What a ping says every five seconds of that time."""
        seen = set()
        for _ in range(int(seconds // 5)):
            self.now += 5
            seen.add(await self.ping())
        return seen

    async def request(self, body: Iterable[dict[str, Any]] = ({},), reads: bool = True) -> asyncio.Task[None]:
        """A request on its way; its client reads its answer or not."""
        parts = list(body)

        async def receive() -> Any:
            if not parts:
                await asyncio.Event().wait()
            return {"type": "http.request", **parts.pop(0)}

        async def send(_: Any) -> None:
            if not reads:
                await asyncio.Event().wait()

        scope = {"type": "http", "method": "POST", "path": "/invocations"}
        task = asyncio.create_task(self.app(scope, receive, send))
        self._requests.append(task)
        await settle()
        return task


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def story(tell: Callable[[Server], Any]) -> Any:
    async def told() -> Any:
        return await tell(Server())

    return asyncio.run(told())


@pytest.mark.parametrize("path", ["/ping", "/health"])
def test_an_engine_that_makes_no_step_while_a_request_waits_is_stuck(path: str) -> None:
    async def tell(server: Server) -> tuple[set[int], int]:
        await server.request()
        before = await server.pings_for(PATIENCE)
        server.now += 5
        return before, await server.ping(path)

    assert story(tell) == ({200}, 503)


def test_an_engine_that_hangs_in_the_midst_of_a_stream_is_stuck() -> None:
    async def tell(server: Server) -> set[int]:
        server.vllm.stream.set()
        await server.request()
        await server.pings_for(PATIENCE + 5)
        return await server.pings_for(5)

    assert story(tell) == {503}


def test_the_patience_adds_up_over_requests_whose_clients_gave_up() -> None:
    async def tell(server: Server) -> tuple[set[int], set[int]]:
        statuses = []
        for _ in range(2):
            for _ in range(3):
                request = await server.request()
                statuses.append(await server.pings_for(60))
                request.cancel()
                await settle()
                await server.pings_for(3600)
        return set.union(*statuses[:5]), statuses[5]

    assert story(tell) == ({200}, {503})


def test_an_engine_that_goes_on_is_healthy_again() -> None:
    async def tell(server: Server) -> tuple[int, int]:
        await server.request()
        await server.pings_for(PATIENCE + 5)
        stuck = await server.ping()
        server.vllm.steps += 1
        return stuck, await server.ping()

    assert story(tell) == (503, 200)


def test_a_long_prompt_is_many_steps_and_kills_nothing() -> None:
    async def tell(server: Server) -> set[int]:
        await server.request()
        seen = set()
        for _ in range(20):  # each a part of it, and slow
            server.vllm.steps += 1
            seen |= await server.pings_for(PATIENCE - 5)
        return seen

    assert story(tell) == {200}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda server: settle(), id="nobody asks"),
        pytest.param(lambda server: server.request([{"more_body": True}]), id="a body that never ends"),
        pytest.param(lambda server: unread(server), id="a client that does not read"),
        pytest.param(lambda server: unlogged(server), id="no metrics to judge by"),
    ],
)
def test_an_engine_that_nobody_waits_for_is_not_stuck(make: Callable[[Server], Any]) -> None:
    async def tell(server: Server) -> set[int]:
        await make(server)
        return await server.pings_for(10 * PATIENCE)

    assert story(tell) == {200}


async def unread(server: Server) -> None:
    server.vllm.stream.set()
    await server.request(reads=False)


async def unlogged(server: Server) -> None:
    server.vllm.logs_stats = False
    await server.request()


def test_the_patience_is_what_vllm_gives_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MIDDLEWARE["STEP_SECONDS"] == 300
    monkeypatch.setenv("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "900")
    assert runpy.run_path(str(FILE))["STEP_SECONDS"] == 900
