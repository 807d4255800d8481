"""Chats over an endpoint's OpenAI route, against a server that answers as SageMaker and as the local platform do."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from fakes import FakeClock, answer_events, event_stream
from scripted_http import HANGS_UP, Reply, ScriptedServer, scripted

from toolkit.endpoint import openai_route
from toolkit.endpoint.access import OpenAIAccess
from toolkit.errors import EndpointNotFound, InvocationError
from toolkit.platforms.sagemaker.runtime import on_openai_route

EVENTS = event_stream(answer_events([7, 8, 9], histogram=[0, 0, 2]))
ANSWER = Reply(parts=(EVENTS[:50], EVENTS[50:]), headers={"Content-Type": "text/event-stream"})
BUSY = Reply(
    503,
    (b'{"error": {"message": "No container is running.", "type": "ServiceUnavailable"}}',),
    {"x-amzn-ErrorType": "ServiceUnavailable"},
)
QUOTED = {
    "error": {
        "message": 'Received client error (400) from Kl6NPmsG with message "{"error":{"message":"too many tokens",'
        '"type":"BadRequestError","code":400}}". See https://console in account 123456789012 for more information.',
        "type": "server_error",
        "code": "model_error",
    }
}
Ask = Callable[..., bytes]
Body = Mapping[str, Any]


def tokens() -> Callable[[], str]:
    """Another token each time."""
    made = iter(range(100))
    return lambda: f"token-{next(made)}"


def in_thread(server: ScriptedServer, body: Body = MappingProxyType({"messages": []}), **options: float) -> bytes:
    access = OpenAIAccess(f"{server.url}/endpoints/chat/openai/v1", tokens(), explain=on_openai_route)
    return b"".join(openai_route.stream(access, "chat", body, FakeClock().sleep, **options))


def in_event_loop(server: ScriptedServer, body: Body = MappingProxyType({"messages": []}), **options: float) -> bytes:
    async def no_sleep(seconds: float) -> None: ...

    async def parts() -> bytes:
        access = OpenAIAccess(f"{server.url}/endpoints/chat/openai/v1", tokens(), explain=on_openai_route)
        stream = openai_route.stream_async(access, "chat", body, no_sleep, **options)
        return b"".join([part async for part in stream])

    return asyncio.run(parts())


pytestmark = pytest.mark.parametrize("ask", [in_thread, in_event_loop])


@pytest.fixture(autouse=True)
def a_proxy_that_reaches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")


def refused(ask: Ask, reply: Reply) -> tuple[InvocationError, int]:
    with scripted(reply) as server, pytest.raises(InvocationError) as caught:
        ask(server)
    return caught.value, len(server.requests)


def test_a_chat(ask: Ask) -> None:
    with scripted(ANSWER) as server:
        assert ask(server) == EVENTS
    (request,) = server.requests
    assert request.path == "/endpoints/chat/openai/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer token-0"
    assert json.loads(request.body) == {"model": "", "messages": []}, "an empty model is the one that is served"


def test_a_chat_with_a_model_that_is_named(ask: Ask) -> None:
    with scripted(ANSWER) as server:
        ask(server, {"messages": [], "model": "adapter"})
    assert json.loads(server.requests[0].body) == {"messages": [], "model": "adapter"}


def test_a_busy_gateway_is_asked_again_with_a_fresh_token(ask: Ask) -> None:
    with scripted(BUSY, HANGS_UP, ANSWER) as server:
        assert ask(server) == EVENTS
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer token-0",
        "Bearer token-1",
        "Bearer token-2",
    ]


def test_a_gateway_that_stays_busy_is_told_after_four_times(ask: Ask) -> None:
    error, requests = refused(ask, BUSY)
    assert str(error) == "chat: No container is running.\n  Asked four times. See: toolkit status"
    assert requests == 4


@pytest.mark.parametrize("status", [400, 500, 503])
def test_the_containers_own_error_is_not_asked_for_again(ask: Ask, status: int) -> None:
    body = json.dumps({"error": {"message": "no such adapter", "code": status}}).encode()
    error, requests = refused(ask, Reply(status, (body,)))
    assert error.message == f"chat: answered {status}: no such adapter"
    assert requests == 1


def test_the_containers_error_is_taken_out_of_sagemakers_quotation(ask: Ask) -> None:
    error, requests = refused(ask, Reply(400, (json.dumps(QUOTED).encode(),)))
    assert error.message == "chat: answered 400: too many tokens"
    assert requests == 1


def test_what_is_not_answered_in_time_is_not_asked_for_again(ask: Ask) -> None:
    """The model may be working on it, and would do it twice."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts no connection: the request waits
        server = ScriptedServer(f"http://127.0.0.1:{silent.getsockname()[1]}", [ANSWER])
        with pytest.raises(InvocationError, match="no answer within 0 s") as caught:
            ask(server, read_seconds=0.2)
        silent.accept()[0].close()
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert not caught.value.transient


def test_an_endpoint_that_is_not_there(ask: Ask) -> None:
    body = {"error": {"message": "Endpoint chat of account 123456789012 not found.", "code": "validation_error"}}
    with scripted(Reply(400, (json.dumps(body).encode(),))) as server, pytest.raises(EndpointNotFound):
        ask(server)


def test_one_who_may_not_learns_what_to_ask_for(ask: Ask) -> None:
    error, requests = refused(ask, Reply(403, (b'{"message": "User is not authorized"}',)))
    assert str(error) == (
        "chat: User is not authorized\n"
        "  Ask an administrator to allow sagemaker:CallWithBearerToken on * and "
        "sagemaker:InvokeEndpoint in your IAM policy."
    )
    assert requests == 1


def test_nobody_there(ask: Ask) -> None:
    with scripted(ANSWER) as server:
        pass
    with pytest.raises(InvocationError, match="Nothing answers there: start it, or correct its address"):
        ask(server)


def test_what_breaks_off_is_an_error_and_never_asked_for_again(ask: Ask) -> None:
    error, requests = refused(ask, Reply(parts=(EVENTS[:50],), cut=True))
    assert str(error).startswith("chat: the answer broke off: ")
    assert not error.transient
    assert requests == 1


def test_no_token_is_in_any_error_or_repr(ask: Ask) -> None:
    error, _ = refused(ask, Reply(403, (b"{}",)))
    assert "token-" not in str(error)
    assert "token-" not in repr(OpenAIAccess("http://h", lambda: "token-9"))
