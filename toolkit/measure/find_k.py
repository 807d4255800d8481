"""Find the best K with few measurements: two tell what all others would be, and the best of those checks itself.

Whether the draft token at a position is accepted hardly depends on how many tokens are drafted after it. So one
measured curve of acceptance per position, a_1 … a_n, gives the acceptance length of every smaller K:
L(K) = 1 + a_1 + … + a_K (Leviathan et al. 2023, section 3.1, with measured instead of geometric a_j). The time of a
target step grows linearly with K where each further token is drafted and verified at a constant cost. Two measured K
give that line, and the predicted speed is L(K) / T(K). But steps may be as long up to some K and then jump (a kernel's
tile is full), and what was measured has its noise. So the best is believed only where the K on both sides of it are
measured too; each K that is measured is a further point of the line.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

_FEWEST = 3

Point = tuple[str, int]
"""A workload and a number of concurrent requests."""
Speeds = Mapping[Point, float]
"""Seconds per output token by point."""


@dataclass(frozen=True)
class Trial:
    """One K that was measured, by point, and what was predicted for it before; None for the first two."""

    k: int
    measured: Mapping[Point, Measured]
    predicted: Speeds | None = None

    @property
    def speeds(self) -> Speeds:
        return {point: curve.seconds_per_token for point, curve in self.measured.items()}


@dataclass(frozen=True)
class Found:
    """All trials in their order, the predictions of all K that follow from them, and the best K that was measured."""

    trials: tuple[Trial, ...]
    predicted: Mapping[int, Speeds]
    k: int


def find_k(ks: Sequence[int], measure: Callable[[int], Mapping[Point, Measured]]) -> Found:
    """Measure the largest K and a small one, then the best that these predict and its neighbours, until it stays best.

    The best has the lowest geometric mean of the seconds per token over the points for which all have figures: the
    time may be up before the last workload's turn. With several numbers of concurrent requests the best at each is
    looked for in the same way. `measure` returns a K's figures by point.
    """
    ordered = sorted(set(ks))
    trials = [Trial(k, measure(k)) for k in dict.fromkeys((ordered[-1], ordered[max(len(ordered) // 3, 1) - 1]))]
    predicted = _predict(trials, ordered)
    while (k := _next(trials, predicted, ordered)) is not None:
        trials.append(Trial(k, measure(k), predicted.get(k)))
        predicted = _predict(trials, ordered)
    shared = set.intersection(*(set(trial.speeds) for trial in trials))
    winner = min(trials, key=lambda trial: _cost(trial.speeds, shared or trial.speeds))
    return Found(tuple(trials), predicted, winner.k)


def _next(trials: Sequence[Trial], predicted: Mapping[int, Speeds], ks: Sequence[int]) -> int | None:
    """The first K without a measurement among the best and its neighbours, over all points and then at each load."""
    left = [k for k in ks if k not in {trial.k for trial in trials}]
    if not predicted:
        return left[0] if left and len(trials) < _FEWEST else None
    points = predicted[ks[0]].keys()
    for load in (None, *sorted({load for _, load in points})):
        at_load = [point for point in points if load in (None, point[1])]
        best = ks.index(min(ks, key=lambda k: _cost(predicted[k], at_load)))
        for k in (ks[best], *ks[max(best - 1, 0) : best + 2]):
            if k in left:
                return k
    return None


def _predict(trials: Sequence[Trial], ks: Sequence[int]) -> dict[int, Speeds]:
    """The seconds per token of all K at the points for which all trials have figures; measured, where they are.

    Empty where there are none, or only one trial.
    """
    ordered = sorted(trials, key=lambda trial: trial.k)
    shared = [point for point in ordered[0].measured if all(point in trial.measured for trial in ordered)]
    if len(ordered) < 2 or not shared:
        return {}
    curves = {point: seconds_per_token([trial.measured[point] for trial in ordered], ks) for point in shared}
    return {k: {point: curve[k] for point, curve in curves.items()} for k in ks}


def _cost(speeds: Speeds, points: Iterable[Point]) -> float:
    return fmean(math.log(speeds[point]) for point in points)


@dataclass(frozen=True)
class Measured:
    """An arm at one K: seconds per output token, and the share of steps that accepted each position of a draft."""

    k: int
    seconds_per_token: float
    acceptance_per_position: tuple[float, ...]

    @property
    def seconds_per_step(self) -> float:
        """Seconds of a target step, drafting included."""
        return self.seconds_per_token * acceptance_length(self.acceptance_per_position, self.k)


def acceptance_length(per_position: Sequence[float], k: int) -> float:
    """Tokens per target step with K draft tokens, the bonus token included."""
    return 1 + sum(per_position[:k])


def seconds_per_token(measured: Sequence[Measured], ks: Sequence[int]) -> dict[int, float]:
    """The seconds per output token of each K, from two or more that were measured, by ascending K, up to the last.

    Between two of them a step's time lies on their line. A step without drafts takes some time too, so below the first
    no step is shorter than in proportion to K.
    """
    lines = list(pairwise(measured))

    def step(k: int) -> float:
        low, high = lines[max(bisect_left(measured, k, key=lambda one: one.k) - 1, 0)]
        slope = (high.seconds_per_step - low.seconds_per_step) / (high.k - low.k)
        on_line = low.seconds_per_step + slope * (k - low.k)
        return max(on_line, low.seconds_per_step * k / low.k) if k < low.k else on_line

    accepted = measured[-1].acceptance_per_position
    known = {one.k: one.seconds_per_token for one in measured}
    return {k: known[k] if k in known else step(k) / acceptance_length(accepted, k) for k in ks}
