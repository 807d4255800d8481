"""The handle: where its requests go, and with what."""

from __future__ import annotations

import asyncio
import builtins
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from fakes import MemoryPlatform, answer_events, event_stream
from scripted_http import Reply, ScriptedServer, scripted

from toolkit.api.endpoint import Endpoint
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.metrics import Metrics
from toolkit.errors import UsageError
from toolkit.planning.plan import Plan

EVENTS = event_stream(answer_events([7, 8], histogram=[0, 0, 1]))
STREAM = Reply(parts=(EVENTS,), headers={"Content-Type": "text/event-stream"})
WHOLE = Reply(
    parts=(json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]}).encode(),),
    headers={"Content-Type": "application/json"},
)
HELLO: Any = {"model": "", "messages": [{"role": "user", "content": "hello"}]}


class OneEndpoint(MemoryPlatform):
    """A platform that streams the same answer over both routes and remembers what it was asked for."""

    def __init__(self, openai_url: str = "http://127.0.0.1:9") -> None:
        super().__init__()
        self.asked: list[tuple[str, Any]] = []
        self._openai_url = openai_url
        self._tokens = iter(range(100))

    def stream(self, endpoint: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        self.asked.append((endpoint, body["messages"]))
        yield EVENTS

    def invoke(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def openai_access(self, endpoint: str) -> OpenAIAccess:
        return OpenAIAccess(f"{self._openai_url}/endpoints/{endpoint}/openai/v1", lambda: f"t{next(self._tokens)}")

    def metrics(self, endpoint: str, minutes: int) -> Metrics:
        return Metrics(endpoint, minutes)


def handle(platform: OneEndpoint, **fields: Any) -> Endpoint:
    def destroyer(name: str) -> Plan:
        raise NotImplementedError

    return Endpoint("chat", platform, destroyer=destroyer, **fields)


def tokens_of(server: ScriptedServer) -> list[str]:
    return [request.headers["authorization"] for request in server.requests]


@pytest.fixture(autouse=True)
def a_proxy_that_reaches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")


def test_a_chat_goes_to_the_endpoint() -> None:
    platform = OneEndpoint()
    answer = handle(platform).chat("hello")
    assert (answer.text, answer.acceptance and answer.acceptance.length) == ("<7><8>", 3.0)
    assert platform.asked == [("chat", [{"role": "user", "content": "hello"}])]


def test_with_a_component_everything_goes_to_it() -> None:
    platform = OneEndpoint()
    endpoint = handle(platform, component="part")
    endpoint.chat("hello")
    assert [address for address, _ in platform.asked] == ["chat/part"]
    assert endpoint.metrics(5).endpoint == "chat/part"


def test_over_the_openai_route_the_answer_is_the_same() -> None:
    with scripted(STREAM) as server:
        answer = handle(OneEndpoint(server.url)).chat("hello", via="openai", max_tokens=5)
    assert (answer.text, answer.acceptance and answer.acceptance.length) == ("<7><8>", 3.0)
    assert json.loads(server.requests[0].body)["max_tokens"] == 5
    assert server.requests[0].path == "/endpoints/chat/openai/v1/chat/completions"


def test_in_an_event_loop_the_answer_is_the_same() -> None:
    async def ask(endpoint: Endpoint) -> tuple[str, list[str]]:
        whole = await endpoint.achat("hello")
        return whole.text, [piece async for piece in endpoint.astream("hello")]

    with scripted(STREAM) as server:
        assert asyncio.run(ask(handle(OneEndpoint(server.url)))) == ("<7><8>", ["<7>", "<8>"])


def test_openais_client_gets_a_fresh_token_for_each_request() -> None:
    with scripted(WHOLE) as server, handle(OneEndpoint(server.url)).openai() as client:
        answers = [client.chat.completions.create(**HELLO).choices[0].message.content for _ in range(2)]
    assert answers == ["hi", "hi"]
    assert tokens_of(server) == ["Bearer t0", "Bearer t1"]


def test_openais_client_for_event_loops_too() -> None:
    async def ask(endpoint: Endpoint) -> list[str | None]:
        async with endpoint.async_openai() as client:
            return [(await client.chat.completions.create(**HELLO)).choices[0].message.content for _ in range(2)]

    with scripted(WHOLE) as server:
        assert asyncio.run(ask(handle(OneEndpoint(server.url)))) == ["hi", "hi"]
    assert tokens_of(server) == ["Bearer t0", "Bearer t1"]


@pytest.mark.parametrize("client", [Endpoint.openai, Endpoint.async_openai])
def test_without_the_openai_package_one_learns_what_to_install(
    client: Callable[[Endpoint], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without_openai(name: str, *arguments: Any) -> Any:
        if name == "openai":
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_openai)
    with pytest.raises(UsageError, match=r"pip install 'peagle-toolkit\[openai\]'"):
        client(handle(OneEndpoint()))
