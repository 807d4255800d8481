"""InvokeEndpoint and its streaming twin through genuine boto3, against a server that answers as AWS does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from fakes import FakeClock, answer_events, event_stream
from scripted_http import HANGS_UP, Reply, ScriptedServer, scripted

from toolkit.endpoint.generation import Stream
from toolkit.errors import EndpointNotFound, InvocationError
from toolkit.platforms.local import eventstream
from toolkit.platforms.sagemaker import runtime

EVENTS = event_stream(answer_events([7, 8, 9], histogram=[0, 0, 2]))
FRAMES = {"Content-Type": "application/vnd.amazon.eventstream"}
BODY: dict[str, Any] = {"messages": []}
Ask = Callable[[ScriptedServer], Any]


def error(status: int, code: str, message: str, **details: object) -> Reply:
    document = json.dumps({"Message": message, **details}).encode()
    return Reply(status, (document,), {"x-amzn-ErrorType": code, "Content-Type": "application/json"})


def streamed(*parts: bytes, last: bytes = b"", cut: bool = False) -> Reply:
    return Reply(parts=(*map(eventstream.payload_part, parts), last), headers=FRAMES, cut=cut)


WHOLE = Reply(parts=(b'{"id": "chat-1"}',))
STREAM = streamed(EVENTS[:70], EVENTS[70:])
THROTTLED = error(429, "ThrottlingException", "Rate exceeded")
BUSY = error(503, "ServiceUnavailable", "No instance is free.")


SESSION = boto3.Session("AKID", "secret", region_name="us-west-2")
CONFIG = Config(retries={"total_max_attempts": 1}, read_timeout=5)


def client(server: ScriptedServer) -> Any:
    return SESSION.client("sagemaker-runtime", endpoint_url=server.url, config=CONFIG)


def invoke(server: ScriptedServer, endpoint: str = "chat") -> Any:
    return runtime.invoke(client(server), endpoint, BODY, FakeClock().sleep)


def stream(server: ScriptedServer, endpoint: str = "chat") -> Any:
    return b"".join(runtime.stream(client(server), endpoint, BODY, FakeClock().sleep))


both = pytest.mark.parametrize("ask", [invoke, stream])


def refused(ask: Ask, *replies: Reply) -> tuple[InvocationError, int]:
    with scripted(*replies) as server, pytest.raises(InvocationError) as caught:
        ask(server)
    return caught.value, len(server.requests)


def test_an_answer_in_one_piece() -> None:
    with scripted(WHOLE) as server:
        assert invoke(server) == {"id": "chat-1"}
    (request,) = server.requests
    assert request.path == "/endpoints/chat/invocations"
    assert (request.headers["content-type"], json.loads(request.body)) == ("application/json", BODY)


def test_a_stream_wherever_its_frames_cut_it() -> None:
    cuts = range(0, len(EVENTS), 17)
    with scripted(*(streamed(EVENTS[:cut], EVENTS[cut:]) for cut in cuts)) as server:
        boto3_client = client(server)
        answers = [Stream(runtime.stream(boto3_client, "chat", BODY, FakeClock().sleep)).result for _ in cuts]
    assert {answer.text for answer in answers} == {"<7><8><9>"}
    assert {answer.acceptance.length for answer in answers if answer.acceptance} == {3.0}


@both
def test_a_component_is_named_in_a_header(ask: Callable[[ScriptedServer, str], Any]) -> None:
    with scripted(STREAM if ask is stream else WHOLE) as server:
        ask(server, "chat/part")
    (request,) = server.requests
    assert request.path.startswith("/endpoints/chat/invocations")
    assert request.headers["x-amzn-sagemaker-inference-component"] == "part"


@both
@pytest.mark.parametrize("busy", [THROTTLED, BUSY, HANGS_UP, error(500, "InternalFailure", "")])
def test_what_never_reached_the_model_is_asked_again(ask: Ask, busy: Reply) -> None:
    with scripted(busy, busy, busy, STREAM if ask is stream else WHOLE) as server:
        assert ask(server) in (EVENTS, {"id": "chat-1"})
    assert len(server.requests) == 4


@both
def test_after_four_times_the_caller_learns_of_it(ask: Ask) -> None:
    problem, requests = refused(ask, THROTTLED)
    assert str(problem) == "chat: Rate exceeded\n  Asked four times. See: toolkit status"
    assert requests == 4


@both
@pytest.mark.parametrize("status", [400, 500, 503])
def test_the_containers_own_error_is_not_asked_for_again(ask: Ask, status: int) -> None:
    said = json.dumps({"error": {"message": "no such adapter", "code": status}})
    reply = error(424, "ModelError", "Received client error", OriginalStatusCode=status, OriginalMessage=said)
    problem, requests = refused(ask, reply)
    assert problem.message == f"chat: answered {status}: no such adapter"
    assert requests == 1


@both
def test_a_model_that_thinks_too_long_is_not_asked_again(ask: Ask) -> None:
    words = "Your invocation timed out while waiting for a response from container primary."
    problem, requests = refused(ask, error(424, "ModelError", words, OriginalStatusCode=0, OriginalMessage=words))
    assert str(problem) == f"chat: {words}\n  The container's log: toolkit logs chat"
    assert requests == 1


@both
def test_an_endpoint_that_is_not_there(ask: Ask) -> None:
    missing = error(400, "ValidationError", "Endpoint chat of account 123456789012 not found.")
    with scripted(missing) as server, pytest.raises(EndpointNotFound):
        ask(server)


@both
def test_one_who_may_not_learns_what_to_ask_for(ask: Ask) -> None:
    words = (
        "User: arn:aws:iam::123456789012:user/u is not authorized to perform: sagemaker:InvokeEndpoint on resource: "
        "arn:aws:sagemaker:us-west-2:123456789012:endpoint/chat"
    )
    problem, requests = refused(ask, error(403, "AccessDeniedException", words))
    assert problem.hint == "Ask an administrator to allow sagemaker:InvokeEndpoint in your IAM policy."
    assert requests == 1


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("ModelStreamError", "ModelInvocationTimeExceeded"),
        ("ModelStreamError", "StreamBroken"),
        ("InternalStreamFailure", ""),
    ],
)
def test_an_error_amid_the_stream_is_told_after_what_came(kind: str, code: str) -> None:
    arrived: list[bytes] = []
    with scripted(streamed(EVENTS[:70], last=eventstream.exception(kind, "it broke", code)), STREAM) as server:
        parts = runtime.stream(client(server), "chat", BODY, FakeClock().sleep)
        with pytest.raises(InvocationError, match=rf"chat: the answer broke off: .*{kind}.*it broke"):
            arrived.extend(parts)
    assert b"".join(arrived) == EVENTS[:70]
    assert len(server.requests) == 1, "half an answer has been given"


def test_a_connection_that_breaks_amid_the_stream_is_told() -> None:
    problem, requests = refused(stream, streamed(EVENTS[:70], cut=True), STREAM)
    assert str(problem).startswith("chat: the answer broke off: ")
    assert requests == 1


def test_a_garbled_frame_is_told() -> None:
    garbled = bytearray(eventstream.payload_part(EVENTS[:70]))
    garbled[-1] ^= 1
    problem, _ = refused(stream, Reply(parts=(bytes(garbled),), headers=FRAMES))
    assert str(problem).startswith("chat: the answer broke off: ")


def test_a_stream_that_ends_early_without_a_word_is_an_error() -> None:
    with scripted(streamed(EVENTS[:-100])) as server:
        parts = runtime.stream(client(server), "chat", BODY, FakeClock().sleep)
        with pytest.raises(InvocationError, match="ended too early"):
            _ = Stream(parts).result


def test_an_answer_that_is_no_json_is_told() -> None:
    problem, requests = refused(invoke, Reply(parts=(b"<html>",)))
    assert problem.message.startswith("chat: the answer cannot be used: it is not JSON: ")
    assert problem.hint == "The container's log: toolkit logs chat"
    assert requests == 1


def test_an_answer_that_breaks_off_is_told() -> None:
    problem, requests = refused(invoke, Reply(parts=(b'{"id": ',), cut=True))
    assert str(problem).startswith("chat: the answer broke off: ")
    assert requests == 1


@both
def test_nobody_there(ask: Ask) -> None:
    with scripted(WHOLE) as server:
        pass
    with pytest.raises(InvocationError, match="Asked four times"):
        ask(server)
