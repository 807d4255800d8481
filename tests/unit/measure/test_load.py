"""Requests under load: how many run at a time, when they start, and what a stop leaves."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count, pairwise
from statistics import mean
from typing import Any

import pytest
from fakes import answer_events, event_stream

from toolkit.endpoint.wire import Chunk
from toolkit.errors import InvocationError
from toolkit.measure.arm import Arm, Workload
from toolkit.measure.load import Ask, Timing, closed_loop, open_loop
from toolkit.measure.result import RequestResult
from toolkit.recipe.prompts import Prompt

WORKLOAD = Workload("w", tuple(Prompt(({"role": "user", "content": str(index)},)) for index in range(100)))
BYTES = event_stream(answer_events([7, 8]))


class Gated:
    """Answers once the gate is open, and counts the requests that wait there. It refuses prompt 3."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting = self.most = 0

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            yield [Chunk(0.1, BYTES[:-20])]
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.waiting -= 1
        if body["messages"][0]["content"] == "3":
            raise InvocationError("refused")
        yield [Chunk(0.2, BYTES[-20:])]

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


def asks(number: int) -> list[Ask]:
    return [Ask(WORKLOAD, index) for index in range(number)]


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_a_closed_loop_keeps_its_number_of_requests_running() -> None:
    async def measure() -> tuple[Gated, list[RequestResult]]:
        connection = Gated()
        connection.gate.set()
        timing = Timing(asyncio.get_running_loop().time())
        return connection, await closed_loop(Arm("a", connection), asks(20), 4, timing)

    connection, results = asyncio.run(measure())
    assert connection.most == 4
    assert sorted(result.prompt for result in results) == list(range(20))
    assert [result.prompt for result in results if result.outcome == "failed"] == [3]
    assert {result.load for result in results} == {4}


def test_a_stop_cuts_what_runs_and_sends_no_more() -> None:
    async def measure() -> tuple[list[RequestResult], Iterator[Ask]]:
        connection, stop = Gated(), asyncio.Event()
        endless = (Ask(WORKLOAD, index % 100) for index in count())
        running = asyncio.create_task(closed_loop(Arm("a", connection), endless, 3, Timing(0.0, stop=stop)))
        await until(lambda: connection.waiting == 3)
        stop.set()
        return await running, endless

    results, rest = asyncio.run(measure())
    assert [result.outcome for result in results] == ["incomplete"] * 3
    assert {result.output_tokens for result in results} == {2}, "what had arrived is kept"
    assert next(rest).prompt == 3


def test_after_a_stop_nothing_is_sent() -> None:
    async def measure() -> list[RequestResult]:
        stop = asyncio.Event()
        stop.set()
        timing = Timing(0.0, stop=stop)
        closed = await closed_loop(Arm("a", Gated()), asks(5), 2, timing)
        return closed + await open_loop(Arm("a", Gated()), asks(5), 1000.0, timing)

    assert asyncio.run(measure()) == []


def test_no_garbage_is_collected_while_answers_are_timed() -> None:
    async def measure() -> tuple[bool, bool]:
        connection = Gated()
        running = asyncio.create_task(closed_loop(Arm("a", connection), asks(2), 2, Timing(0.0)))
        await until(lambda: connection.waiting == 2)
        while_timed = gc.isenabled()
        connection.gate.set()
        await running
        return while_timed, gc.isenabled()

    assert asyncio.run(measure()) == (False, True)


def test_who_cancels_the_measurement_itself_gets_no_results() -> None:
    async def measure() -> None:
        connection = Gated()
        running = asyncio.create_task(closed_loop(Arm("a", connection), asks(5), 2, Timing(0.0, stop=asyncio.Event())))
        await until(lambda: connection.waiting == 2)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(measure())


def test_an_open_loop_does_not_wait_for_answers() -> None:
    async def measure() -> tuple[int, list[RequestResult]]:
        connection = Gated()
        running = asyncio.create_task(open_loop(Arm("a", connection), asks(30), 5000.0, Timing(0.0), seed=1))
        await until(lambda: connection.waiting == 30)
        connection.gate.set()
        return connection.most, await running

    most, results = asyncio.run(measure())
    assert (most, len(results)) == (30, 30)
    assert all(result.open_loop and result.load == 5000 for result in results)


def test_an_open_loop_sends_at_its_rate_by_a_poisson_process() -> None:
    """A loop whose clock jumps to the next timer, so that 2,000 requests at 10 per second take no time."""
    starts = sorted(result.started for result in _simulated(2000, rate=10.0, seed=4))
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert mean(gaps) == pytest.approx(0.1, rel=0.07)
    assert sum(gap > 0.1 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.04), "exponential: 1/e"
    assert starts == sorted(result.started for result in _simulated(2000, rate=10.0, seed=4)), "the seed decides"


class _Jumping(asyncio.SelectorEventLoop):
    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def _simulated(number: int, rate: float, seed: int) -> list[RequestResult]:
    async def measure() -> list[RequestResult]:
        connection = Gated()
        connection.gate.set()
        clock = asyncio.get_running_loop().time
        timing = Timing(clock(), clock=clock)
        return await open_loop(Arm("a", connection), [Ask(WORKLOAD, 0)] * number, rate, timing, seed)

    with asyncio.Runner(loop_factory=_Jumping) as runner:
        return runner.run(measure())
