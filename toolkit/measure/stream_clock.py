"""One request, sent and timed: the chunks of a streamed answer become a RequestResult."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolkit.endpoint.generation import Answer
from toolkit.endpoint.request import chat_body
from toolkit.errors import PlatformError
from toolkit.measure.arm import NO_PENALTIES, Arm
from toolkit.measure.result import Outcome, RequestResult
from toolkit.measure.workload import Workload


@dataclass(frozen=True)
class Ask:
    """One request to send: a workload's prompt, by its index, for the `round`-th time."""

    workload: Workload
    prompt: int
    round: int = 0


@dataclass(frozen=True)
class Timing:
    """What all requests of a measurement share.

    `began` is when it began on `clock`; `max_tokens` limits the answers of prompts without their own limit. Setting
    `stop` ends the measurement: requests that are still running are cut.
    """

    began: float
    max_tokens: int = 256
    stop: asyncio.Event | None = None
    clock: Callable[[], float] = time.perf_counter

    @property
    def stopped(self) -> bool:
        """Whether the measurement is to end."""
        return self.stop is not None and self.stop.is_set()


async def time_request(arm: Arm, ask: Ask, timing: Timing, load: float = 1, open_loop: bool = False) -> RequestResult:
    """Send a request. A failure is a result too; so is a request cut by `stop`, which is incomplete."""
    answer, sent = Answer(), timing.clock()
    outcome: Outcome = "successful"
    error = None
    try:
        async for chunks in arm.connection.stream(body(arm, ask, timing.max_tokens)):
            for chunk in chunks:
                answer.take(*chunk)
        answer.require_complete()
    except PlatformError as failure:
        outcome, error = "failed", failure.message
    except asyncio.CancelledError:
        if not timing.stopped:
            raise
        outcome = "incomplete"
    generation = answer.so_far()
    return RequestResult(
        arm=arm.name,
        workload=ask.workload.name,
        prompt=ask.prompt,
        round=ask.round,
        load=load,
        started=sent - timing.began,
        seconds=generation.latency if outcome == "successful" else timing.clock() - sent,
        outcome=outcome,
        arrivals=generation.arrivals,
        prompt_tokens=generation.prompt_tokens,
        output_tokens=generation.completion_tokens,
        reasoning_tokens=generation.reasoning_tokens,
        finish_reason=generation.finish_reason or None,
        acceptance=generation.acceptance,
        error=error,
        open_loop=open_loop,
        prompt_token_ids=generation.prompt_token_ids,
        token_ids=generation.token_ids,
        text=generation.text,
        reasoning=generation.reasoning,
    )


def body(arm: Arm, ask: Ask, max_tokens: int) -> Mapping[str, Any]:
    """The request: greedy and without penalties, whatever the model's own defaults are, unless the options differ."""
    prompt = ask.workload.prompts[ask.prompt]
    length = {"max_tokens": prompt.max_tokens or max_tokens}
    fixed = {"ignore_eos": True} if ask.workload.fixed_length else {}
    return chat_body(prompt.messages, {**NO_PENALTIES, **length, **fixed, **arm.options})
