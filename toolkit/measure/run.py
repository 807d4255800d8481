"""A paired measurement: each block of prompts is asked of all arms, one arm right after the other.

A block is one prompt with one request at a time (four where arms have to settle), and two waves of requests where
several run concurrently: one wave alone would be all end, when fewer run, and more would be fewer blocks. The first arm
of a block alternates, so whatever drifts (a clock, a neighbour, the heat) hits all arms alike. Every second block is
also asked of the baseline once more: the baseline against itself is the noise. The blocks of all workloads and loads
take turns by time: the next is of the one that had least. Each goes on until the interval of its speedups is narrow
enough, and all until the time is up.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, islice

from toolkit.measure.arm import Arm, Workload
from toolkit.measure.design import Design, LeftOut, Load, Measured, Progress, Send
from toolkit.measure.journal import Journal, Same
from toolkit.measure.load import Ask, Timing
from toolkit.measure.result import RequestResult, Thinned
from toolkit.measure.running import INTERRUPTED, LONGEST_ANSWER, PATIENCE_SECONDS, failures, until_stopped, warm_up
from toolkit.measure.statistics import (
    BlockNoise,
    Pair,
    block_noise,
    busy_seconds,
    half_width,
    lacks_blocks,
    pairs_of,
    pool,
    speedup,
    what_narrows,
)

_WAVES = 2
_IN_A_ROW = 4
# An open loop's block takes so long, or so large a share of each load's time: for some eight blocks of two arms.
_OPEN_LOOP_SECONDS, _SHARE_OF_TIME = 10.0, 1 / 20
# A queue takes time to show: a trace's blocks are longer where the time allows.
_TRACE_SECONDS = 60.0
# The warm-up and the last block may each take this share of the time without being counted, or foreseen.
_WARM_UP_SHARE, _OVERTIME = 1 / 2, 1 / 10
FEWEST_ROUNDS = 3
"""After fewer, an interval may be narrow by chance."""
_FEWEST_BLOCKS = 3
# Intervals are computed anew when there is a tenth more to compute them from.
_LOOK_AFTER = 1.1


async def run(
    design: Design,
    send: Send,
    progress: Callable[[Progress], object] = lambda _: None,
    journal: Journal | None = None,
    clock: Callable[[], float] = time.perf_counter,
    patience: float = PATIENCE_SECONDS,
) -> Measured:
    """Warm up, and measure until the intervals are narrow enough or the time is up.

    Cancel the task (Ctrl-C does) to stop: it then returns what it has. With a journal all results are saved as they
    come, and those that it already holds are not measured again. Requests that still run `patience` seconds after the
    time was up are cut: a server may send without an end. Raises InvocationError if an arm answers no warm-up.
    """
    cells, elapsed = _cells(design, journal.results() if journal else ())
    stop = asyncio.Event()
    timing = Timing(clock() - elapsed, design.max_tokens or LONGEST_ANSWER, design.cache == "cold", stop, clock)
    measurement = _Measurement(design, send, cells, journal, timing)
    ended, machine = await until_stopped(measurement.run(progress), stop, design.seconds + patience)
    notes = (*ended, *measurement.notes(), *(journal.notes if journal else ()))
    return Measured(tuple(measurement.results), measurement.left_out, notes, INTERRUPTED not in ended, machine)


def again(baseline: str) -> str:
    """The name of the baseline where it is compared with itself."""
    return f"{baseline} (again)"


def block_seconds(design: Design) -> float:
    """For how long the requests of an open loop's block are sent."""
    most = _TRACE_SECONDS if design.trace else _OPEN_LOOP_SECONDS
    return min(most, design.seconds * _SHARE_OF_TIME / max(1, len(design.loads)))


@dataclass
class _Cell:
    """One workload under one load. `blocks` and `asked` count what was asked of each arm in `spent` seconds.

    `turns` counts the blocks by their number of arms, so that in each kind every arm is the first equally often.
    `turns_of` has the chats that end early: how many turns of each were answered by every arm.
    """

    workload: Workload
    load: Load
    seed: int
    in_a_row: int = 1
    block_seconds: float = _OPEN_LOOP_SECONDS
    answered: frozenset[tuple[int, int]] = frozenset()
    kept: Thinned = field(default_factory=Thinned)
    failed: set[int] = field(default_factory=set)
    turns_of: dict[int, int] = field(default_factory=dict)
    turns: dict[int, Iterator[int]] = field(default_factory=lambda: defaultdict(count))
    asked: int = 0
    blocks: int = 0
    spent: float = 0.0
    longest: float = 0.0
    noises: list[BlockNoise] = field(default_factory=list)
    next_look: float = 0.0
    next_ratio: float = 0.0
    ratio: float | None = None
    width: float = math.inf
    done: bool = False

    @cached_property
    def asks(self) -> Iterator[Ask]:
        """Rounds over all prompts: the first in their order, the others shuffled. Prompts that failed are left out."""
        numbers = list(range(len(self.workload.prompts)))
        shuffle = random.Random(f"{self.seed} {self.workload.name}").shuffle  # noqa: S311
        for turn in count():
            if len(self.failed) == len(numbers):
                return
            for number in numbers:
                if number not in self.failed and (number, turn) not in self.answered:
                    yield Ask(self.workload, number, turn, turns=self.turns_of.get(number))
            if not self.workload.arrivals:
                shuffle(numbers)

    @cached_property
    def windows(self) -> Iterator[list[Ask]]:
        """Of a trace: the requests of each stretch of `block_seconds`, which begins with the first of them."""
        arrivals = self.workload.arrivals
        ahead = next(self.asks, None)
        while ahead:
            first, members = ahead, []
            while ahead and ahead.round == first.round:
                at = arrivals[ahead.prompt] - arrivals[first.prompt]
                if at > self.block_seconds:
                    break
                members.append(replace(ahead, at=at, cache=str(ahead.round)))
                ahead = next(self.asks, None)
            yield members

    def next_asks(self, most: int | None) -> list[Ask]:
        """What the next block asks: no more than `most`."""
        if self.workload.arrivals:
            return next(self.windows, [])
        return list(islice(self.asks, self.block_size if most is None else min(self.block_size, most)))

    @property
    def rounds(self) -> float:
        """How often each prompt was asked."""
        return self.asked / len(self.workload.prompts)

    @property
    def block_size(self) -> int:
        if self.load.open_loop:
            return max(_IN_A_ROW, math.ceil(self.load.value * self.block_seconds))
        return self.in_a_row if self.load.is_single else _WAVES * math.ceil(self.load.value)

    @property
    def results(self) -> Sequence[RequestResult]:
        return self.kept.results

    def add(self, results: Sequence[RequestResult]) -> None:
        self.kept.add(results)
        for item in results:
            if item.outcome == "failed":
                self.end_early(item)

    def end_early(self, failed: RequestResult) -> None:
        """Ask the prompt no more; of a chat fewer turns, if it was a later one that failed."""
        turn = self.workload.names.index(failed.workload)
        if turn:
            self.turns_of[failed.prompt] = min(turn, self.turns_of.get(failed.prompt, turn))
        else:
            self.failed.add(failed.prompt)

    def turns_asked(self, prompt: int) -> int:
        """How many results a request of it has."""
        turns = len(self.workload.chat(prompt)) if self.workload.turns > 1 else 1
        return min(turns, self.turns_of.get(prompt, turns))

    def carry_on(self, answered: frozenset[tuple[int, int]]) -> None:
        """After the saved results were added: those of requests that every arm has answered are of this measurement."""
        self.kept.keep(lambda item: (item.prompt, item.round) in answered)
        self.answered, self.asked = answered, len(answered)
        self.blocks = 1 + max((item.block for item in self.results if item.block is not None), default=-1)
        others = self.kept.left_out.total() / max(1, len(self.results))
        self.spent = busy_seconds(self.results) * (1 + others)

    def __str__(self) -> str:
        return self.workload.name if self.workload.arrivals else f"{self.workload.name} with {self.load}"


def _cells(design: Design, saved: Iterable[RequestResult]) -> tuple[list[_Cell], float]:
    """The cells with the saved results of those requests that every arm has answered, and when the last saved ended."""
    in_a_row = _IN_A_ROW if design.settle_seconds else 1
    seconds = block_seconds(design)
    at = [(workload, load) for workload in design.workloads for load in design.loads]
    cells = [
        _Cell(workload, load, design.seed, in_a_row, seconds, kept=Thinned.of_cells(len(at))) for workload, load in at
    ]
    by_point = {
        (name, cell.load.value, cell.load.open_loop): (number, turn)
        for number, cell in enumerate(cells)
        for turn, name in enumerate(cell.workload.names)
    }
    arms = {arm.name: number for number, arm in enumerate(design.all_arms)}
    # for each request a bit for each turn of each arm
    seen: list[dict[tuple[int, int], int]] = [{} for _ in cells]
    elapsed = 0.0
    for item in saved:
        elapsed = max(elapsed, item.started + item.seconds)
        point, request = (item.workload, item.load, item.open_loop), (item.prompt, item.round)
        if point in by_point and item.outcome == "failed" and by_point[point][1]:
            cells[by_point[point][0]].end_early(item)
        elif point in by_point and item.outcome == "successful":
            number, turn = by_point[point]
            cells[number].kept.add([item])
            bit = 1 << (turn * len(arms) + arms[item.arm]) if item.arm in arms else 0
            seen[number][request] = seen[number].get(request, 0) | bit
    for cell, bits in zip(cells, seen, strict=True):
        whole = {request: (1 << cell.turns_asked(request[0]) * len(arms)) - 1 for request in bits}
        cell.carry_on(frozenset(key for key, found in bits.items() if found & whole[key] == whole[key]))
    return cells, elapsed


class _Measurement:
    """What was asked so far, and what came of it."""

    def __init__(
        self, design: Design, send: Send, cells: Sequence[_Cell], journal: Journal | None, timing: Timing
    ) -> None:
        self._design, self._send, self._journal, self._timing = design, send, journal, timing
        self._same = Same()
        self._cells = cells

    @property
    def results(self) -> Iterator[RequestResult]:
        """The results, those of a journal first."""
        return (item for cell in self._cells for item in cell.results)

    @property
    def left_out(self) -> dict[LeftOut, int]:
        """How many answers are not among the results."""
        return {
            (name, cell.load.value, cell.load.open_loop, arm): round(count / cell.workload.turns)
            for cell in self._cells
            for arm, count in cell.kept.left_out.items()
            for name in cell.workload.names
        }

    async def run(self, progress: Callable[[Progress], object]) -> None:
        """Blocks of all cells by turns: the next is always of the cell that had the least time."""
        came, allowed = self._timing.clock(), self._design.seconds
        self._timing = await warm_up(self._design, self._send, self._timing)
        begun, asked_before = self._timing.clock(), self._asked
        deadline = begun + max(allowed - (begun - came), allowed * _WARM_UP_SHARE)
        while self._timing.clock() < deadline and not self._timing.stopped:
            waiting = [cell for cell in self._cells if not cell.done]
            fitting = self._fitting(waiting, deadline - self._timing.clock())
            if not fitting:
                return
            cell = min(fitting, key=lambda cell: cell.spent)
            await self._next_block(cell)
            seconds, asked = self._timing.clock() - begun, self._asked - asked_before
            remaining = min(deadline - begun - seconds, sum(map(self._remaining, waiting)) * seconds / max(1, asked))
            of = asked * (1 + max(0.0, remaining) / seconds) if seconds else 0
            progress(Progress(asked, seconds, max(0.0, remaining), str(cell), round(of), self._ratio(cell)))

    def _fitting(self, waiting: Sequence[_Cell], left: float) -> list[_Cell]:
        """The cells whose next block should end in time, if it takes as long as their longest did, or any other's.

        One of a single block always fits: without a second one nothing can be said of it.
        """
        longest = max((cell.longest for cell in self._cells), default=0.0)
        room = left + _OVERTIME * self._design.seconds
        return [cell for cell in waiting if cell.blocks == 1 or (cell.longest or longest) <= room]

    def notes(self) -> Iterator[str]:
        """Where less was measured than was asked for, and which requests failed."""
        if self._design.max_tokens is None and self._timing.max_tokens > LONGEST_ANSWER:
            yield f"the model reasons: answers may have {self._timing.max_tokens} tokens; see --max-tokens"
        warm = [arm.name for arm in self._design.all_arms if not arm.cache_salt]
        if warm and self._design.cache == "cold":
            yield f"prompts may have been in the caches of {', '.join(warm)}: the engine cannot leave a cache unread"
        if others := sum(self.left_out.values()):
            held = sum(len(cell.results) for cell in self._cells)
            yield f"figures are of {held:,} of {held + others:,} answers: of whole blocks, from the first to the last"
        yield from failures(self.results)
        for cell in self._cells:
            wanted = self._design.requests
            if wanted and cell.asked < wanted:
                why = "the rest failed" if cell.done else "the time was up"
                yield f"{cell}: {cell.asked} of {wanted} requests, then {why}"
            elif not wanted and self._design.baseline and not cell.done:
                yield f"{cell}: {self._too_wide(cell)}"

    @property
    def _asked(self) -> int:
        return sum(cell.asked for cell in self._cells)

    async def _next_block(self, cell: _Cell) -> None:
        asks = cell.next_asks(max(0, self._design.requests - cell.asked) if self._design.requests else None)
        began = self._timing.clock()
        for arm in self._order(cell, asks) if asks else ():
            sent = await self._send(arm, asks, cell.load, self._timing)
            results = [self._same.share(replace(item, block=cell.blocks)) for item in sent]
            cell.add(results)
            if self._journal:
                self._journal.add(results)
            if self._timing.stopped:
                return
        cell.asked += len(asks)
        cell.blocks += 1
        took = self._timing.clock() - began
        cell.spent, cell.longest = cell.spent + took, max(cell.longest, took)
        cell.done = not asks or self._is_settled(cell)

    def _order(self, cell: _Cell, asks: Sequence[Ask]) -> Sequence[Arm]:
        """All arms, another one first each time; in every second round or block the baseline twice.

        Not in the first round: the baseline would find its prompt in a warm cache that it has just filled. For the same
        reason not of a trace, whose requests share what is cached.
        """
        arms = list(self._design.all_arms)
        turn = asks[0].round if cell.load.is_single else cell.blocks
        if self._design.baseline and turn % 2 and not cell.workload.arrivals:
            arms.append(replace(self._design.baseline, name=again(self._design.baseline.name)))
        first = next(cell.turns[len(arms)]) % len(arms)
        return arms[first:] + arms[:first]

    def _is_settled(self, cell: _Cell) -> bool:
        if self._design.requests:
            return cell.asked >= self._design.requests
        if not self._design.baseline:
            return cell.rounds >= 1
        few_rounds = cell.rounds < FEWEST_ROUNDS and not cell.workload.arrivals  # a trace is seldom asked once
        too_few = few_rounds or (not cell.load.is_single and cell.blocks < _FEWEST_BLOCKS)
        if too_few or cell.asked < cell.next_look:
            return False
        cell.next_look = cell.asked * _LOOK_AFTER
        pairs = self._pairs(cell)
        cell.noises = [block_noise(item) for item in pairs]
        noise = self._pooled(cell)
        cell.width = max(half_width(item, noise) for item in pairs)
        return cell.width <= self._design.precision

    def _pooled(self, cell: _Cell) -> BlockNoise:
        return pool((noise for other in self._alike(cell) for noise in other.noises), len(self._design.arms))

    def _alike(self, cell: _Cell) -> Iterator[_Cell]:
        """The cells whose blocks last about as long."""
        return (other for other in self._cells if other.load.open_loop == cell.load.open_loop)

    def _pairs(self, cell: _Cell) -> list[list[Pair]]:
        """Those of each speedup: of each arm, and of each turn of chats."""
        assert self._design.baseline
        turns = [[item for item in cell.results if item.workload == name] for name in cell.workload.names]
        return [pairs_of(turn, arm.name, self._design.baseline.name) for arm in self._design.arms for turn in turns]

    def _ratio(self, cell: _Cell) -> float | None:
        """The first arm's speedup so far, as of the last time that there was a tenth more to compute it from."""
        if self._design.baseline and cell.asked >= cell.next_ratio:
            cell.next_ratio = cell.asked * _LOOK_AFTER
            ratio = speedup(self._pairs(cell)[0], noise=self._pooled(cell))
            cell.ratio = ratio.ratio if ratio else None
        return cell.ratio

    def _remaining(self, cell: _Cell) -> float:
        """An estimate of how many more requests of each arm the cell takes."""
        if cell.done:
            return 0
        if self._design.requests:
            return self._design.requests - cell.asked
        if math.isinf(cell.width):
            rounds = 1 if cell.workload.arrivals else FEWEST_ROUNDS
            return max(1.0, rounds * len(cell.workload.prompts) - cell.asked)
        return cell.asked * max(0.0, (cell.width / self._design.precision) ** 2 - 1)

    def _too_wide(self, cell: _Cell) -> str:
        """How wide the intervals are, and what would narrow them."""
        pairs, precision = self._pairs(cell), self._design.precision
        noise = pool(
            (block_noise(item) for other in self._alike(cell) for item in self._pairs(other)), len(self._design.arms)
        )
        width = max(half_width(item, noise) for item in pairs)
        if math.isinf(width):
            return f"the time was up after {cell.blocks} blocks{lacks_blocks(noise)}"
        shown = f"±{width:.0%}" if width <= 1 else "more than ±100%"
        if width <= precision:
            return f"the time was up at {shown}, with too few rounds or blocks to rely on it"
        needed = [what_narrows(item, precision, noise) for item in pairs]
        most = max(filter(None, needed), key=lambda item: (item.other_prompts, item.requests), default=None)
        more = most if most and None not in needed else "many more requests of each arm"
        return f"the time was up at {shown}; {more} would make it ±{precision:.0%}"
