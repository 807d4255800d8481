"""Choose between settings that were measured against the same baseline, one after the other.

Speeds are compared by their speedups: each setting was measured in turns with the baseline, so a machine that was
slower or faster that hour does not matter. A setting counts only where its output was the target's own and it met the
SLO. For latency the best has the highest geometric mean of its speedups over all workloads and concurrencies; for cost
it has the lowest price per output token at the concurrency that suits it best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from toolkit.errors import PlatformError
from toolkit.measure.break_even import BatchSizes, schedule
from toolkit.measure.find_k import Measured, Point
from toolkit.measure.measurement import ArmReport, Claim, Speedup
from toolkit.measure.report import BenchReport
from toolkit.recipe.schema import Slo

Goal = Literal["latency", "cost"]

_BASELINE = "baseline"
_DISQUALIFY: tuple[Claim, ...] = ("on", "lossless", "baseline", "same-target")


@dataclass(frozen=True)
class Candidate:
    """A setting that was measured.

    `keys` are those of a recipe's `speculation`. `predicted` has the speedups that were predicted before, by point.
    `schedule` has a K by batch size. `measurement` counts those of the same setting.
    """

    name: str
    k: int
    report: BenchReport
    keys: Mapping[str, Any] = field(default_factory=dict)
    schedule: tuple[BatchSizes, ...] = ()
    predicted: Mapping[Point, float] = field(default_factory=dict)
    measurement: int = 1

    @property
    def speedups(self) -> Mapping[Point, Speedup]:
        """What was measured, by point."""
        return {(item.workload, item.concurrency): item for item in self.report.speedups if item.concurrency}

    @property
    def faults(self) -> list[str]:
        """Why it does not count however fast it is."""
        return [item.detail for item in self.report.verdicts if item.claim in _DISQUALIFY and item.holds is False]

    def row(self, point: Point) -> ArmReport | None:
        return _rows(self.report, of_baseline=False).get(point)


@dataclass(frozen=True)
class Aim:
    """What is wanted: the lowest latency or cost, and the limits that 90 % of the requests must keep."""

    goal: Goal = "latency"
    slo: Slo | None = None

    def met(self, row: ArmReport | None) -> bool:
        """Whether 90 % of the requests were within each limit. Without limits, always."""
        if self.slo is None:
            return True
        if row is None:
            return False
        limits = ((row.ttft, self.slo.ttft), (row.tpot, self.slo.tpot), (row.e2e, self.slo.e2e))
        return all(limit is None or (times is not None and times.p90 <= limit) for times, limit in limits)


@dataclass(frozen=True)
class _Offer:
    """A candidate or the baseline, as seen by the aim: speedup and SLO by point, and the relative price of an hour."""

    ratios: Mapping[Point, float]
    met: Mapping[Point, bool]
    hourly: float = 1.0


def point_name(point: Point) -> str:
    workload, concurrency = point
    return f"{workload}, {concurrency} at a time"


def read_curves(report: BenchReport, k: int) -> dict[Point, Measured]:
    """An arm's speed by point, in units of the baseline's seconds per token. Raises PlatformError if there is none."""
    candidate = Candidate("", k, report)
    if not candidate.speedups:
        lost = sum(row.failed for row in report.arms)
        hint = "Give it more --time; see toolkit logs."
        raise PlatformError(f"{report.title}: too few answers to compare ({lost} failed)", hint=hint)
    return {
        point: Measured(k, 1 / item.ratio, _acceptance(candidate.row(point)))
        for point, item in candidate.speedups.items()
    }


def choose(candidates: Sequence[Candidate], aim: Aim) -> Candidate | None:
    """The best candidate; None if none is both better than the baseline and shown to be faster somewhere."""
    speeds = _baseline_speeds(candidates)
    scored = [
        (score, candidate)
        for candidate in candidates
        if not candidate.faults and (score := _score(_offer(candidate, aim), aim, speeds))
    ]
    if not scored:
        return None
    score, best = max(scored, key=lambda item: item[0])
    shown = any(item.low > 1 for item in best.speedups.values())
    return best if shown and score > _score(_baseline(candidates, aim), aim, speeds) else None


def perhaps_as_good(best: Candidate, candidates: Sequence[Candidate]) -> list[str]:
    """Names of other candidates whose 95 % intervals overlap with those of the best at every point."""
    return [
        one.name
        for one in candidates
        if one is not best
        and not one.faults
        and all(
            point in one.speedups and one.speedups[point].low <= mine.high and mine.low <= one.speedups[point].high
            for point, mine in best.speedups.items()
        )
    ]


def find_schedule(candidates: Sequence[Candidate], most_requests: int) -> tuple[BatchSizes, ...]:
    """The K by batch size that follows from several K at several concurrencies; empty if one K suits them all."""
    speedups = [replace(item, arm=one.name) for one in candidates for item in one.report.speedups]
    sizes = schedule(speedups, {one.name: one.k for one in candidates}, most_requests)
    return sizes if len(sizes) > 1 else ()


def schedule_pays(by_batch: Candidate, fixed: Candidate) -> tuple[bool, str]:
    """Whether a schedule is better than both a fixed K and the baseline across all points, and why in a sentence.

    It is if its mean speedup is higher than either's, and if at no point its 95 % interval lies below either.
    """
    ratios = {point: item.ratio for point, item in fixed.speedups.items()}
    slower = [
        f"{point_name(point)} ({item.ratio:.2f}x, and {other} {bound:.2f}x)"
        for point, item in by_batch.speedups.items()
        for other, bound in ((fixed.name, ratios.get(point, 1.0)), ("the baseline", 1.0))
        if item.high < bound
    ]
    if slower:
        return False, f"A K by batch size does not pay everywhere: it is slower at {'; '.join(slower)}."
    mean, mean_fixed = (_mean([item.ratio for item in one.speedups.values()]) for one in (by_batch, fixed))
    compared = f"its mean speedup is {mean:.2f}x, that of {fixed.name} {mean_fixed:.2f}x"
    if mean > max(mean_fixed, 1.0):
        return True, f"A K by batch size beats {fixed.name} and the baseline: {compared}, and it is nowhere slower."
    return False, f"A K by batch size does not beat {fixed.name} and the baseline: {compared}."


def _score(offer: _Offer, aim: Aim, speeds: Mapping[Point, float]) -> float:
    """Higher is better; 0 if the SLO is not met."""
    if aim.goal == "latency":
        return _mean([*offer.ratios.values()]) if offer.ratios and all(offer.met.values()) else 0.0
    by_concurrency: dict[int, list[Point]] = {}
    for point in offer.ratios:
        by_concurrency.setdefault(point[1], []).append(point)
    return max(
        (
            _mean([offer.ratios[point] * speeds[point] for point in points]) / offer.hourly
            for points in by_concurrency.values()
            if all(offer.met[point] for point in points)
        ),
        default=0.0,
    )


def _offer(candidate: Candidate, aim: Aim) -> _Offer:
    ratios = {point: item.ratio for point, item in candidate.speedups.items()}
    prices = [
        mine / base
        for point, row in _rows(candidate.report, of_baseline=True).items()
        if (mine := _hourly(candidate.row(point))) and (base := _hourly(row))
    ]
    return _Offer(ratios, {point: aim.met(candidate.row(point)) for point in ratios}, prices[0] if prices else 1.0)


def _baseline(candidates: Sequence[Candidate], aim: Aim) -> _Offer:
    """The baseline beside the first candidate: it is the same for all."""
    rows = _rows(candidates[0].report, of_baseline=True)
    return _Offer(dict.fromkeys(rows, 1.0), {point: aim.met(row) for point, row in rows.items()})


def _baseline_speeds(candidates: Sequence[Candidate]) -> dict[Point, float]:
    """The baseline's output tokens per second by point: the mean over all measurements."""
    found: dict[Point, list[float]] = {}
    for candidate in candidates:
        for point, row in _rows(candidate.report, of_baseline=True).items():
            if row.output_tokens_per_second:
                found.setdefault(point, []).append(row.output_tokens_per_second)
    return {point: _mean(speeds) for point, speeds in found.items()}


def _rows(report: BenchReport, *, of_baseline: bool) -> dict[Point, ArmReport]:
    return {
        (row.workload, row.concurrency): row
        for row in report.arms
        if row.concurrency and (row.arm == _BASELINE) == of_baseline
    }


def _hourly(row: ArmReport | None) -> float | None:
    """The price of an hour, up to a constant factor."""
    if row is None or not row.price_per_million_output_tokens or not row.output_tokens_per_second:
        return None
    return row.price_per_million_output_tokens * row.output_tokens_per_second


def _acceptance(row: ArmReport | None) -> tuple[float, ...]:
    return row.acceptance_per_position if row else ()


def _mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(fmean(map(math.log, values)))
