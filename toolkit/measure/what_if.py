"""How fast a drafter of other acceptance would be, and the acceptance below which speculation costs.

A target step takes the same time however many of its draft tokens are accepted: K tokens are drafted and K + 1 verified
in any case. So an answer of T tokens that came in N steps after its first token would, with an acceptance length of L,
have come in (T - 1) / L steps, and taken

    TTFT + (seconds - TTFT) * (T - 1) / (L * N).

With these seconds for each of the arm's answers, speedup and 95 % interval follow as for a measured arm
(statistics.py). The speedup grows with L; where it is 1, speculation breaks even. The interval of that acceptance
length is that in which the speedup's interval contains 1.

An engine that accepts drafts by chance needs no such computation: its arm is measured at L itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from operator import attrgetter

from toolkit.measure.arm import Arm
from toolkit.measure.measurement import BreakEvenAcceptance, Interval, Source, Verdict, WhatIf, WhatIfSpeedup
from toolkit.measure.result import RequestResult
from toolkit.measure.statistics import pairs_of, speedup
from toolkit.measure.summary import acceptance_of, by_point

_LONGEST = 1000.0
_BISECTIONS = 24


def other_acceptance(
    results: Iterable[RequestResult], arms: Sequence[Arm], baseline: str, lengths: Sequence[float]
) -> WhatIf:
    """The speedup of each arm at each acceptance length that its K allows, and where it breaks even.

    Only for closed loops: the steps of an open loop depend on how fast answers are.
    """
    speedups: list[WhatIfSpeedup] = []
    break_even: list[BreakEvenAcceptance] = []
    closed = [(point, there) for point, there in by_point(results).items() if not point.open_loop]
    for (point, there), arm in product(closed, arms):
        at = (point.workload, round(point.load), arm.name)
        source: Source = "synthetic" if arm.synthetic_acceptance_length else "steps"
        for length, ratio in _speedups(there, arm, baseline, lengths):
            speedups.append(WhatIfSpeedup(*at, length, ratio.ratio, ratio.low, ratio.high, source))
        if predict_speedup(there, arm.name, baseline, 1.0):
            ends = (
                _break_even_length(end, there, arm.name, baseline) for end in map(attrgetter, ("ratio", "high", "low"))
            )
            break_even.append(BreakEvenAcceptance(*at, *ends))
    return WhatIf(tuple(speedups), tuple(break_even))


def predict_speedup(results: Sequence[RequestResult], arm: str, baseline: str, length: float) -> Interval | None:
    """The arm's speedup at an acceptance length; None for fewer than two pairs of answers."""

    def as_if(item: RequestResult) -> tuple[float, float]:
        steps, ttft = target_steps(item), item.ttft or 0.0
        seconds = (item.seconds - ttft) / steps * (item.output_tokens - 1) / length if steps else item.seconds - ttft
        return item.output_tokens, ttft + seconds

    return speedup(pairs_of(results, arm, baseline, as_if))


def synthetic_verdicts(arm: Arm) -> tuple[Verdict, ...]:
    """What the answers of an arm that accepts drafts by chance do not show."""
    why = f"{arm.name}: accepts drafts by chance, so its text is garbage: only its speed means anything"
    return Verdict("lossless", None, why), Verdict("same-target", None, why)


def _speedups(
    results: Sequence[RequestResult], arm: Arm, baseline: str, lengths: Sequence[float]
) -> Iterator[tuple[float, Interval]]:
    """An arm that accepts drafts by chance was measured at its own length; all others follow from steps per second."""
    if chosen := arm.synthetic_acceptance_length:
        if ratio := speedup(pairs_of(results, arm.name, baseline)):
            yield chosen, ratio
        return
    drafted = acceptance_of(item for item in results if item.arm == arm.name)
    longest = len(drafted.histogram) if drafted else 1
    for length in lengths:
        if length <= longest and (ratio := predict_speedup(results, arm.name, baseline, length)):
            yield length, ratio


def target_steps(item: RequestResult) -> int:
    """Target steps after the first token. A step that verified no draft gave one token."""
    drafted = item.acceptance
    after_first = item.output_tokens - 1
    return max(drafted.steps, after_first - drafted.accepted) if drafted else after_first


def _break_even_length(
    end: Callable[[Interval], float], results: Sequence[RequestResult], arm: str, baseline: str
) -> float | None:
    """The acceptance length at which that end of the speedup's interval is 1; None if it never is."""

    def reaches_one(length: float) -> bool:
        ratio = predict_speedup(results, arm, baseline, length)
        return ratio is not None and end(ratio) >= 1

    low, high = 1 / _LONGEST, _LONGEST
    if not reaches_one(high):
        return None
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reaches_one(middle) else (middle, high)
    return high
