"""Connections to OpenAI-like servers: times by the bytes, every way in which HTTP ends, keys, proxies and TLS."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from fakes import answer_events, event_stream
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from streaming_server import DONE, HANG_UP, Answer, Part, Served, document, event, streaming

from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.generation import Acceptance
from toolkit.errors import InvocationError, PlatformError, UsageError
from toolkit.measure.arm import FIXED_LENGTH, GENERAL, Arm, Workload
from toolkit.measure.connection import HttpConnection, connect_endpoint, connect_url, refused_fields
from toolkit.measure.load import Ask, Timing, body, closed_loop
from toolkit.measure.result import RequestResult
from toolkit.recipe.prompts import Prompt

WORKLOAD = Workload("w", (Prompt(({"role": "user", "content": "hello"},)),))
EVENTS = answer_events([7, 8, 9], histogram=[0, 0, 1])
AT_ONCE = Answer((Part(0.0, event_stream(EVENTS)),))
PAUSES = (0.03, 0.01, 0.02)
SLOW = Answer(
    [*(event(pause, item) for pause, item in zip(PAUSES, EVENTS[1:4], strict=True)), event(0, *EVENTS[4:]), DONE]
)


async def ask(connection: Any, requests: int = 1, concurrency: int = 1) -> list[RequestResult]:
    asks = [Ask(WORKLOAD, 0, index) for index in range(requests)]
    return await closed_loop(Arm("a", connection), asks, concurrency, Timing(time.perf_counter()))


def with_url(url: str, use: Callable[[HttpConnection], Awaitable[Any]], **options: Any) -> Any:
    async def run() -> Any:
        async with connect_url(url, **{"model": "tiny", **options}) as connection:
            return await use(connection)

    return asyncio.run(run())


def test_times_are_those_of_the_bytes() -> None:
    """Compared with when the server really sent: this machine may be busy. The median stray is below 1 ms."""
    with streaming(SLOW) as server:
        results = with_url(server.url, lambda connection: ask(connection, 8))
    pairs = list(zip(server.served, results, strict=True))
    gaps = [
        gap - (after - before)
        for request, result in pairs
        for gap, before, after in zip(result.gaps, request.sent[:3], request.sent[1:3], strict=False)
    ]
    assert statistics.median(map(abs, gaps)) < 0.001
    firsts = [(result.ttft or 0) - (request.sent[0] - request.came) for request, result in pairs]
    assert statistics.median(map(abs, firsts)) < 0.003
    means = [(result.tpot or 0) - (request.sent[2] - request.sent[0]) / 2 for request, result in pairs]
    assert statistics.median(map(abs, means)) < 0.001


def test_a_slow_reader_does_not_change_the_times() -> None:
    """The bytes are timed when they arrive, not when somebody takes them."""

    class Slow:
        def __init__(self, connection: HttpConnection) -> None:
            self._connection = connection

        async def stream(self, body: Mapping[str, Any]) -> Any:
            async for chunks in self._connection.stream(body):
                yield chunks
                await asyncio.sleep(0.05)

        async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
            raise NotImplementedError

    with streaming(SLOW) as server:
        (result,) = with_url(server.url, lambda connection: ask(Slow(connection)))
    assert result.seconds < 0.2
    assert max(result.gaps) < 0.045


def test_connections_are_kept_open() -> None:
    with streaming(AT_ONCE) as server:
        with_url(server.url, lambda connection: ask(connection, 12, concurrency=3))
    assert len({request.connection for request in server.served}) == 3


def test_a_connection_that_the_server_has_closed_meanwhile_is_replaced() -> None:
    numbers = count()
    with streaming(lambda _: HANG_UP if next(numbers) == 1 else AT_ONCE) as server:
        results = with_url(server.url, lambda connection: ask(connection, 2))
    assert [result.outcome for result in results] == ["successful", "successful"]
    assert [request.connection for request in server.served] == [0, 0, 1]


def test_a_server_that_closes_new_connections_is_asked_once() -> None:
    with streaming(HANG_UP) as server:
        (result,) = with_url(server.url, ask)
    assert result.error == f"{server.url}: the answer broke off: the server closed the connection"
    assert len(server.served) == 1


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_endpoint_that_dies_midway_leaves_what_was_measured(concurrency: int) -> None:
    alive, numbers = 5, count()
    dead = Answer((event(0, *EVENTS[:3]),), cut=True)
    with streaming(lambda _: AT_ONCE if next(numbers) < alive else dead) as server:
        results = with_url(server.url, lambda connection: ask(connection, 9, concurrency))
    assert [result.outcome for result in results].count("successful") == alive
    failed = [result for result in results if result.outcome == "failed"]
    assert len(failed) == 4
    assert {result.output_tokens for result in failed} == {2}
    assert all("the server closed the connection" in (result.error or "") for result in failed)


def test_an_error_answer_is_a_failure_in_the_engines_words_and_is_not_asked_for_again() -> None:
    with streaming(document({"error": {"message": "no such model", "code": 404}}, status=404)) as server:
        (result,) = with_url(server.url, ask)
    assert result.outcome == "failed"
    assert result.error == f"{server.url}: answered 404: no such model"
    assert len(server.served) == 1, "to ask again would hide a failure of the endpoint"


@pytest.mark.parametrize(
    ("status", "path", "hint"),
    [
        (401, "/v1", "Set OPENAI_API_KEY to the API key"),
        (404, "", "/v1, where OpenAI's routes are"),
        (404, "/v1/chat/completions", "/v1: what comes after it is added."),
        (404, "/v1/models", "/v1: what comes after it is added."),
        (404, "/v1", "Write the name of a model that it serves (--model)."),
        (307, "/v1", "Write the address that it sends you to: "),
        (400, "/v1", "Correct the request"),
        (500, "/v1", "a server's own log tells more"),
    ],
)
def test_an_error_of_a_server_hints_at_its_url_and_key_and_at_no_endpoint(status: int, path: str, hint: str) -> None:
    with streaming(document({"error": "no"}, status)) as server, pytest.raises(InvocationError) as caught:
        with_url(f"{server.url.removesuffix('/v1')}{path}", lambda connection: connection.models())
    assert hint in caught.value.hint
    assert "toolkit logs" not in caught.value.hint


def test_a_page_that_is_no_answer_hints_at_no_endpoint() -> None:
    page = Answer((Part(0.0, b"<html>Log in</html>"),))
    with streaming(page) as server, pytest.raises(InvocationError, match="it is not JSON") as caught:
        with_url(server.url, lambda connection: connection.models())
    assert "such as a proxy" in caught.value.hint
    assert "toolkit logs" not in caught.value.hint


@pytest.mark.parametrize("parts", [[Part(60.0, b"{}")], [Part(0.02, b" ")] * 3000], ids=["silent", "slow"])
def test_a_page_that_does_not_come_is_not_waited_for_as_an_answer_is(parts: list[Part]) -> None:
    late = "/v1/models was not there after 0.2 s"
    with streaming(Answer(parts)) as server, pytest.raises(InvocationError, match=late) as caught:
        with_url(server.url, lambda connection: replace(connection, page_seconds=0.2).models())
    assert "such as a proxy" in caught.value.hint


def test_a_connection_that_ends_too_early_says_what_to_do() -> None:
    with streaming(HANG_UP) as server, pytest.raises(InvocationError, match="the server closed") as caught:
        with_url(server.url, lambda connection: connection.models())
    assert "Send the request again." in caught.value.hint


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_that_names_a_field_does_not_refuse_it(status: int) -> None:
    answers = iter([document({"error": "too many requests of this user"}, status), AT_ONCE])

    async def use(connection: HttpConnection) -> frozenset[str]:
        return await refused_fields(connection, {"messages": [], "stream": True, "user": "me"})

    with streaming(lambda _: next(answers)) as server:
        assert with_url(server.url, use) == frozenset()


def test_of_the_fields_of_a_request_that_is_repeated_those_go_first_that_openais_api_has_not() -> None:
    known = {"stream", *CompletionCreateParamsBase.__annotations__}

    def refusing(request: Served) -> Answer:
        others = request.body.keys() - known
        return document({"error": f"extra fields in {request.body}"}, 422) if others else AT_ONCE

    async def use(connection: HttpConnection) -> frozenset[str]:
        arm = Arm("a", connection, cache_salt="cache_salt")
        asked = body(arm, Ask(GENERAL, 0), Timing(0.0, max_tokens=1, cold_cache=True))
        return await refused_fields(connection, {**asked, FIXED_LENGTH: True})

    with streaming(refusing) as server:
        assert with_url(server.url, use) == {"cache_salt", "ignore_eos", "repetition_penalty", "return_token_ids"}


def test_no_server() -> None:
    with streaming(AT_ONCE) as server:
        pass
    (result,) = with_url(server.url, ask)
    assert result.outcome == "failed"
    assert "Connect call failed" in (result.error or "")


# What is asked for, with which model and key.


def models(*names: str) -> Callable[[Served], Answer]:
    listed = document({"object": "list", "data": [{"id": name} for name in names]})
    return lambda request: listed if request.path == "/v1/models" else AT_ONCE


def test_the_only_model_need_not_be_named() -> None:
    with streaming(models("org/tiny")) as server:
        with_url(server.url, ask, model="")
    assert server.served[-1].body["model"] == "org/tiny"


@pytest.mark.parametrize(
    ("names", "message"), [(("a", "b"), "serves 2 models: a, b"), ((), "names no model on /models")]
)
def test_of_several_models_one_has_to_be_named(names: tuple[str, ...], message: str) -> None:
    with streaming(models(*names)) as server, pytest.raises(UsageError, match=message) as caught:
        with_url(server.url, ask, model="")
    assert caught.value.hint == "Name the model with --model."


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-secret\n")
    shown: list[str] = []

    async def use(connection: HttpConnection) -> None:
        results = await ask(connection)
        shown.extend([repr(connection), repr(results), str(vars(connection.access).keys())])

    with streaming(document({"error": "invalid key"}, status=401)) as server:
        with_url(server.url, use, key_variable="SERVER_KEY")
    assert server.served[0].headers["authorization"] == "Bearer sk-secret"
    assert "answered 401" in shown[1]
    assert not any("sk-secret" in text for text in shown)


@pytest.mark.parametrize("value", [None, "", "a\r\nX-Injected: b"])
def test_a_key_that_is_none(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERVER_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SERVER_KEY", value)
    with pytest.raises(UsageError, match="SERVER_KEY holds no API key"):
        with_url("http://127.0.0.1:9/v1", ask, key_variable="SERVER_KEY")


@pytest.mark.parametrize("url", ["127.0.0.1:9000/v1", "ftp://h/v1", "http://", "http://user:pass@h/v1"])
def test_what_is_no_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="not the URL of a server") as caught:
        with_url(url, ask)
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "path"), [({"prompt": [1]}, "/v1/completions"), ({"messages": []}, "/v1/chat/completions")]
)
def test_a_whole_answer(body: Mapping[str, Any], path: str) -> None:
    with streaming(document({"choices": []})) as server:
        assert with_url(server.url, lambda connection: connection.invoke(body)) == {"choices": []}
    assert (server.served[0].path, server.served[0].body) == (path, {"model": "tiny", **body})


def test_a_whole_answer_that_is_no_json() -> None:
    with streaming(AT_ONCE) as server, pytest.raises(InvocationError, match="the answer cannot be used"):
        with_url(server.url, lambda connection: connection.invoke({"prompt": "a"}))


class Platform:
    """The part of a platform that a connection needs."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tokens = count()
        self.invoked: list[tuple[str, Any]] = []

    def openai_access(self, endpoint: str) -> OpenAIAccess:
        if endpoint != "chat":
            raise PlatformError("no such endpoint")
        return OpenAIAccess(f"{self._url}/endpoints/chat/openai/v1", lambda: f"token-{next(self._tokens)}")

    def invoke(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.invoked.append((endpoint, body))
        return {"choices": []}


def test_an_endpoint_of_a_platform_gets_a_fresh_token_for_each_request() -> None:
    async def use(platform: Any) -> None:
        async with connect_endpoint(platform, "chat") as connection:
            await ask(connection, 2)
            assert await connection.invoke({"prompt": "a"}) == {"choices": []}

    with streaming(AT_ONCE) as server:
        platform = Platform(server.url.removesuffix("/v1"))
        asyncio.run(use(platform))
    assert [request.headers["authorization"] for request in server.served] == ["Bearer token-0", "Bearer token-1"]
    assert server.served[0].path == "/endpoints/chat/openai/v1/chat/completions"
    assert server.served[0].body["model"] == "", "the model that is served"
    assert platform.invoked == [("chat", {"prompt": "a"})], "the platform's own route takes completions"


# Counters.

BEFORE_ANY_DRAFT = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 0.0
"""
PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0"}} 0.0
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{{engine="0"}} {0}
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {1}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="1"}} {2}
"""


def page(*numbers: int) -> Answer:
    return Answer((Part(0.0, PAGE.format(*numbers).encode()),))


def test_the_acceptance_of_all_drafts_so_far() -> None:
    with streaming(page(100, 70, 30)) as server:
        assert with_url(server.url, HttpConnection.acceptance) == Acceptance((30, 40, 30))
    assert server.served[0].path == "/metrics"


@pytest.mark.parametrize("answer", [document({}, 404), document({"a": 1}), Answer((Part(0.0, b"python_gc 5\n"),))])
def test_a_server_without_counters(answer: Answer) -> None:
    with streaming(answer) as server:
        assert with_url(server.url, HttpConnection.acceptance) is None
        assert not with_url(server.url, HttpConnection.counts_drafts)


def test_a_server_that_has_not_drafted_yet_would_count_drafts() -> None:
    with streaming(Answer((Part(0.0, BEFORE_ANY_DRAFT),))) as server:
        assert with_url(server.url, HttpConnection.acceptance) is None
        assert with_url(server.url, HttpConnection.counts_drafts)


class ByVariant:
    """A platform whose own route names a variant: `together` requests are answered at once, or fail in the end."""

    def __init__(self, sent: Iterable[tuple[float, bytes]], together: int, error: PlatformError | None = None) -> None:
        self.sent, self.error, self.addresses = list(sent), error, set[str]()
        self.all_asked = threading.Barrier(together, timeout=60)

    def stream(self, address: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        self.addresses.add(address)
        self.all_asked.wait()
        for after, content in self.sent:
            time.sleep(after)
            yield content
        if self.error:
            raise self.error


def by_variant(platform: Any, requests: int, concurrency: int) -> list[RequestResult]:
    async def run() -> list[RequestResult]:
        async with connect_endpoint(platform, "chat@candidate") as connection:
            return await ask(connection, requests, concurrency)

    return asyncio.run(run())


def test_a_variant_is_asked_over_the_platforms_own_route() -> None:
    platform = ByVariant(((part.after, part.content) for part in SLOW.parts), together=16)
    results = by_variant(platform, requests=16, concurrency=16)
    assert platform.addresses == {"chat@candidate"}
    assert {(item.outcome, item.output_tokens) for item in results} == {("successful", 3)}
    assert all(item.ttft and item.ttft >= PAUSES[0] for item in results)
    assert {item.acceptance for item in results} == {Acceptance((0, 0, 1))}


def test_a_variant_that_breaks_off_is_a_failure() -> None:
    platform = ByVariant([(0.0, event_stream(EVENTS[:2], end=b""))], 1, InvocationError("chat@candidate: it broke off"))
    (result,) = by_variant(platform, requests=1, concurrency=1)
    assert (result.outcome, result.error) == ("failed", "chat@candidate: it broke off")
