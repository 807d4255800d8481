"""The highest request rate of each arm within an SLO: blocks of open loops, and a report of what they show.

Each arm is searched alone on each workload, to a rate of its own, and the arms take turns: the next block is of the
search that had least time. What a block asks goes on where the last one of the search ended, at other moments.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby, islice

from toolkit.errors import UsageError
from toolkit.measure.arm import Arm, Workload
from toolkit.measure.design import Design, Load, Measured, Send
from toolkit.measure.journal import Journal, Same
from toolkit.measure.load import Ask, Timing
from toolkit.measure.measurement import RateRatio, Saturation
from toolkit.measure.result import RequestResult, Thinned
from toolkit.measure.running import INTERRUPTED, LONGEST_ANSWER, PATIENCE_SECONDS, failures, until_stopped, warm_up
from toolkit.measure.slo_search import FIRST_RATE, SloSearch, block_seconds
from toolkit.recipe.schema import Slo

# The warm-up may take this share of the time without being counted.
_WARM_UP_SHARE = 1 / 2
_RATES = 10  # of a search, about


@dataclass(frozen=True)
class Searching:
    """How far the searches are: what was just asked, and between which rates the highest one is so far."""

    doing: str
    rate: float
    met: float | None
    unmet: float | None
    seconds: float
    allowed: float

    def __str__(self) -> str:
        found = f"between {self.met or 0:g} and {self.unmet:g}" if self.unmet else f"at least {self.met or 0:g}"
        left = max(0.0, self.allowed - self.seconds)
        return f"{self.doing}: asked {self.rate:g} requests/s, {found} so far, {left:.0f} s to go at most"


@dataclass
class _Search:
    """The search of one arm on one workload, its results by rate, and the time that it took."""

    arm: Arm
    workload: Workload
    seed: int
    state: SloSearch
    kept: defaultdict[float, Thinned]
    blocks: int = 0
    asked: int = 0
    spent: float = 0.0

    def add(self, rate: float, results: Sequence[RequestResult], seconds: float) -> None:
        self.kept[rate].add(results)
        self.state.add(rate, results)
        self.blocks, self.asked, self.spent = self.blocks + 1, self.asked + len(results), self.spent + seconds

    def asks(self, rate: float) -> list[Ask]:
        """What the next block asks, if it asks at this rate."""
        number = math.ceil(rate * block_seconds(self.state.slo, rate))
        return list(islice(self._rounds(), self.asked, self.asked + number))

    def _rounds(self) -> Iterator[Ask]:
        """Rounds over all prompts: the first in their order, the others shuffled, the same for every arm."""
        numbers = list(range(len(self.workload.prompts)))
        shuffle = random.Random(f"{self.seed} {self.workload.name}").shuffle  # noqa: S311
        for turn in count():
            yield from [Ask(self.workload, number, turn) for number in numbers]
            shuffle(numbers)

    def __str__(self) -> str:
        return f"{self.workload.name}, {self.arm.name}"


@dataclass(frozen=True)
class Saturated:
    """What the searches found, and all results."""

    measured: Measured
    saturation: tuple[Saturation, ...]
    ratios: tuple[RateRatio, ...]


async def saturate(
    design: Design,
    slo: Slo,
    send: Send,
    progress: Callable[[Searching], object] = lambda _: None,
    journal: Journal | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Saturated:
    """Search until the highest rates are known as closely as `design.precision`, or the time is up.

    It ends early, is carried on by a journal and raises as `run` does.
    """
    pairs = [(arm, workload) for workload in design.workloads for arm in design.all_arms]
    shortest = block_seconds(slo, FIRST_RATE) * len(pairs)
    if shortest > design.seconds:
        message = f"{len(pairs)} searches, each with a block of requests at least, take {shortest:.0f} s and more"
        raise UsageError(message, hint="Give them several times that (`--time`), fewer workloads, or a smaller share.")
    searches = {
        (arm.name, workload.name): _Search(
            arm,
            workload,
            design.seed,
            SloSearch(slo, design.precision),
            defaultdict(lambda: Thinned.of_cells(_RATES * len(pairs))),
        )
        for arm, workload in pairs
    }
    elapsed = 0.0
    saved = journal.results() if journal else ()
    for (arm_name, name, rate, _), block in groupby(saved, lambda it: (it.arm, it.workload, it.load, it.block)):
        results = list(block)
        began, ended = min(it.started for it in results), max(it.started + it.seconds for it in results)
        searches[arm_name, name].add(rate, results, ended - began)
        elapsed = max(elapsed, ended)
    stop = asyncio.Event()
    timing = Timing(clock() - elapsed, design.max_tokens or LONGEST_ANSWER, design.cache == "cold", stop, clock)
    everything = list(searches.values())
    work = _search(design, send, everything, timing, journal, progress)
    why, machine = await until_stopped(work, stop, design.seconds + PATIENCE_SECONDS)
    found = tuple(search.state.found(search.arm.name, search.workload.name) for search in everything)
    return Saturated(_measured(everything, why, machine, journal), found, tuple(_ratios(design, found)))


async def _search(
    design: Design,
    send: Send,
    searches: Sequence[_Search],
    timing: Timing,
    journal: Journal | None,
    progress: Callable[[Searching], object],
) -> None:
    came, same = timing.clock(), Same()
    timing = await warm_up(design, send, timing)
    begun = timing.clock()
    deadline = begun + max(design.seconds - (begun - came), design.seconds * _WARM_UP_SHARE)
    while timing.clock() < deadline:
        left = deadline - timing.clock()
        fitting = [
            (search, rate)
            for search in searches
            if (rate := search.state.next_rate) and block_seconds(search.state.slo, rate) <= left
        ]
        if not fitting:
            return
        search, rate = min(fitting, key=lambda item: item[0].spent)
        began = timing.clock()
        sent = await send(search.arm, search.asks(rate), Load(rate, open_loop=True), timing)
        if timing.stopped:  # a block that was cut says nothing of its rate
            return
        results = [same.share(replace(item, block=search.blocks)) for item in sent]
        if journal:
            journal.add(results)
        search.add(rate, results, timing.clock() - began)
        seconds = timing.clock() - begun
        progress(Searching(str(search), rate, *search.state.sides, seconds, deadline - begun))


def _measured(
    searches: Sequence[_Search], why: tuple[str, ...], machine: tuple[str, ...], journal: Journal | None
) -> Measured:
    kept = [(search, rate, thinned) for search in searches for rate, thinned in search.kept.items()]
    results = tuple(item for _, _, thinned in kept for item in thinned.results)
    left_out = {
        (search.workload.name, rate, True, search.arm.name): others
        for search, rate, thinned in kept
        if (others := thinned.left_out.total())
    }
    late = [
        f"{search}: the time was up after {search.blocks} blocks; the next, at {rate:.3g} requests/s, would take "
        f"{block_seconds(search.state.slo, rate):.0f} s"
        for search in searches
        if (rate := search.state.next_rate)
    ]
    notes = (*why, *late, *failures(results), *(journal.notes if journal else ()))
    return Measured(results, left_out, notes, INTERRUPTED not in why, machine)


def _ratios(design: Design, found: Sequence[Saturation]) -> Iterator[RateRatio]:
    """Each arm's rate over the baseline's, where the searches of both came to their end."""
    by_point = {(item.arm, item.workload): item for item in found}
    for item in found:
        if design.baseline is None or item.arm == design.baseline.name:
            continue
        other = by_point[design.baseline.name, item.workload]
        if not (item.settled and other.settled):
            continue
        if item.rate and item.low and item.high and other.rate and other.low and other.high:
            ratio, low, high = item.rate / other.rate, item.low / other.high, item.high / other.low
            yield RateRatio(item.workload, item.arm, ratio, low, high)
