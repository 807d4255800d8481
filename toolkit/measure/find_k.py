"""Find the best K with few measurements: two tell what all others would be, and the best of those is confirmed.

Whether the draft token at a position is accepted hardly depends on how many tokens are drafted after it. So one
measured curve of acceptance per position, a_1 … a_n, gives the acceptance length of every smaller K:
L(K) = 1 + a_1 + … + a_K (Leviathan et al. 2023, section 3.1, with measured instead of geometric a_j). The time of a
target step grows linearly with K: each further token is drafted and verified at a constant cost. Two measured K give
that line, and the predicted speed is L(K) / T(K).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

_FEWEST = 3
# One measurement for three K that could be measured.
_SHARE = 3

Speeds = Mapping[str, float]
"""Seconds per output token by workload."""


@dataclass(frozen=True)
class Trial:
    """One K that was measured, by workload, and what was predicted for it before; None for the first two."""

    k: int
    measured: Mapping[str, Measured]
    predicted: Speeds | None = None

    @property
    def speeds(self) -> Speeds:
        return {workload: curve.seconds_per_token for workload, curve in self.measured.items()}


@dataclass(frozen=True)
class Found:
    """All trials in their order, the predictions of all K that follow from them, and the best K that was measured."""

    trials: tuple[Trial, ...]
    predicted: Mapping[int, Speeds]
    k: int


def find_k(ks: Sequence[int], measure: Callable[[int], Mapping[str, Measured]]) -> Found:
    """Measure the largest K and a small one, then the best that these predict, at most a third of all K.

    The best has the lowest geometric mean of the seconds per token over the workloads for which all have figures:
    the time may be up before the last workload's turn. With up to three K all are measured. `measure` returns a K's
    figures by workload.
    """
    ordered = sorted(set(ks))
    most = max(_FEWEST, len(ordered) // _SHARE)
    first = [ordered[-1], ordered[len(ordered) // _SHARE - 1 if len(ordered) >= _SHARE else 0]]
    trials = [Trial(k, measure(k)) for k in dict.fromkeys(first)]
    while len(trials) < min(most, len(ordered)):
        predicted = _predict(trials, ordered)
        best = min(predicted, key=lambda k: _cost(predicted[k], predicted[k]), default=trials[0].k)
        measured = {trial.k for trial in trials}
        if best in measured:
            if predicted and len(ordered) > _FEWEST:
                break
            best = next(k for k in ordered if k not in measured)
        trials.append(Trial(best, measure(best), predicted.get(best)))
    shared = set.intersection(*(set(trial.speeds) for trial in trials))
    winner = min(trials, key=lambda trial: _cost(trial.speeds, shared or trial.speeds))
    return Found(tuple(trials), _predict(trials, ordered) if len(trials) > 1 else {}, winner.k)


def _predict(trials: Sequence[Trial], ks: Sequence[int]) -> dict[int, Speeds]:
    """Predictions for all K by workload, from the largest K that was measured and the smallest.

    Empty if they share no workload.
    """
    low, high = min(trials, key=lambda trial: trial.k), max(trials, key=lambda trial: trial.k)
    by_workload = {
        workload: seconds_per_token(low.measured[workload], curve, ks)
        for workload, curve in high.measured.items()
        if workload in low.measured
    }
    return {k: {workload: curve[k] for workload, curve in by_workload.items()} for k in ks} if by_workload else {}


def _cost(speeds: Speeds, workloads: Iterable[str]) -> float:
    return fmean(math.log(speeds[workload]) for workload in workloads)


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


def seconds_per_token(low: Measured, high: Measured, ks: Sequence[int]) -> dict[int, float]:
    """The predicted seconds per output token of each K up to the larger one that was measured.

    A step without drafts takes some time too, so below the smaller K no step is shorter than in proportion to K.
    """
    slope = (high.seconds_per_step - low.seconds_per_step) / (high.k - low.k)

    def step(k: int) -> float:
        on_line = low.seconds_per_step + slope * (k - low.k)
        return max(on_line, low.seconds_per_step * k / low.k) if k < low.k else on_line

    return {k: step(k) / acceptance_length(high.acceptance_per_position, k) for k in ks if k <= high.k}
