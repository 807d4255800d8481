"""Which request rate to ask next, and what is known of the highest one at which an SLO is met.

A block is an open loop at one rate. It passes if the SLO's share of its requests meets the SLO; the first fifth of it,
in which a queue only begins, is not counted. Rates double until a block fails; then the one in the middle is asked,
until the rates on both sides are as close as the wanted precision. Near the highest rate a block passes or fails by
chance as well. So both sides get three blocks, and are where most blocks of all are on the right one: a block that went
wrong does not lead the search astray for good.

**How long a block is.** Above its capacity C a server's queue grows for as long as it is asked, by (r/C - 1) t seconds
at rate r. A rate that is 5 % too high is seen if a block lasts 20 times as long as the SLO's longest wait. It does up
to a minute (waits of 6 s show 10 %), never less than 10 s, and so long that five requests may miss the SLO: 50 requests
at 90 %. Below C a queue needs longest to fill where r is nearly C: what the search finds is what so long a block shows
that begins without a queue. A queue that lasts for hours holds slightly less.

**What its range says.** Up to `low` every block passed, from `high` on every one failed, and each of both has four
blocks. Where half of all blocks pass, four do in 6 %, and four fail in 6 %. Of 60 simulated searches each (1 and 16
servers of answers of one length, Poisson arrivals, ±5 %) the range held that rate in 90 and 97 %, `high` was 1.66 and
1.44 times `low`, and the rate itself strayed by 15 and 5 % (standard deviation); after 20 blocks and 340 and 255 s. The
rate that a queue of hours holds was 10 and 9 % lower, and in the range in 67 and 88 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from toolkit.measure.measurement import Missed, Saturation
from toolkit.measure.result import RequestResult
from toolkit.recipe.schema import Slo

SHORTEST_BLOCK = 10.0
_FEWEST_MISSES = 5
_TIMES_THE_LIMIT, _LONGEST_FOR_A_QUEUE = 20, 60.0
NOT_COUNTED = 1 / 5
FIRST_RATE, _HIGHEST_RATE = 2.0, 1000.0
_FEWEST_BLOCKS, _AT_THE_ENDS = 3, 4
# With less to do than this share of the time a server answers each request alone.
_NEARLY_IDLE = 1 / 4


def block_seconds(slo: Slo, rate: float) -> float:
    """How long a block at this rate takes, without the end of its last answers."""
    longest_wait = max(slo.ttft or 0, slo.e2e or 0)
    requests = _FEWEST_MISSES / (1 - slo.share)
    return max(SHORTEST_BLOCK, requests / rate, min(_LONGEST_FOR_A_QUEUE, _TIMES_THE_LIMIT * longest_wait))


def missed(slo: Slo, result: RequestResult) -> list[Missed]:
    """What of the SLO a request missed."""
    if result.outcome != "successful":
        return ["failed"]
    times: tuple[tuple[Missed, float | None, float | None], ...] = (
        ("ttft", result.ttft, slo.ttft),
        ("tpot", result.tpot, slo.tpot),
        ("e2e", result.seconds, slo.e2e),
    )
    return [name for name, time, limit in times if limit and time is not None and time > limit]


@dataclass
class SloSearch:
    """The search for one arm on one workload. `blocks` are, by rate, what the requests that count missed."""

    slo: Slo
    precision: float
    blocks: dict[float, list[list[list[Missed]]]] = field(default_factory=dict)
    shortest_answer: float = math.inf

    def add(self, rate: float, results: Iterable[RequestResult]) -> None:
        """A block's results."""
        order = sorted(results, key=lambda item: item.started)
        counted = order[int(NOT_COUNTED * len(order)) :]
        self.blocks.setdefault(rate, []).append([missed(self.slo, item) for item in counted])
        answers = (item.seconds for item in order if item.outcome == "successful")
        self.shortest_answer = min(self.shortest_answer, *answers, math.inf)

    @property
    def next_rate(self) -> float | None:
        """The rate to ask next; None when the search is over."""
        met, unmet = self.sides
        if met is None and unmet is None:
            return FIRST_RATE
        if met is None:
            assert unmet
            if not self._is_hopeless(unmet):
                return unmet / 2
            return unmet if len(self.blocks[unmet]) < _FEWEST_BLOCKS else None
        if unmet is None:
            return None if met >= _HIGHEST_RATE else min(2 * met, _HIGHEST_RATE)
        if unmet / met > (1 + self.precision) ** 1.5:
            return self._between(met, unmet)
        fewest = min((met, unmet), key=lambda rate: len(self.blocks[rate]))
        return fewest if len(self.blocks[fewest]) < _FEWEST_BLOCKS else self._of_the_range

    @property
    def _of_the_range(self) -> float | None:
        """What makes the range sure and narrow: blocks at its ends, and between these and what is in doubt."""
        low, high = self.ends
        for end, doubt in ((low, self._failed[0]), (high, self._passed[-1])):
            if end and len(self.blocks[end]) < _AT_THE_ENDS:
                return end
            if end and max(end, doubt) / min(end, doubt) > (1 + self.precision) ** 2.5:
                return self._between(min(end, doubt), max(end, doubt))
        return None

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """The highest rate up to which every block passed, and the lowest from which on every one failed."""
        below = [rate for rate in self.blocks if rate < min(self._failed, default=math.inf)]
        above = [rate for rate in self.blocks if rate > max(self._passed, default=0.0)]
        return max(below, default=None), min(above, default=None)

    @property
    def _passed(self) -> list[float]:
        """Rates at which a block passed, in their order."""
        return [rate for rate, blocks in sorted(self.blocks.items()) if any(map(self._passes, blocks))]

    @property
    def _failed(self) -> list[float]:
        return [rate for rate, blocks in sorted(self.blocks.items()) if not all(map(self._passes, blocks))]

    @property
    def sides(self) -> tuple[float | None, float | None]:
        """The highest rate that meets the SLO and the next one, which does not: where most blocks are on their side."""
        rates = sorted(self.blocks)
        met = [sum(map(self._passes, self.blocks[rate])) for rate in rates]
        unmet = [len(self.blocks[rate]) - passed for rate, passed in zip(rates, met, strict=True)]
        at = max(range(len(rates) + 1), key=lambda index: sum(met[:index]) + sum(unmet[index:]))
        return (rates[at - 1] if at else None), (rates[at] if at < len(rates) else None)

    def found(self, arm: str, workload: str) -> Saturation:
        met, unmet = self.sides
        low, high = self.ends
        return Saturation(
            arm=arm,
            workload=workload,
            rate=met,
            low=low,
            high=high,
            unmet=unmet,
            missed_first=self._missed_first(unmet) if unmet else None,
            blocks=sum(map(len, self.blocks.values())),
            settled=self.next_rate is None,
        )

    def _passes(self, block: list[list[Missed]]) -> bool:
        return sum(not misses for misses in block) >= self.slo.share * len(block)

    def _missed_first(self, rate: float) -> Missed | None:
        """What most requests missed at a rate; of several the one that is first in a request's life."""
        misses = [name for block in self.blocks[rate] for request in block for name in request]
        return max(misses, key=lambda name: (misses.count(name), -_ORDER.index(name)), default=None)

    def _is_hopeless(self, unmet: float) -> bool:
        """Whether lower rates would change nothing: there is no queue, or no answer at all."""
        return math.isinf(self.shortest_answer) or unmet * self.shortest_answer < _NEARLY_IDLE

    def _between(self, met: float, unmet: float) -> float:
        """The middle, on a grid of the wanted precision: what is asked again has the same rate."""
        step = math.log1p(self.precision)
        rate = float(f"{math.exp(round(math.log(met * unmet) / 2 / step) * step):.3g}")
        return rate if met < rate < unmet else math.sqrt(met * unmet)


_ORDER: tuple[Missed, ...] = ("failed", "ttft", "tpot", "e2e")
