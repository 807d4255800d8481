"""What a report says, in the words of somebody who has never measured: one title and a few sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from toolkit.measure.measurement import ArmReport, Claim, Measurement, Speedup, Verdict
from toolkit.measure.wording import dollars, interval, load_in_words, ratio

Answer = Literal["yes", "no", "mixed", "not shown"]
SpeedupClass = Literal["pays", "costs", "not shown"]

CLAIMS: dict[Claim, str] = {
    "on": "Speculation is on",
    "accepted": "Drafts are accepted",
    "lossless": "Answers are the target model's own",
    "pays": "It is faster",
    "baseline": "The baseline does not speculate",
    "same-target": "Both arms serve the same model",
    "expected": "It is as the recipe expects",
}
"""Each claim as a sentence."""

# The most basic fault first: what follows from it is not worth a title.
_FAULTS: dict[Claim, str] = {
    "same-target": "No comparison: the arms serve different models",
    "baseline": "No comparison: the baseline speculates itself",
    "on": "Speculation is off",
    "accepted": "Speculation is on, but drafts are not accepted",
    "lossless": "Not lossless: answers differ from the target model's own",
    "pays": "Speculation does not pay",
    "expected": "Less than the recipe expects",
}


_INCOMPARABLE: tuple[Claim, ...] = ("same-target", "baseline", "lossless")


@dataclass(frozen=True)
class Headline:
    """A report in short. `mixed`: speculation pays for some workloads and costs for others."""

    answer: Answer
    title: str
    sentences: tuple[str, ...]


def headline(report: Measurement) -> Headline:
    """The title and sentences that a report begins with."""
    answer = _answer(report)
    speed = _speed(report) if comparable(report) else ()
    return Headline(answer, _title(report, answer), (*_faults(report), *speed, *report.machine, *_answers(report)))


def comparable(report: Measurement) -> bool:
    """Whether a speedup means anything: not if the arms differ in more than speculation, or give other answers."""
    return not any(verdict.holds is False and verdict.claim in _INCOMPARABLE for verdict in report.verdicts)


def speedup_class(speedup: Speedup) -> SpeedupClass:
    """Whether speculation pays at one point."""
    return "not shown" if speedup.pays is None else "pays" if speedup.pays else "costs"


def best_point(report: Measurement) -> Speedup | None:
    """Where speculation pays most; None if it is shown to pay nowhere."""
    pays = (speedup for speedup in report.speedups if speedup_class(speedup) == "pays")
    return max(pays, key=lambda speedup: speedup.ratio, default=None)


def speedup_of(report: Measurement, arm: ArmReport) -> Speedup | None:
    """The speedup of an arm's measurement; None for the baseline."""
    point = (arm.arm, arm.workload, arm.concurrency, arm.rate)
    return next((s for s in report.speedups if (s.arm, s.workload, s.concurrency, s.rate) == point), None)


def baseline_at(report: Measurement, point: ArmReport | Speedup) -> ArmReport | None:
    """The baseline's measurement at the same workload and load."""
    compared = {speedup.arm for speedup in report.speedups}
    measured_at = (point.workload, point.concurrency, point.rate)
    alike = (arm for arm in report.arms if (arm.workload, arm.concurrency, arm.rate) == measured_at)
    return next((arm for arm in alike if arm.arm not in compared), None)


def prices_at(report: Measurement, point: Speedup) -> tuple[str, str] | None:
    """What a million output tokens cost at a point, of the arm and of the baseline; None where a price is unknown."""
    arm = next((arm for arm in report.arms if speedup_of(report, arm) == point), None)
    ours, theirs = (item and item.price_per_million_output_tokens for item in (arm, baseline_at(report, point)))
    return (dollars(ours), dollars(theirs)) if ours and theirs else None


def _answer(report: Measurement) -> Answer:
    failed = {verdict.claim for verdict in report.verdicts if verdict.holds is False}
    pays = any(verdict.claim == "pays" and verdict.holds for verdict in report.verdicts)
    pays |= any(item.low > 1 for item in report.rate_ratios)
    if failed:
        return "mixed" if pays and failed == {"pays"} else "no"
    return "yes" if pays else "not shown"


def _title(report: Measurement, answer: Answer) -> str:
    """With how many points have figures, where some have none."""
    title, measured = _verdict_in_words(report, answer), len(report.speedups)
    return f"{title} ({measured} of {report.points} points measured)" if measured < report.points else title


def _verdict_in_words(report: Measurement, answer: Answer) -> str:
    if report.saturation and answer != "no":
        return _rates(report)
    if answer == "yes":
        return "Speculation pays"
    pays = [verdict for verdict in report.verdicts if verdict.claim == "pays"]
    if answer == "mixed":
        return f"Speculation pays on {_workloads(pays, True)}, not on {_workloads(pays, False)}"
    if answer == "no":
        failed = {verdict.claim for verdict in report.verdicts if verdict.holds is False}
        return next(title for claim, title in _FAULTS.items() if claim in failed)
    if report.what_if and not pays:
        return "What if: the speed at chosen acceptance lengths"
    return "Not shown yet: measure longer to see whether speculation pays" if pays else "Measured, without a comparison"


def _rates(report: Measurement) -> str:
    """How many times the baseline's highest rate an arm takes, where that is known best."""
    if not report.rate_ratios:
        return "The highest request rates within the SLO"
    best = max(report.rate_ratios, key=lambda item: item.low)
    return f"{best.arm} takes {interval(best)} the requests of the baseline within the SLO on {best.workload}"


def _workloads(verdicts: Sequence[Verdict], holds: bool) -> str:
    return ", ".join(verdict.workload or "all workloads" for verdict in verdicts if verdict.holds is holds)


def _faults(report: Measurement) -> Iterator[str]:
    for verdict in report.verdicts:
        if verdict.holds is False and verdict.claim != "pays":
            yield f"{verdict.workload}: {verdict.detail}" if verdict.workload else verdict.detail


def _speed(report: Measurement) -> Iterator[str]:
    """The best point that pays, what it costs, and the worst that does not."""
    classes = [speedup_class(speedup) for speedup in report.speedups]
    costs = [s for s, judged in zip(report.speedups, classes, strict=True) if judged == "costs"]
    best, worst = best_point(report), min(costs, key=lambda s: s.ratio, default=None)
    if best:
        yield f"{_comparison(best)} (95 % interval {ratio(best.low)} to {ratio(best.high)})."
        if prices := prices_at(report, best):
            yield f"A million output tokens then cost {prices[0]} instead of {prices[1]}."
    if worst:
        yield f"It costs elsewhere: {_comparison(worst)}." if best else f"{_comparison(worst)}."
    yield from _cheapest(report)
    if unclear := classes.count("not shown"):
        yield f"{unclear} of {len(classes)} points: no difference shown."


def _comparison(speedup: Speedup) -> str:
    load = f"on {speedup.workload}, {load_in_words(speedup)}"
    return f"{speedup.arm} is {ratio(speedup.ratio)} as fast as without speculation {load}"


def _cheapest(report: Measurement) -> Iterator[str]:
    """The point with the lowest price of a token among those that meet the SLO."""
    priced = [
        (row.price_per_million_output_tokens, row)
        for row in report.arms
        if row.meets_slo and row.price_per_million_output_tokens
    ]
    if priced:
        price, row = min(priced, key=lambda item: item[0])
        at = f"{row.arm} on {row.workload}, {load_in_words(row)}"
        yield f"The cheapest point within the SLO is {at}: {dollars(price)} per million output tokens."


def _answers(report: Measurement) -> Iterator[str]:
    outcomes = {verdict.holds for verdict in report.verdicts if verdict.claim == "lossless"}
    if outcomes == {True}:
        yield "Its answers are the target model's own."
    elif None in outcomes and False not in outcomes:
        yield "Whether its answers are the target model's own is not shown."
