"""What measuring adds to what is measured: many streams from a server in a process of its own, whose clock is ours.

Prints, asserts nothing about time: both processes share the machine with whatever else runs.
"""

from __future__ import annotations

import os
import time
from functools import partial
from itertools import pairwise

import pytest
from streaming_process import process_of
from streaming_server import DONE, Answer, Served, event

from toolkit.measure.arm import Arm, Workload
from toolkit.measure.connection import connect_url
from toolkit.measure.endpoints import run_to_end
from toolkit.measure.load import Ask, Timing, closed_loop
from toolkit.measure.result import RequestResult
from toolkit.recipe.prompts import Prompt

TOKENS, SECONDS_PER_TOKEN = 250, 0.02


@pytest.mark.parametrize(("streams", "tokens_a_chunk"), [(64, 1), (64, 3), (256, 1)])
def test_streams_of_50_tokens_per_second(streams: int, tokens_a_chunk: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Without speculation a chunk has one token, with it as many as a step accepts."""
    chunks = TOKENS // tokens_a_chunk
    with process_of(partial(answer, tokens_a_chunk)) as (url, sent):
        cpu, wall, results = run_to_end(measured(url, streams))
        sends = [times for times in sent() if len(times) >= chunks]
    assert {result.outcome for result in results} == {"successful"}
    measured_ms = [gap * 1000 for result in results for gap in result.gaps]
    sent_ms = [(later - earlier) * 1000 for times in sends for earlier, later in pairwise(times[:chunks])]
    with capsys.disabled():
        print(f"\n{streams} streams, {tokens_a_chunk} tokens a chunk, ", end="")
        print(f"{len(measured_ms) / wall:.0f} chunks/s: {cpu / wall:.1%} of a core", end="")
        print(f" ({cpu / len(measured_ms) * 1e6:.1f} µs a chunk); load of the machine {os.getloadavg()[0]:.1f}")
        for share in (0.5, 0.9, 0.99):
            ours, theirs = quantile(measured_ms, share), quantile(sent_ms, share)
            print(f"  ITL p{share * 100:.0f}: sent {theirs:.2f} ms, measured {ours:.2f} ms, added {ours - theirs:+.2f}")


async def measured(url: str, streams: int) -> tuple[float, float, list[RequestResult]]:
    """CPU seconds of this process, seconds, and what was measured."""
    workload = Workload("w", (Prompt(({"role": "user", "content": "hello"},)),))
    async with connect_url(url, model="m") as connection:
        arm = Arm("a", connection)
        await closed_loop(arm, [Ask(workload, 0)] * 2, 1, Timing(time.perf_counter(), max_tokens=1))
        cpu, began = time.process_time(), time.perf_counter()
        results = await closed_loop(arm, [Ask(workload, 0)] * streams, streams, Timing(began, max_tokens=TOKENS))
        return time.process_time() - cpu, time.perf_counter() - began, results


def answer(tokens_a_chunk: int, request: Served) -> Answer:
    tokens = request.body["max_tokens"]
    seconds = SECONDS_PER_TOKEN * tokens_a_chunk
    first = 0.3 + len(str(request.headers)) % 7 * seconds / 7
    starts = range(0, tokens - tokens % tokens_a_chunk or 1, tokens_a_chunk)
    parts = [event(seconds if start else first, chunk(start, tokens_a_chunk)) for start in starts]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": {"completion_tokens": tokens}}
    return Answer([*parts, event(0.0, end), DONE])


def chunk(start: int, tokens: int) -> dict[str, object]:
    """As long as vLLM's."""
    head = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1763810000, "model": "m"}
    ids = [*range(start, start + tokens)]
    choice = {
        "index": 0,
        "delta": {"content": " word" * tokens},
        "logprobs": None,
        "finish_reason": None,
        "token_ids": ids,
    }
    return {**head, "choices": [choice]}


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[round(share * (len(values) - 1))]
