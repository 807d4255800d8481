"""What measuring adds to what is measured: many streams from a server in a process of its own, whose clock is ours.

Prints, asserts nothing about time: both processes share the machine with whatever else runs.
"""

from __future__ import annotations

import asyncio
import os
import time
from itertools import pairwise

import pytest
from streaming_process import process_of
from streaming_server import DONE, Answer, Served, event

from toolkit.measure.arm import Arm
from toolkit.measure.connection import connect_url
from toolkit.measure.load import closed_loop
from toolkit.measure.result import RequestResult
from toolkit.measure.stream_clock import Ask, Timing
from toolkit.measure.workload import Prompt, Workload

TOKENS, SECONDS_PER_TOKEN = 250, 0.02


@pytest.mark.parametrize("streams", [64, 256])
def test_streams_of_50_tokens_per_second(streams: int, capsys: pytest.CaptureFixture[str]) -> None:
    with process_of(answer) as (url, sent):
        cpu, wall, results = asyncio.run(measured(url, streams))
        sends = [times for times in sent() if len(times) >= TOKENS]
    assert {result.outcome for result in results} == {"successful"}
    measured_ms = [gap * 1000 for result in results for gap in result.gaps]
    sent_ms = [(later - earlier) * 1000 for times in sends for earlier, later in pairwise(times[:TOKENS])]
    with capsys.disabled():
        print(f"\n{streams} streams, {len(measured_ms) / wall:.0f} chunks/s: {cpu / wall:.1%} of a core", end="")
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


def answer(request: Served) -> Answer:
    tokens = request.body["max_tokens"]
    first = 0.3 + len(str(request.headers)) % 7 * SECONDS_PER_TOKEN / 7
    parts = [event(SECONDS_PER_TOKEN if index else first, chunk(index)) for index in range(tokens)]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": {"completion_tokens": tokens}}
    return Answer([*parts, event(0.0, end), DONE])


def chunk(index: int) -> dict[str, object]:
    """As long as vLLM's."""
    head = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1763810000, "model": "m"}
    choice = {"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None, "token_ids": [index]}
    return {**head, "choices": [choice]}


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[round(share * (len(values) - 1))]
