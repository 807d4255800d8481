"""`containers/on-vllm/serve_middleware.py` around a stand-in for vLLM's app."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FILE = Path(__file__).parents[3] / "containers" / "on-vllm" / "serve_middleware.py"


def loaded() -> Any:
    """The module, with the environment as it is."""
    spec = importlib.util.spec_from_file_location("serve_middleware", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


middleware = loaded()

KEY = "hunter2"
GENERATED = {"choices": [{"text": " four"}], "usage": {"completion_tokens": 32}}


@dataclass
class Vllm:
    """vLLM's app: a completion is what the fields say, as soon as it `may_finish`; everything else is 200."""

    status: int = 200
    answer: Any = field(default_factory=lambda: GENERATED)
    error: Exception | None = None
    finishes: bool = True
    completions: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[bytes, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_finish = asyncio.Event()
        if self.finishes:
            self.may_finish.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        status, body = 200, b"vLLM"
        if scope["path"] == "/v1/completions":
            self.headers.append(dict(scope["headers"]))
            self.completions.append(json.loads((await receive())["body"]))
            await self.may_finish.wait()
            if self.error:
                raise self.error
            status, body = self.status, json.dumps(self.answer).encode()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True)
class Answer:
    status: int
    body: str


async def ask(app: Any, path: str, api_key: list[str] | None = None) -> Answer:
    """What a client gets."""
    sent = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    state = SimpleNamespace(args=SimpleNamespace(api_key=api_key))
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "app": SimpleNamespace(state=state)}
    await app(scope, receive, send)
    return Answer(sent[0]["status"], sent[1]["body"].decode())


async def pings(app: Any, api_key: list[str] | None = None) -> list[Answer]:
    """The first ping, and the first two that know how the generation went."""
    first = answer = await ask(app, "/ping", api_key)
    while "not finished" in answer.body:
        await asyncio.sleep(0)
        answer = await ask(app, "/ping", api_key)
    return [first, answer, await ask(app, "/ping", api_key)]


def pings_of(vllm: Vllm, api_key: list[str] | None = None) -> list[Answer]:
    return asyncio.run(pings(middleware.GenerationHealth(vllm), api_key))


# Health.


def test_ping_fails_until_a_generation_has_worked() -> None:
    async def story() -> list[Answer]:
        vllm = Vllm(finishes=False)
        health = middleware.GenerationHealth(vllm)
        before = [await ask(health, "/ping"), await ask(health, "/ping")]
        vllm.may_finish.set()
        return before + await pings(health)

    *before, _, after, later = asyncio.run(story())

    assert [answer.status for answer in before] == [503, 503]
    assert json.loads(before[0].body) == {"reason": "the first generation has not finished"}
    assert after == later == Answer(200, "vLLM")


def test_the_generation_is_several_greedy_draft_steps() -> None:
    vllm = Vllm()

    pings_of(vllm)

    (request,) = vllm.completions
    assert request["max_tokens"] == 32
    assert request["ignore_eos"]
    assert request["temperature"] == 0
    assert "model" not in request


@pytest.mark.parametrize(
    ("vllm", "reason"),
    [
        pytest.param(
            {"status": 500, "answer": {"error": "EngineCore encountered an issue"}}, "EngineCore", id="an error"
        ),
        pytest.param({"error": RuntimeError("missing hidden_states")}, "missing hidden_states", id="an exception"),
        pytest.param({"answer": {"usage": {"completion_tokens": 0}}}, "is 200", id="no token"),
        pytest.param({"answer": "?"}, "is 200", id="no completion"),
    ],
)
def test_a_generation_that_fails_fails_the_ping_for_good(
    vllm: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Vllm(**vllm)

    answers = pings_of(app)

    assert [answer.status for answer in answers] == [503] * 3
    assert reason in answers[-1].body
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("serve: the first generation failed")
    assert reason in line
    assert len(app.completions) == 1


def test_a_reason_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    pings_of(Vllm(error=RuntimeError("first\nsecond " + "x" * 10_000)))

    (line,) = capsys.readouterr().err.splitlines()
    assert "first second" in line
    assert len(line) < 1000


@pytest.mark.parametrize("status", [400, 404])
def test_a_model_that_does_not_generate_keeps_vllms_ping(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    answers = pings_of(Vllm(status=status, answer={"detail": "Not Found"}))

    assert answers[1] == Answer(200, "vLLM")
    assert f"no first generation (/v1/completions is {status}: " in capsys.readouterr().err


def test_a_generation_that_worked_leaves_the_mark_that_the_next_start_looks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MARK", str(tmp_path / "mark"))
    pings_of(Vllm(status=500, answer={}))
    assert not (tmp_path / "mark").exists()

    pings_of(Vllm())

    assert (tmp_path / "mark").exists()


def test_a_generation_that_worked_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    pings_of(Vllm())

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("serve: the first generation worked (32 tokens in ")


def test_the_generation_carries_vllms_key_and_nothing_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    vllm = Vllm(status=500)

    answers = pings_of(vllm, api_key=[KEY, "another"])

    assert vllm.headers[0][b"authorization"] == f"Bearer {KEY}".encode()
    assert KEY not in capsys.readouterr().err + answers[-1].body


def test_the_key_may_come_from_vllms_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    vllm = Vllm()

    pings_of(vllm)

    assert vllm.headers[0][b"authorization"] == f"Bearer {KEY}".encode()


def test_the_key_of_a_vllm_that_hides_its_arguments_is_the_entrypoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_VLLM_API_KEY", KEY)  # vLLM 0.9.1 has no app.state.args
    monkeypatch.setenv("VLLM_API_KEY", "another")  # its --api-key comes first
    vllm = Vllm()

    pings_of(vllm)

    assert vllm.headers[0][b"authorization"] == f"Bearer {KEY}".encode()


def test_without_a_key_none_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.delenv("SM_VLLM_API_KEY", raising=False)
    vllm = Vllm()

    pings_of(vllm)

    assert b"authorization" not in vllm.headers[0]


@pytest.mark.parametrize(
    "scope",
    [{"type": "http", "path": "/invocations"}, {"type": "websocket", "path": "/ping"}, {"type": "lifespan"}],
    ids=lambda scope: scope["type"],
)
def test_all_else_goes_through_untouched(scope: dict[str, str]) -> None:
    got: list[object] = []

    async def app(*arguments: object) -> None:
        got.extend(arguments)

    given = [scope, object(), object()]
    asyncio.run(middleware.GenerationHealth(app)(*given))

    assert all(one is another for one, another in zip(got, given, strict=True))


# The end.


class Server:
    """`Drain` around vLLM's app, from its start on."""

    def __init__(self, vllm: Vllm, seconds: float = 60) -> None:
        self.ends = 0
        self.app = middleware.Drain(vllm, seconds, self._end)
        self._vllm = vllm

    def _end(self) -> None:
        self.ends += 1

    async def start(self) -> None:
        async def unused(*_: object) -> None: ...

        await self.app({"type": "lifespan"}, unused, unused)

    async def open_request(self) -> asyncio.Task[Answer]:
        open_before = len(self._vllm.completions)
        request = asyncio.create_task(ask(self.app, "/v1/completions"))
        while len(self._vllm.completions) == open_before:
            await asyncio.sleep(0)
        return request

    async def sigterm(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while (await ask(self.app, "/ping")).status == 200:
            await asyncio.sleep(0)


@pytest.mark.parametrize(("given", "seconds"), [("600", 600), ("", 25)])
def test_a_platform_says_how_long_it_drains(monkeypatch: pytest.MonkeyPatch, given: str, seconds: int) -> None:
    monkeypatch.setenv("TOOLKIT_DRAIN_SECONDS", given)
    drained = loaded().DRAIN_SECONDS
    assert drained == seconds


def test_an_idle_server_ends_at_once() -> None:
    async def story() -> int:
        server = Server(Vllm())
        await server.start()
        await server.sigterm()
        return server.ends

    assert asyncio.run(story()) == 1


def test_an_open_request_is_finished_before_the_end() -> None:
    async def story() -> tuple[int, Answer, int]:
        vllm = Vllm(finishes=False)
        server = Server(vllm)
        await server.start()
        request = await server.open_request()
        await server.sigterm()
        before = server.ends
        vllm.may_finish.set()
        return before, await request, server.ends

    assert asyncio.run(story()) == (0, Answer(200, json.dumps(GENERATED)), 1)


def test_new_requests_are_refused_meanwhile_but_for_metrics() -> None:
    async def story() -> list[Answer]:
        server = Server(Vllm(finishes=False))
        await server.start()
        await server.open_request()
        await server.sigterm()
        return [await ask(server.app, path) for path in ("/v1/completions", "/invocations", "/ping", "/metrics")]

    *refused, metrics = asyncio.run(story())

    assert refused == [Answer(503, json.dumps({"reason": "the server is shutting down"}))] * 3
    assert metrics.status == 200


def test_a_request_that_takes_too_long_is_cut() -> None:
    async def story() -> int:
        server = Server(Vllm(finishes=False), seconds=0)
        await server.start()
        request = await server.open_request()
        await server.sigterm()
        with pytest.raises(asyncio.CancelledError):
            await request
        return server.ends

    assert asyncio.run(story()) == 1


def test_the_end_comes_once_after_the_last_of_many() -> None:
    async def story() -> tuple[int, int]:
        vllm = Vllm(finishes=False)
        server = Server(vllm)
        await server.start()
        requests = [await server.open_request() for _ in range(3)]
        await server.sigterm()
        before = server.ends
        vllm.may_finish.set()
        await asyncio.gather(*requests)
        return before, server.ends

    assert asyncio.run(story()) == (0, 1)
