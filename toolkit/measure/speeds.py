"""How fast an engine is at each K, from reports of `toolkit bench` or `tune` at several numbers of concurrent requests.

With c requests at a time an answer's N = (tokens - 1) / acceptance length steps take, by its TPOT, (tokens - 1) * TPOT
seconds. In that time each of the c - 1 others reads one new prompt. So a step without prompts takes

    TPOT * L - (c - 1) * reading / N,    reading = TTFT(1) - TPOT(1) * L

where `reading` is what a prompt adds to the step that reads it, all that is not the engine's included. All are medians.
At one request at a time how far the TPOT of single requests strays from its median is how far their acceptance does,
and how many seconds their TTFT strays is how many the reading does, of whatever length the prompt is: where those that
were measured differ in length, that counts twice, and the advice errs to the safe side.

One request after the other keeps an engine awake. Where an open loop was measured too, at a rate at which most requests
came to an idle one, its median TTFT less that of one at a time is what an idle engine takes longer; at a K of which
nobody measured it, as long as at the others of that instance type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import NormalDist, fmean
from typing import Literal

from toolkit.errors import UsageError
from toolkit.measure.break_even import BatchSizes, schedule
from toolkit.measure.find_k import Measured, acceptance_length, seconds_per_token
from toolkit.measure.measurement import ArmReport, Measurement, Speedup
from toolkit.measure.queue import Kind, Pace

Quality = Literal["measured", "estimated"]
"""Whether a speed was measured so, or follows from others that were."""

_BASELINE = "baseline"
_SPECULATION = re.compile(r"(?P<method>\S+) K=(?P<k>\d+)")
_TO_P90 = NormalDist().inv_cdf(0.9)
_QUICKEST_STEP = 1e-6
_FEWEST_AT_A_RATE = 8
_MOSTLY_IDLE = 0.5  # requests in flight on average: exp(-0.5) = 61 % then come while there are none


@dataclass(frozen=True)
class Curve:
    """One workload at one K: the median seconds per token after the first by the number of concurrent requests.

    `waking` is how many seconds longer the first token takes on an engine that was idle, None where nobody measured it.
    """

    workload: str
    k: int
    prompt_tokens: float
    answer_tokens: float
    acceptance: float
    per_position: tuple[float, ...]
    ttft: float
    ttft_stray: float
    spread: float
    waking: float | None
    tpot: Mapping[int, float]

    @property
    def reading(self) -> float:
        """What a prompt adds to the step that reads it, in seconds."""
        return max(self.ttft - self.tpot[1] * self.acceptance, 0.0)

    def step(self, requests: int) -> float:
        """Seconds of a step of so many requests, as many as were measured at a time."""
        steps = max((self.answer_tokens - 1) / self.acceptance, 1.0)
        return max(self.tpot[requests] * self.acceptance - (requests - 1) * self.reading / steps, _QUICKEST_STEP)


@dataclass(frozen=True)
class Speeds:
    """What was measured on one instance type (empty: on this machine) at some K, and where that stands."""

    instance: str
    curves: tuple[Curve, ...]
    sources: tuple[str, ...]

    @property
    def measured(self) -> tuple[int, ...]:
        """Each K that was measured, 0 without speculation."""
        return tuple(sorted({one.k for one in self.curves}))

    def at(self, k: int) -> list[Curve]:
        return [one for one in self.curves if one.k == k]


def read_speeds(
    reports: Iterable[tuple[str, Measurement]], method: str, served: Mapping[str, str]
) -> tuple[list[Speeds], list[str]]:
    """The speeds by instance type of what is `served`, with a drafting method and without, and why others tell none."""
    found: dict[str, list[tuple[str, Curve]]] = {}
    notes: list[str] = []
    for name, report in reports:
        of_recipe = not {"engine", "speculation"}.isdisjoint(report.setting)  # of method none it tells the engine alone
        why = [_unknown(row, of_recipe) for row in report.arms]
        rows = tuple(row for row, unknown in zip(report.arms, why, strict=True) if not unknown)
        notes += [f"{name}: {one}" for one in why if one]
        try:
            instance, curves = _read(replace(report, arms=rows), method, served)
        except UsageError as error:
            notes.append(f"{name} is left out: {error.message}. {error.hint}")
            continue
        found.setdefault(instance, []).extend((name, one) for one in curves)
    speeds = []
    for instance, named in found.items():
        waking = [one.waking for _, one in named if one.waking is not None]
        of_all = [replace(one, waking=fmean(waking)) if waking and one.waking is None else one for _, one in named]
        latest = {(one.k, one.workload): one for one in of_all}  # of the same twice the last counts
        sources = tuple(dict.fromkeys(name for name, _ in named))
        speeds.append(Speeds(instance, tuple(latest.values()), sources))
    return speeds, list(dict.fromkeys(notes))


def _unknown(row: ArmReport, of_recipe: bool) -> str:
    """Why a row tells no speed at a known K; empty if it does."""
    if row.failed + row.incomplete >= row.requests:
        load = f"{row.rate:g} requests a second" if row.rate else f"{row.concurrency} requests at a time"
        return f"{row.arm} at {load} is left out: none was answered in full"
    drafts = bool(row.acceptance_length) if row.arm == _BASELINE else not of_recipe
    return f"{row.arm} is left out: it may draft, and the report does not tell its K" if drafts else ""


def _read(report: Measurement, method: str, served: Mapping[str, str]) -> tuple[str, list[Curve]]:
    """Raises UsageError for a report that tells no speed of the engine."""
    for key, name in served.items():
        said = str(report.setting.get(key, name))
        if said != name and not said.startswith((f"{name} ", f"{name}@")):  # a version, a revision
            raise UsageError(f"its {key} is {said}, not {name}", hint="Measure the recipe itself.")
    if report.setting.get("cache") == "warm":
        raise UsageError("its prompts came from a warm prefix cache", hint="Measure again without --cache warm.")
    for row in report.arms:
        times = [one for each in (row.ttft, row.tpot) if each for one in (each.p50, each.p90)]
        figures = (*times, row.prompt_tokens, row.answer_tokens, row.acceptance_length)
        if not all(0 < one < math.inf for one in figures if one is not None):
            raise UsageError(f"{row.arm} on {row.workload} has figures that are not above 0", hint="Measure again.")
    types = str(report.setting.get("instance types") or "")
    if "," in types:
        hint = "Name one in platform.instance_types, deploy and measure again."
        raise UsageError(f"it may have run on any of {types}", hint=hint)
    drafted = _SPECULATION.fullmatch(str(report.setting.get("speculation", "none K=0")))
    if drafted is None or (drafted["method"] not in (method, "none")):
        hint = f"Measure the recipe itself, with {method} and one K."
        raise UsageError(f"it is of {report.setting['speculation']}", hint=hint)
    arms = {row.arm for row in report.arms} - {_BASELINE}
    if len(arms) > 1:
        raise UsageError("it has several arms, and does not tell the K of each", hint="Measure them one by one.")
    drafting = (one for arm in arms for one in _curves(report.arms, arm, int(drafted["k"])))
    curves = [*_curves(report.arms, _BASELINE, 0), *drafting]
    if not curves:
        hint = "Measure again: toolkit bench RECIPE --concurrency 1,4,16 --json > FILE."
        raise UsageError("it lacks answers at 1 and at more requests at a time, or is of an older version", hint=hint)
    return types, curves


def _curves(rows: Sequence[ArmReport], arm: str, k: int) -> Iterator[Curve]:
    for workload in dict.fromkeys(row.workload for row in rows):
        all_rows = [row for row in rows if (row.arm, row.workload) == (arm, workload) and row.tpot]
        there = {row.concurrency: row for row in all_rows}
        tpot = {count: row.tpot.p50 for count, row in there.items() if count and row.tpot}
        one = there.get(1)
        if one and 1 in tpot and len(tpot) > 1 and one.ttft and one.tpot and one.prompt_tokens and one.answer_tokens:
            yield Curve(
                workload,
                k,
                one.prompt_tokens,
                one.answer_tokens,
                (k and one.acceptance_length) or 1.0,
                one.acceptance_per_position[:k],
                one.ttft.p50,
                (one.ttft.p90 - one.ttft.p50) / _TO_P90,
                math.log(max(one.tpot.p90 / one.tpot.p50, 1.0)) / _TO_P90,
                _waking(all_rows, one.ttft.p50),
                dict(sorted(tpot.items())),
            )


def _waking(rows: Iterable[ArmReport], awake: float) -> float | None:
    """What the median first token takes longer than on an engine awake, by the lowest rate that leaves it idle."""
    idle = [
        (row.rate, row.ttft.p50)
        for row in rows
        if row.rate and row.ttft and row.e2e
        if row.ttft.samples >= _FEWEST_AT_A_RATE and row.rate * row.e2e.p50 < _MOSTLY_IDLE
    ]
    return max(min(idle)[1] - awake, 0.0) if idle else None


def curves_at(speeds: Speeds, k: int) -> tuple[Quality, list[Curve]]:
    """The curves at a K: measured, or between two that were, from their lines (find_k.py). Empty if neither."""
    if there := speeds.at(k):
        return "measured", there
    return "estimated", [*filter(None, (_between(speeds, k, one) for one in speeds.at(speeds.measured[-1])))]


def _between(speeds: Speeds, k: int, largest: Curve) -> Curve | None:
    drafting = [one for one in speeds.curves if one.workload == largest.workload and one.k]
    ordered = sorted(drafting, key=lambda one: one.k)
    if len(ordered) < 2 or not ordered[0].k < k < ordered[-1].k or len(largest.per_position) < k:
        return None
    shared = set.intersection(*(set(one.tpot) for one in ordered))
    if 1 not in shared or len(shared) < 2:
        return None
    tpot = {
        count: seconds_per_token([Measured(one.k, one.tpot[count], largest.per_position) for one in ordered], (k,))[k]
        for count in sorted(shared)
    }
    length = acceptance_length(largest.per_position, k)
    ttft = largest.ttft + tpot[1] * length - largest.tpot[1] * largest.acceptance
    return replace(largest, k=k, acceptance=length, per_position=largest.per_position[:k], tpot=tpot, ttft=ttft)


def pace(curves: Sequence[Curve], acceptance: float | None = None) -> Pace:
    """The engine's pace at the K of these curves; as if its acceptance length were another one, on average."""
    # where only some were measured with so many requests, the others' steps lie on their lines
    alone = [Pace(one.k, tuple((count, one.step(count)) for count in one.tpot), 0.0, ()) for one in curves]
    most = min(max(one.tpot) for one in curves)
    counts = sorted({count for one in curves for count in one.tpot if count <= most})
    seconds = accumulate((fmean(one.seconds(count) for one in alone) for count in counts), max)
    steps = tuple(zip(counts, seconds, strict=True))  # more requests take no less time, whatever the noise says
    reading = sum(one.reading for one in curves) / sum(one.prompt_tokens for one in curves)
    factor = acceptance / mean_acceptance(curves) if acceptance else 1.0
    kinds = tuple(Kind(one.acceptance * factor, one.spread, one.ttft_stray) for one in curves)
    return Pace(curves[0].k, steps, reading, kinds, fmean(one.waking or 0.0 for one in curves))


def mean_acceptance(curves: Sequence[Curve]) -> float:
    return fmean(one.acceptance for one in curves)


def find_schedule(speeds: Speeds, most_requests: int) -> tuple[BatchSizes, ...]:
    """The measured K that is fastest for each number of requests in a step; empty if one is for all."""
    baseline = {one.workload: one for one in speeds.at(0)}
    speedups = [
        Speedup(one.workload, count, str(one.k), ratio := baseline[one.workload].tpot[count] / seconds, ratio, ratio)
        for one in speeds.curves
        if one.k and one.workload in baseline
        for count, seconds in one.tpot.items()
        if count in baseline[one.workload].tpot
    ]
    sizes = schedule(speedups, {str(k): k for k in speeds.measured if k}, most_requests)
    return sizes if len(sizes) > 1 else ()
