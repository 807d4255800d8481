"""What every measurement does besides measuring: it warms up, may be stopped early, and tells which requests failed."""

from __future__ import annotations

import asyncio
import math
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.errors import InvocationError
from toolkit.measure.design import Design, Load, Send
from toolkit.measure.load import Ask, Timing
from toolkit.measure.result import RequestResult

_CPU_STATISTICS = Path("/sys/fs/cgroup/cpu.stat")
_TICK = 0.05
_LATE = 0.005
_THROTTLED_SHARE = 0.01

INTERRUPTED = "the measurement was interrupted: these are its results until then"
LONGEST_ANSWER, _LONGEST_WITH_REASONING = 256, 1024
PATIENCE_SECONDS = 600.0
"""How long requests may still run after the time was up, before they are cut."""
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
            hint = "Why it refuses or fails, its log tells; an endpoint's: toolkit logs NAME"
            raise InvocationError(f"{arm.name} answers no request: {answers[0].error}", hint=hint)
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


class Machine:
    """Watches the event loop that measures: how late it is, and whether its container is throttled.

    `load` is the number of processes that wanted to run in the last minute, as the kernel counts them; 0 on Windows.
    """

    def __init__(self, load: float | None = None, cpu_statistics: Path = _CPU_STATISTICS) -> None:
        self._cpu_statistics = cpu_statistics
        counted = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        self._load = counted if load is None else load
        self._late: list[float] = []
        self._seconds = 0.0
        self._throttled = 0.0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        began, throttled_before = loop.time(), self._throttled_seconds()
        ticking = asyncio.ensure_future(self._tick())
        try:
            yield
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            self._seconds = loop.time() - began
            self._throttled = self._throttled_seconds() - throttled_before

    def notes(self) -> Iterator[str]:
        """What a reader must know of the machine."""
        cores = os.cpu_count() or 1
        if self._load > cores:
            yield f"this machine was busy before: a load of {self._load:.1f} on {cores} CPUs"
        late = sorted(self._late)[int(0.99 * len(self._late))] if self._late else 0.0
        if late > _LATE:
            yield f"the measuring process was up to {late * 1000:.0f} ms late (p99): latencies are that much less sure"
        if self._throttled > _THROTTLED_SHARE * self._seconds:
            yield f"the measuring container was throttled for {self._throttled:.1f} of {self._seconds:.0f} s"

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK
            await asyncio.sleep(_TICK)
            self._late.append(loop.time() - due)

    def _throttled_seconds(self) -> float:
        """How long the kernel has held back the processes of this container; 0 where no limit is set."""
        try:
            lines = documents.read_file(self._cpu_statistics).decode().splitlines()
        except (OSError, ValueError):
            return 0.0
        counters = dict(line.split(maxsplit=1) for line in lines if " " in line)
        microseconds = counters.get("throttled_usec", "0")
        return int(microseconds) / 1e6 if microseconds.isdigit() else 0.0
