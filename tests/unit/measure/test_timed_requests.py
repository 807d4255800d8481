"""One timed request: every figure of a known schedule, whatever the engine calls its fields."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from fakes import event_stream

from toolkit.endpoint.generation import Arrival
from toolkit.endpoint.wire import Chunk
from toolkit.errors import InvocationError, PlatformError, UsageError
from toolkit.measure.arm import Arm, Workload
from toolkit.measure.load import Ask, Timing, time_request
from toolkit.measure.result import RequestResult
from toolkit.recipe.prompts import Prompt

Event = Mapping[str, Any]
PROMPT = Prompt(({"role": "user", "content": "hello"},))
WORKLOAD = Workload("w", (PROMPT, Prompt(PROMPT.messages, max_tokens=9)))


class Scheduled:
    """A connection whose answer arrives by a schedule. An exception in it is raised."""

    def __init__(self, *schedule: Chunk | PlatformError) -> None:
        self.schedule = schedule
        self.body: Mapping[str, Any] = {}

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        self.body = body
        for item in self.schedule:
            if isinstance(item, Exception):
                raise item
            yield [item]

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


def at(seconds: float, *events: Event) -> Chunk:
    return Chunk(seconds, event_stream(events, end=b""))


def delta(token_ids: Sequence[int] | None = None, **fields: Any) -> Event:
    return {"choices": [{"delta": fields, "token_ids": token_ids}]}


def usage(completion: int, **fields: Any) -> Event:
    return {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": completion}, **fields}


STOP: Event = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
DONE = b"data: [DONE]\n\n"


def measured(*schedule: Chunk | PlatformError, **of_arm: Any) -> RequestResult:
    arm = Arm("a", Scheduled(*schedule), **of_arm)
    return asyncio.run(time_request(arm, Ask(WORKLOAD, 0), Timing(began=0.0)))


def answer(*schedule: Chunk, tokens: int, end: float, **of_usage: Any) -> RequestResult:
    return measured(*schedule, at(end, STOP, usage(tokens, **of_usage)), Chunk(end, DONE))


def test_every_figure_of_a_schedule() -> None:
    result = answer(
        at(0.05, {"choices": [{"delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [1, 2]}),
        at(0.10, delta([7], content="a")),
        at(0.13, delta([8, 9, 10], content="bcd")),
        at(0.18, delta([11], content="e")),
        tokens=5,
        end=0.2,
        metrics={"speculative_decoding": {"acceptance_histogram": [2, 0, 1]}},
    )
    assert result.outcome == "successful"
    assert result.ttft == 0.10, "the role alone is no token"
    assert result.gaps == pytest.approx((0.03, 0.05)), "tokens of one chunk share the gap before it"
    assert result.tpot == pytest.approx(0.08 / 4)
    assert result.seconds == 0.2
    assert (result.prompt_tokens, result.output_tokens, result.reasoning_tokens) == (5, 5, 0)
    assert result.acceptance is not None
    assert result.acceptance.length == pytest.approx(1 + 2 / 3)
    assert (result.text, result.token_ids, result.prompt_token_ids) == ("abcde", (7, 8, 9, 10, 11), (1, 2))
    assert result.finish_reason == "stop"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_the_first_token_may_be_reasoning(field: str) -> None:
    result = answer(
        at(0.11, delta([1], **{field: "hm"})),
        at(0.50, delta([2], **{field: "so"})),
        at(2.11, delta([3], content="4")),
        tokens=3,
        end=2.2,
    )
    assert (result.ttft, result.reasoning_tokens, result.output_tokens) == (0.11, 2, 3)
    assert (result.reasoning, result.text) == ("hmso", "4")


def test_reasoning_that_uses_up_the_answer() -> None:
    cut = {"choices": [{"delta": {"reasoning": "m"}, "token_ids": [2], "finish_reason": "length"}]}
    result = measured(at(0.1, delta([1], reasoning="h")), at(0.2, cut), at(0.2, usage(2)), Chunk(0.2, DONE))
    assert (result.ttft, result.text, result.finish_reason, result.reasoning_tokens) == (0.1, "", "length", 2)


def test_the_engine_counts_reasoning_tokens_better_than_we_do() -> None:
    counted = {"choices": [], "usage": {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}}
    result = measured(at(0.1, delta(reasoning="h")), at(0.2, delta(content="h"), STOP, counted), Chunk(0.2, DONE))
    assert (result.reasoning_tokens, result.output_tokens) == (7, 9)


def test_reasoning_that_the_engine_does_not_count_is_counted() -> None:
    """vLLM 0.32 counts from `<think>` on, which the chat templates of many models write into the prompt."""
    counted = {"choices": [], "usage": {"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 0}}}
    thought, said = delta([1, 2], reasoning="h"), delta([3], content="h")
    result = measured(at(0.1, thought), at(0.2, said, STOP, counted), Chunk(0.2, DONE))
    assert (result.reasoning_tokens, result.output_tokens) == (2, 3)


def test_a_chunk_that_ends_the_reasoning_counts_by_its_text() -> None:
    both = delta([2, 3, 4, 5], reasoning="r" * 30, content="c" * 10)
    assert answer(at(0.1, delta([1], reasoning="h")), at(0.2, both), tokens=5, end=0.2).reasoning_tokens == 4


def test_a_tool_call_is_generated_too() -> None:
    call = delta(None, tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{}"}}])
    assert answer(at(0.1, call), tokens=6, end=0.3).arrivals == (Arrival(0.1, 6),)


def test_a_token_without_text_is_a_token() -> None:
    """Half a character, or the mark that starts the reasoning."""
    result = answer(at(0.1, delta([1])), at(0.2, delta([2], content="é")), tokens=2, end=0.2)
    assert (result.ttft, result.gaps) == (0.1, (0.1,))


def test_text_completions() -> None:
    text: Event = {"choices": [{"text": "ab", "token_ids": [1, 2], "prompt_token_ids": [9]}]}
    result = answer(at(0.1, text), tokens=2, end=0.2)
    assert (result.ttft, result.text, result.prompt_token_ids) == (0.1, "ab", (9,))


def test_without_token_ids_the_usage_of_each_chunk_counts() -> None:
    pieces = [at(0.1 * count, {**delta(content="x"), "usage": {"completion_tokens": count}}) for count in (1, 4, 6)]
    result = answer(*pieces, tokens=6, end=0.7)
    assert [arrival.tokens for arrival in result.arrivals] == [1, 3, 2]


def test_without_any_count_tokens_follow_the_length_of_the_text() -> None:
    pieces = [at(0.1, delta(content="x")), at(0.2, delta(content="x" * 8)), at(0.3, delta(content="x"))]
    result = answer(*pieces, tokens=13, end=0.4)
    assert [arrival.tokens for arrival in result.arrivals] == [2, 9, 2]


def test_an_engine_that_sends_characters_has_fewer_tokens_than_chunks() -> None:
    pieces = [at(0.1 * count, delta(content="x")) for count in range(1, 9)]
    result = answer(*pieces, tokens=2, end=0.9)
    assert sum(arrival.tokens for arrival in result.arrivals) == result.output_tokens == 2
    assert result.ttft == 0.1


def test_events_that_arrive_together_are_one_arrival() -> None:
    chunk = at(0.1, delta([1], content="a"), delta([2], content="b"))
    assert answer(chunk, tokens=2, end=0.1).arrivals == (Arrival(0.1, 2),)


def test_the_usage_may_come_with_the_last_choice() -> None:
    last = {**STOP, "usage": {"completion_tokens": 3}}
    result = measured(at(0.1, delta(content="ab")), at(0.2, delta(content="c")), at(0.3, last), Chunk(0.3, DONE))
    assert (result.outcome, result.output_tokens, result.ttft) == ("successful", 3, 0.1)


@pytest.mark.parametrize("line", [b"data:%s\n\n", b"data: %s\r\n\r\n", b": ping\n\nevent: message\ndata: %s\n\n"])
def test_every_way_to_write_an_event(line: bytes) -> None:
    event = b'{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}'
    result = measured(Chunk(0.1, line % event + line % b"[DONE]"))
    assert (result.outcome, result.text) == ("successful", "hi")


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ([InvocationError("a: answered 503: busy")], "a: answered 503: busy"),
        ([PlatformError("no credentials")], "no credentials"),
        ([], "the stream ended too early"),
        ([at(0.3, {"error": {"message": "out of memory"}})], "out of memory"),
        ([Chunk(0.3, b"data: {oops}\n\n")], "not a chat completion event"),
    ],
)
def test_a_failure_is_a_result_with_what_arrived(end: list[Chunk | PlatformError], error: str) -> None:
    result = measured(at(0.1, delta([1], content="a")), at(0.2, delta([2], content="b")), *end)
    assert result.outcome == "failed"
    assert error in (result.error or "")
    assert (result.output_tokens, result.gaps, result.text) == (2, (0.1,), "ab")


def test_a_request_is_greedy_and_as_long_as_its_prompt_says() -> None:
    connection = Scheduled()
    arm = Arm("a", connection, options={"seed": 3})
    asyncio.run(time_request(arm, Ask(WORKLOAD, 0), Timing(0.0, max_tokens=700)))
    assert {"max_tokens": 700, "temperature": 0, "seed": 3, "return_token_ids": True}.items() <= connection.body.items()
    asyncio.run(time_request(arm, Ask(Workload("w", WORKLOAD.prompts, fixed_length=True), 1), Timing(0.0)))
    assert {"max_tokens": 9, "ignore_eos": True}.items() <= connection.body.items()


@pytest.mark.parametrize(("told", "chunks"), [({}, True), ({"usage": {"completion_tokens": 6}}, False)])
def test_a_chunk_counts_as_a_token_only_where_there_is_no_usage(told: Event, chunks: bool) -> None:
    """Token ids are not told in either case."""
    result = measured(at(0.1, delta(content="ab")), at(0.2, delta(content="cd")), at(0.3, {**STOP, **told}))
    assert (result.counts_chunks, result.output_tokens) == (chunks, 2 if chunks else 6)


def test_several_answers_to_a_request_are_refused() -> None:
    """Their texts would come mixed."""
    arm = Arm("a", Scheduled(), options={"extra_body": {"n": 2}})
    with pytest.raises(UsageError, match="not n=2"):
        asyncio.run(time_request(arm, Ask(WORKLOAD, 0), Timing(0.0)))


def test_with_a_cold_cache_each_request_has_a_salt_of_its_own() -> None:
    arm = Arm("a", connection := Scheduled(), cache_salt="cache_salt")
    salts = set()
    for _ in range(2):
        asyncio.run(time_request(arm, Ask(WORKLOAD, 0), Timing(0.0, cold_cache=True)))
        salts.add(connection.body["cache_salt"])
    assert len(salts) == 2
    asyncio.run(time_request(arm, Ask(WORKLOAD, 0), Timing(0.0)))
    assert "cache_salt" not in connection.body


def test_an_engine_without_salts_is_sent_none() -> None:
    asyncio.run(time_request(Arm("a", connection := Scheduled()), Ask(WORKLOAD, 0), Timing(0.0, cold_cache=True)))
    assert not any("salt" in key for key in connection.body)


@pytest.mark.parametrize(("details", "cached"), [({}, None), ({"prompt_tokens_details": {"cached_tokens": 16}}, 16)])
def test_tokens_of_the_prompt_that_were_in_the_cache(details: Event, cached: int | None) -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 1, **details}
    result = measured(at(0.1, delta([1], content="a")), at(0.2, {"choices": [], "usage": usage}))
    assert (result.prompt_tokens, result.cached_tokens) == (20, cached)
