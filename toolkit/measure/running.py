"""What every measurement does besides measuring: it warms up, may be stopped early, and tells which requests failed."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import Any

from toolkit.errors import InvocationError
from toolkit.measure.design import Design, Load, Send
from toolkit.measure.load import Ask, Timing
from toolkit.measure.machine import Machine
from toolkit.measure.result import RequestResult

INTERRUPTED = "the measurement was interrupted: these are its results until then"
LONGEST_ANSWER, _LONGEST_WITH_REASONING = 256, 1024
_WARM_UP_TOKENS = 8
_WARM_UP_PROMPTS = 3
_LOADS_OF_OPEN_LOOPS = (1, 4, 16)
_MOST_NAMED, _LONGEST_ERROR = 10, 200
_TOO_LATE = "requests that still ran long after the time was up were cut"


async def warm_up(design: Design, send: Send, timing: Timing) -> Timing:
    """A few tokens from each arm under each load. Raises InvocationError.

    On a GPU an engine compiles some kernels when the first request of a kind comes, for a single one others than for
    many: seconds that are no part of an answer. Several prompts, because a single one may be too long for the model.
    Answers that begin with reasoning get room: the timing of what follows.
    """
    loads = sorted({math.ceil(load.value) for load in design.loads if not load.open_loop} or _LOADS_OF_OPEN_LOOPS)
    reasons = False
    for arm in design.all_arms:
        answers: list[RequestResult] = []
        for workload in design.workloads:
            short = tuple(replace(prompt, max_tokens=_WARM_UP_TOKENS) for prompt in workload.prompts)
            for load in loads:
                number = max(load, _WARM_UP_PROMPTS)
                asks = [Ask(replace(workload, prompts=short), index % len(short)) for index in range(number)]
                answers += await send(arm, asks, Load(load), timing)
        if answers and all(answer.outcome == "failed" for answer in answers):
            raise InvocationError(f"{arm.name} answers no request: {answers[0].error}")
        reasons |= any(answer.reasoning for answer in answers)
    if not reasons or design.max_tokens is not None:
        return timing
    # Half of a short context is left to the prompts.
    halves = [arm.max_model_len // 2 for arm in design.all_arms if arm.max_model_len]
    return replace(timing, max_tokens=max(LONGEST_ANSWER, min([_LONGEST_WITH_REASONING, *halves])))


async def until_stopped(
    work: Coroutine[Any, Any, None], stop: asyncio.Event, seconds: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Wait for a measurement, which ends early once `stop` is set: by Ctrl-C, or after so many seconds.

    Returns why it ended early, if it did, and what disturbed the machine that measured.
    """
    machine = Machine()
    ended: tuple[str, ...] = ()
    late = asyncio.get_running_loop().call_later(seconds, stop.set)
    async with machine.watched():
        task = asyncio.ensure_future(work)
        try:
            await asyncio.shield(task)
            ended = (_TOO_LATE,) if stop.is_set() else ()
        except asyncio.CancelledError:
            ended = (INTERRUPTED,)
            stop.set()
            if current := asyncio.current_task():
                current.uncancel()
            await task
        finally:
            late.cancel()
    return ended, tuple(machine.notes())


def failures(results: Iterable[RequestResult]) -> Iterator[str]:
    """The prompts that failed, as numbers from 1, by arm, workload and error."""
    prompts: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for item in results:
        if item.outcome == "failed":
            prompts[item.arm, item.workload, item.error or ""].add(item.prompt + 1)
    for (arm, workload, error), numbers in prompts.items():
        shown = ", ".join(map(str, sorted(numbers)[:_MOST_NAMED]))
        more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
        yield f"failed: {workload}, prompt {shown}{more}, {arm}: {error[:_LONGEST_ERROR]}"
