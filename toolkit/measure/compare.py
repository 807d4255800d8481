"""Two reports side by side, such as of two engine versions: what became faster or slower, which verdicts changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

from toolkit.display import bullets, card, table
from toolkit.errors import UsageError
from toolkit.measure.measurement import ArmReport, Interval, Percentiles, Speedup
from toolkit.measure.report import BenchReport
from toolkit.measure.wording import interval, load, sign
from toolkit.student import LEVEL
from toolkit.text import inert


@dataclass(frozen=True)
class SpeedupChange:
    """An arm's speedup in both reports, and how many times higher the second is, with a 95 % interval.

    Speedups are compared, and not throughputs: each was measured against a baseline of the same hour and machine. The
    reports are independent, so the variances of the logarithms add up; each follows from the width of its interval.
    With several `looks`, the points that are compared, each is judged by a wider interval, as `pays.py` has it: of 12
    points without a difference one would be slower in 24 % of simulated comparisons (80 prompts), and is in 3 %.
    """

    before: Speedup
    after: Speedup
    looks: int = 1

    @property
    def change(self) -> Interval:
        """The ratio of the two speedups."""
        ratio = self.after.ratio / self.before.ratio
        reach = math.exp(math.hypot(*(math.log(item.high / item.low) / 2 for item in (self.before, self.after))))
        return Interval(ratio, ratio / reach, ratio * reach)

    @property
    def better(self) -> bool | None:
        """Whether it became faster (True) or slower (False); None if that is not shown."""
        change, quantile = self.change, NormalDist().inv_cdf
        wider = quantile(1 - (1 - LEVEL) / self.looks) / quantile(LEVEL)
        if abs(math.log(change.ratio)) <= wider * math.log(change.high / change.ratio):
            return None
        return change.ratio > 1


@dataclass(frozen=True)
class ArmChange:
    """The figures of an arm at one point. They depend on the machine and the hour, so nothing is judged by them."""

    before: ArmReport
    after: ArmReport


@dataclass(frozen=True)
class VerdictChange:
    """A claim that holds in one report only."""

    claim: str
    workload: str | None
    before: bool | None
    after: bool | None


@dataclass(frozen=True)
class Comparison:
    """Two reports. Truthy if no speedup is shown to be lower, and no claim that held fails now.

    `setting` has what both were measured with where it differs: key, before, after. `missing` are points of one report.
    """

    before: str
    after: str
    speedups: tuple[SpeedupChange, ...]
    arms: tuple[ArmChange, ...]
    verdicts: tuple[VerdictChange, ...]
    setting: tuple[tuple[str, str, str], ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing became worse."""
        worse = any(change.better is False for change in self.speedups)
        return not worse and not any(change.before and change.after is False for change in self.verdicts)

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit bench --compare --json`."""
        changes = [{**asdict(item), **asdict(item.change), "better": item.better} for item in self.speedups]
        return {"ok": self.ok, **asdict(self), "speedups": changes}

    @property
    def title(self) -> str:
        """What changed, in a sentence."""
        faster = sum(change.better is True for change in self.speedups)
        slower = sum(change.better is False for change in self.speedups)
        return (
            f"{self.after} against {self.before}: of {len(self.speedups)} points {faster} faster, {slower} slower, "
            f"{len(self.speedups) - faster - slower} without a difference that is shown"
        )

    def notes(self) -> Iterator[str]:
        """Verdicts that changed, other settings, and points that only one report has."""
        for change in self.verdicts:
            claim = f"{change.claim} ({change.workload})" if change.workload else change.claim
            yield f"{claim}: {sign(change.before)} before, {sign(change.after)} now"
        for key, before, after in self.setting:
            yield f"{key}: {before} before, {after} now"
        yield from self.missing

    def __repr__(self) -> str:
        return inert("\n".join([f"<Comparison {self.title}>", *(f"  {note}" for note in self.notes())]))

    def _repr_html_(self) -> str:
        tables = (table(speedup_rows(self), SPEEDUP_COLUMNS), table(arm_rows(self), ARM_COLUMNS))
        return card(self.title, *tables, bullets(self.notes()), tone="soft" if self.ok else "bad")


def compare(before: BenchReport, after: BenchReport) -> Comparison:
    """The second report against the first, point by point.

    Raises UsageError for a search for the highest rate, and for reports without a point, or a speedup, in common.
    """
    if searched := [report.title for report in (before, after) if report.saturation]:
        hint = "Look at `saturation` of both, or measure both at the same loads."
        raise UsageError(f"{searched[0]}: a search for the highest rate has no points to compare", hint=hint)
    old_speedups, old_arms = {_point(s): s for s in before.speedups}, {_point(a): a for a in before.arms}
    speedups = [(old_speedups[point], s) for s in after.speedups if (point := _point(s)) in old_speedups]
    arms = [(old_arms[point], a) for a in after.arms if (point := _point(a)) in old_arms]
    if not arms or (not speedups and (before.speedups or after.speedups)):
        hint = "Measure both with the same workloads, loads and arms."
        raise UsageError(
            f"{before.title} and {after.title} have no point, or no speedup, in common to compare", hint=hint
        )
    return Comparison(
        before=before.title,
        after=after.title,
        speedups=tuple(SpeedupChange(old, new, looks=len(speedups)) for old, new in speedups),
        arms=tuple(ArmChange(old, new) for old, new in arms),
        verdicts=tuple(_verdicts(before, after)),
        setting=tuple(_settings(before, after)),
        missing=(*_missing(before, after, "first"), *_missing(after, before, "second")),
    )


SPEEDUP_COLUMNS = ("workload", "load", "arm", "speedup before", "speedup now", "change")
"""Columns of the speedups."""

ARM_COLUMNS = ("workload", "load", "arm", "tok/s", "TTFT ms", "ITL ms", "acceptance")
"""Columns of the figures: before → now, times as medians."""


def speedup_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """The speedups in the order of SPEEDUP_COLUMNS."""
    words = {True: "faster", False: "slower", None: "not shown"}
    return [
        (
            *_point(change.after),
            interval(change.before),
            interval(change.after),
            f"{interval(change.change)}, {words[change.better]}",
        )
        for change in comparison.speedups
    ]


def arm_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """The figures in the order of ARM_COLUMNS."""
    return [
        (
            *_point(change.after),
            *(_both(*cells) for cells in zip(_cells(change.before), _cells(change.after), strict=True)),
        )
        for change in comparison.arms
    ]


def _cells(arm: ArmReport) -> tuple[str, str, str, str]:
    tokens, length = _number(arm.output_tokens_per_second, 0), _number(arm.acceptance_length, 2)
    return tokens, _median(arm.ttft), _median(arm.itl), length


def _both(before: str, after: str) -> str:
    return f"{before or '-'} → {after or '-'}" if before or after else ""


def _median(times: Percentiles | None) -> str:
    return f"{times.p50 * 1000:.1f}" if times else ""


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _point(item: ArmReport | Speedup) -> tuple[str, str, str]:
    return item.workload, load(item), item.arm


def _verdicts(before: BenchReport, after: BenchReport) -> Iterator[VerdictChange]:
    held = {(verdict.claim, verdict.workload): verdict.holds for verdict in before.verdicts}
    for verdict in after.verdicts:
        key = verdict.claim, verdict.workload
        if key in held and held[key] is not verdict.holds:
            yield VerdictChange(*key, held[key], verdict.holds)


def _settings(before: BenchReport, after: BenchReport) -> Iterator[tuple[str, str, str]]:
    for key in dict.fromkeys([*before.setting, *after.setting]):
        values = [str(report.setting.get(key, "-")) for report in (before, after)]
        if values[0] != values[1]:
            yield key, values[0], values[1]


def _missing(one: BenchReport, other: BenchReport, name: str) -> Iterator[str]:
    measured = {_point(arm) for arm in other.arms}
    for arm in one.arms:
        if _point(arm) not in measured:
            yield f"only the {name} report has {arm.arm} on {arm.workload} at load {load(arm)}"
