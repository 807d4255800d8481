"""One streamed answer: text, times and what speculation did, however the bytes are cut."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from fakes import FakeClock, answer_events, event_stream

from toolkit.endpoint.generation import Acceptance, Arrival, AsyncStream, Generation, Stream
from toolkit.endpoint.request import chat_body
from toolkit.errors import InvocationError

EVENTS = answer_events([7, 8, 9], histogram=[1, 0, 2], prompt_token_ids=[1, 2])
BYTES = event_stream(EVENTS)
GENERATION = Generation(
    text="<7><8><9>",
    prompt_tokens=2,
    completion_tokens=3,
    finish_reason="stop",
    latency=0.0,
    acceptance=Acceptance((1, 0, 2)),
    arrivals=(Arrival(0.0, 3),),
    token_ids=(7, 8, 9),
    prompt_token_ids=(1, 2),
)


def result(*parts: bytes) -> Generation:
    return Stream(parts, FakeClock()).result


def test_an_answer_in_one_part() -> None:
    assert result(BYTES) == GENERATION


def test_an_event_may_have_several_lines_as_the_standard_has_it() -> None:
    """Each with its `data:`, in either kind of line end, with comments between events."""
    lines = [json.dumps(event, indent=1).splitlines() for event in EVENTS]
    text = "".join(": still here\n" + "".join(f"data:{line}\r\n" for line in event) + "\r\n" for event in lines)
    whole = text.encode() + b"data: [DONE]\n\n"
    for cut in range(0, len(whole), 7):
        assert result(whole[:cut], whole[cut:]) == GENERATION


def test_an_event_of_lines_without_end_is_refused() -> None:
    with pytest.raises(InvocationError, match="an event without an end"):
        result(b'data: {"choices": [\n' + b"data: {},\n" * 2000)


def test_an_answer_cut_at_every_byte_is_the_same() -> None:
    for cut in range(len(BYTES) + 1):
        assert result(BYTES[:cut], BYTES[cut:]) == GENERATION


def test_an_answer_byte_by_byte_is_the_same() -> None:
    assert result(*(BYTES[i : i + 1] for i in range(len(BYTES)))) == GENERATION


def test_what_goes_on_a_line_that_was_begun_is_no_event_of_its_own() -> None:
    assert result(b": a comment, ", event_stream(EVENTS[1:2], end=b""), BYTES) == GENERATION


def test_characters_of_several_bytes_survive_any_cut() -> None:
    stream = event_stream([{"choices": [{"delta": {"content": "größer €"}, "finish_reason": "stop"}]}])
    for cut in range(len(stream)):
        assert result(stream[:cut], stream[cut:]).text == "größer €"


def test_pieces_come_as_they_arrive() -> None:
    told = []

    def parts() -> Iterator[bytes]:
        for event in EVENTS:
            told.append("sent")
            yield event_stream([event], end=b"")

    stream = iter(Stream(parts()))
    assert next(stream) == "<7>"
    assert len(told) == 2
    assert list(stream) == ["<8>", "<9>"]


def test_the_result_reads_what_has_not_been_read_yet_and_forgets_nothing() -> None:
    stream = Stream([BYTES], FakeClock())
    assert next(iter(stream)) == "<7>"
    assert stream.result == GENERATION
    assert stream.result is stream.result
    assert list(stream) == []


def test_times_are_counted_from_the_sending() -> None:
    clock = FakeClock()

    def parts() -> Iterator[bytes]:
        for event in EVENTS:
            clock.sleep(0.5)
            yield event_stream([event], end=b"")

    stream = Stream(parts(), clock)
    clock.sleep(100)  # the request is sent when the first piece is asked for
    generation = stream.result
    assert (generation.ttft, generation.latency) == (1.0, 3.0)
    assert generation.tpot == 0.5


def test_an_only_token_has_no_time_per_token_after_the_first() -> None:
    assert Generation("a", 1, 1, "stop", latency=1.0, arrivals=(Arrival(1.0, 1),)).tpot == 0.0


def test_an_answer_without_a_token_has_no_first_one_before_its_end() -> None:
    assert Generation("", 1, 0, "stop", latency=1.0).ttft == 1.0


def test_without_speculation_there_is_no_acceptance() -> None:
    assert result(event_stream(answer_events([7]))).acceptance is None


@pytest.mark.parametrize("end", [0, 1, len(BYTES) // 2])
def test_a_stream_that_breaks_off_is_an_error_not_a_short_answer(end: int) -> None:
    with pytest.raises(InvocationError, match=r"the stream ended too early\n  Send the request again\."):
        _ = result(BYTES[:end])


def test_one_who_iterates_learns_of_the_break_too() -> None:
    pieces = iter(Stream([event_stream(EVENTS[:2], end=b"")]))
    assert next(pieces) == "<7>"
    with pytest.raises(InvocationError, match="ended too early"):
        next(pieces)


def test_an_error_amid_the_stream_is_told_in_the_engines_words() -> None:
    stream = Stream([event_stream([*EVENTS[:2], {"error": {"message": "out of memory", "code": 500}}])])
    with pytest.raises(
        InvocationError, match=r"^the endpoint stopped with an error: out of memory\n  The server's log says why"
    ):
        _ = stream.result


@pytest.mark.parametrize(
    "answer",
    [b"<!DOCTYPE html>\n<title>Log in</title>\n", b'{"choices": [{"message": {"content": "Hi"}}]}', b"Bad Gateway\n"],
)
def test_what_is_no_stream_is_shown_and_not_taken_for_one_that_broke_off(answer: bytes) -> None:
    for parts in ([answer], [answer[:3], answer[3:]]):
        with pytest.raises(InvocationError, match="the answer is no stream of events; it begins with") as caught:
            result(*parts)
        assert repr(answer.decode())[1:-1] in caught.value.message


@pytest.mark.parametrize("comment", [b": ping\n\n", b"event: message\ndata: {"])
def test_a_stream_that_breaks_off_before_its_first_event_is_one(comment: bytes) -> None:
    with pytest.raises(InvocationError, match="ended too early"):
        result(comment)


def choice(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, **fields}]}


def called(index: int, **function: str) -> dict[str, object]:
    named = {"id": f"call-{index}", "type": "function"} if "name" in function else {}
    return choice(delta={"tool_calls": [{"index": index, "function": function, **named}]})


def test_calls_of_tools_are_put_together_as_a_request_has_them() -> None:
    pieces = [called(0, name="f", arguments=""), called(0, arguments='{"a"'), called(1, name="g", arguments="{}")]
    events = [*pieces, called(0, arguments=": 1}"), choice(delta={}, finish_reason="tool_calls")]
    calls = [
        {"id": "call-0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "call-1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    answer = result(event_stream(events))
    assert list(answer.tool_calls) == calls
    assert list(answer.to_dict()["tool_calls"]) == calls


@pytest.mark.parametrize("index", [[0], {}, "0", None])
def test_a_call_whose_number_is_none_is_the_first(index: object) -> None:
    part = {"index": index, "function": {"name": "f", "arguments": {"a": 1}}}
    answer = result(event_stream([choice(delta={"tool_calls": [part]}, finish_reason="tool_calls")]))
    assert [call["function"] for call in answer.tool_calls] == [{"name": "f", "arguments": ""}]


def test_calls_without_a_number_are_told_apart_by_their_ids() -> None:
    parts = [
        {"id": "a", "function": {"name": "f", "arguments": '{"x"'}},
        {"function": {"arguments": ": 1}"}},
        {"id": "b", "function": {"name": "g", "arguments": "{}"}},
    ]
    answer = result(
        event_stream(
            [choice(delta={"tool_calls": [part]}) for part in parts] + [choice(delta={}, finish_reason="tool_calls")]
        )
    )
    assert [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in answer.tool_calls] == [
        ("a", "f", '{"x": 1}'),
        ("b", "g", "{}"),
    ]


@pytest.mark.parametrize("beginning", [b"retry: 3000\n", b"id: 1\nevent: message\n"])
def test_a_stream_that_breaks_before_its_first_data_is_one(beginning: bytes) -> None:
    with pytest.raises(InvocationError, match="the stream ended too early"):
        result(beginning)


def test_log_probabilities_that_were_asked_for_are_in_the_answer() -> None:
    tokens = [{"token": text, "logprob": -0.5, "top_logprobs": []} for text in "ab"]
    events = [choice(delta={"content": one["token"]}, logprobs={"content": [one]}) for one in tokens]
    assert (
        list(result(event_stream([*events, choice(delta={}, finish_reason="stop", logprobs=None)])).logprobs) == tokens
    )


@pytest.mark.parametrize(
    ("histogram", "length", "per_position"),
    [
        ((), 1.0, ()),
        ((0, 0, 0), 1.0, ()),
        ((5, 0, 0), 1.0, (0.0, 0.0)),
        ((0, 0, 4), 3.0, (1.0, 1.0)),
        ((1, 1, 2), 2.25, (0.75, 0.5)),
    ],
)
def test_acceptance(histogram: tuple[int, ...], length: float, per_position: tuple[float, ...]) -> None:
    acceptance = Acceptance(histogram)
    assert acceptance.length == length
    assert acceptance.per_position == per_position


def test_the_acceptance_length_is_one_and_the_sum_of_its_positions() -> None:
    acceptance = Acceptance((3, 5, 2, 7))
    assert acceptance.length == pytest.approx(1 + sum(acceptance.per_position))


def test_acceptances_add_up_whatever_their_lengths() -> None:
    assert Acceptance((1, 2)) + Acceptance((1, 1, 5)) == Acceptance((2, 3, 5))
    assert Acceptance() + Acceptance((1,)) == Acceptance((1,))


def test_a_chat_is_greedy_and_short_unless_asked_otherwise() -> None:
    body = chat_body("hello", {"temperature": 0.7, "extra_body": {"stream": False}})
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert (body["temperature"], body["max_tokens"]) == (0.7, 256)
    assert body["stream"] is True, "what the Stream needs cannot be switched off"


def test_a_conversation_is_sent_as_it_is() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert chat_body(messages, {})["messages"] == messages


async def coming(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def test_in_an_event_loop_the_answer_is_the_same() -> None:
    async def ask() -> tuple[list[str], Generation]:
        stream = AsyncStream(coming(BYTES[:70], BYTES[70:]), FakeClock())
        return [piece async for piece in stream], await stream.result()

    assert asyncio.run(ask()) == (["<7>", "<8>", "<9>"], GENERATION)


def test_in_an_event_loop_the_result_reads_what_has_not_been_read_yet() -> None:
    async def ask() -> Generation:
        return await AsyncStream(coming(BYTES), FakeClock()).result()

    assert asyncio.run(ask()) == GENERATION


def test_in_an_event_loop_a_stream_that_breaks_off_is_an_error_too() -> None:
    async def ask() -> Generation:
        return await AsyncStream(coming(BYTES[:-100])).result()

    with pytest.raises(InvocationError, match="ended too early"):
        asyncio.run(ask())


def test_what_is_no_event_of_a_chat_is_told() -> None:
    with pytest.raises(InvocationError, match="which is not a chat completion event"):
        result(b"data: 5\n\n")
    with pytest.raises(InvocationError, match="JSON is malformed"):
        result(b"data: {five}\n\n")
    with pytest.raises(InvocationError, match=r"Expected `int` >= 0 - at `\$\.usage\.completion_tokens`"):
        result(b'data: {"usage": {"completion_tokens": -1}}\n\n')


def test_a_notebook_shows_each_figure_beside_its_name() -> None:
    shown = re.sub(r"<[^>]*>", " ", replace(GENERATION, latency=2.0)._repr_html_())
    assert re.search(r"tokens +3, 2 tokens/s +first token +0 ms, then one in 0\.0 ms +acceptance +2\.33 ", shown), shown
