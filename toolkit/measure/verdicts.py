"""What the results show: is speculation on and accepted, does it pay, and is all as the recipe expects?

A claim holds (True), does not (False), or is not shown (None): the 95 % interval reaches to both sides of its bound.
The claims `lossless` and `same-target` are those of the modules of that name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolkit.measure.arm import Arm
from toolkit.measure.measurement import ArmReport, Claim, Interval, Speedup, Verdict
from toolkit.measure.result import RequestResult, successful
from toolkit.measure.statistics import acceptance_length, lacks_blocks, pairs_of, share, what_narrows
from toolkit.measure.summary import Summary, acceptance_of, is_met
from toolkit.measure.wording import interval, load_in_words
from toolkit.recipe.schema import Expect, Slo

# Below this the drafter only costs time: even random drafts are accepted more often.
_LEAST_ACCEPTANCE_LENGTH = 1.05
# A gain that is surely below this is none: the drafter takes memory as well.
_LEAST_GAIN = 1.05
_TOLERATED_FAILURES = 0.01
_FAILS_MORE = "more of its requests failed than of the baseline's"
_REPORTS_NONE = "the engine reports no draft tokens"
_UNSEEN = "whether it drafts cannot be seen: neither its answers nor its /metrics have figures of drafts"


def slos(arms: Sequence[Arm]) -> dict[str, Slo]:
    """The limits on latencies by workload: those of the first arm whose recipe has some."""
    expected = [item for arm in reversed(arms) for item in arm.expected.expect.items()]
    return {workload: item.slo for workload, item in expected if item.slo}


def verdicts(
    results: Iterable[RequestResult],
    summary: Summary,
    arms: Sequence[Arm],
    baseline: Arm | None = None,
    points: Mapping[str, int] | None = None,
) -> tuple[Verdict, ...]:
    """All verdicts on speed and acceptance. `points` is how many speedups each workload was to have."""
    answers = successful(list(results))
    speculative = [arm for arm in arms if arm.speculative]
    judged = [_on(arm, answers, summary) for arm in speculative]
    judged += [_accepted(arm, answers) for arm in speculative if _can_be_seen(arm, answers)]
    if baseline:
        judged += [
            _baseline(baseline, answers),
            *(_pays(summary, answers, baseline.name, points or {}) if arms else ()),
        ]
    for arm in speculative:
        judged += _as_published(arm, answers)
        judged += _as_expected(arm, answers, summary)
    return tuple(_merge(judged))


def _merge(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """One verdict for each claim and workload: that of the worst arm, with the details of all."""
    groups: dict[tuple[Claim, str | None], list[Verdict]] = {}
    for item in verdicts:
        groups.setdefault((item.claim, item.workload), []).append(item)
    for (claim, workload), items in groups.items():
        holds = [item.holds for item in items]
        worst = False if False in holds else None if None in holds else True
        yield Verdict(claim, worst, "; ".join(item.detail for item in items), workload)


def _on(arm: Arm, answers: Sequence[RequestResult], summary: Summary) -> Verdict:
    mine = [item for item in answers if item.arm == arm.name]
    if not _can_be_seen(arm, answers):
        return _on_by_speed(arm, summary)
    if not mine:
        return Verdict("on", None, f"{arm.name}: no request was answered")
    if all(item.acceptance is None for item in mine):
        why = f"{_REPORTS_NONE}: check `speculation` and the engine's log"
        return Verdict("on", False, f"{arm.name}: {why}")
    total = acceptance_of(mine)
    if total is None:
        return Verdict("on", True, f"{arm.name}: the engine counts draft tokens, and has verified none")
    steps = sum(item.output_tokens for item in mine) - total.accepted
    return Verdict("on", True, f"{arm.name}: {total.steps} of {max(steps, total.steps)} target steps verified drafts")


def _can_be_seen(arm: Arm, answers: Sequence[RequestResult]) -> bool:
    """Whether it shows how much an arm drafts: its engine counts drafts, or the answers have figures of them."""
    return bool(arm.reports_drafts) or any(item.arm == arm.name and item.acceptance for item in answers)


def _on_by_speed(arm: Arm, summary: Summary) -> Verdict:
    """An engine that does not count drafts speculates if it is faster; one that is not may speculate in vain."""
    if arm.reports_drafts is None:
        return Verdict("on", None, f"{arm.name}: {_UNSEEN}")
    speedups = [item for item in summary.speedups if item.arm == arm.name]
    if not speedups:
        return Verdict("on", None, f"{arm.name}: {_REPORTS_NONE}, and there is no baseline to compare its speed with")
    shown = "; ".join(_at(item) for item in speedups)
    detail = f"{arm.name}: {_REPORTS_NONE}; speedup over the baseline: {shown}"
    return Verdict("on", True if any(item.pays for item in speedups) else None, detail)


def _accepted(arm: Arm, answers: Sequence[RequestResult]) -> Verdict:
    by_workload = _by_workload(arm, answers)
    lengths = {name: found for name, mine in by_workload.items() if (found := _length(mine))}
    if not lengths:
        return Verdict("accepted", False if by_workload else None, f"{arm.name}: no draft was verified")
    shown = ", ".join(f"{name} {_range(length)}" for name, length in lengths.items())
    detail = f"{arm.name}: tokens per target step: {shown}"
    if any(length.low >= _LEAST_ACCEPTANCE_LENGTH for length in lengths.values()):
        return Verdict("accepted", True, detail)
    high = max(length.high for length in lengths.values())
    return Verdict("accepted", False if high < _LEAST_ACCEPTANCE_LENGTH else None, detail)


def _baseline(baseline: Arm, answers: Sequence[RequestResult]) -> Verdict:
    mine = [item for item in answers if item.arm == baseline.name]
    drafted = acceptance_of(mine)
    if drafted:
        why = f"{baseline.name} speculates itself: {drafted.steps} of its steps verified drafts"
        return Verdict("baseline", False, f"{why}. Compare with an endpoint without speculation")
    if not mine or not baseline.reports_drafts:
        return Verdict("baseline", None, f"{baseline.name}: {_REPORTS_NONE if mine else 'no answers'}")
    return Verdict("baseline", True, f"{baseline.name} reports no drafts")


def _pays(
    summary: Summary, answers: Sequence[RequestResult], baseline: str, points: Mapping[str, int]
) -> Iterator[Verdict]:
    """One verdict for each workload: True if an arm pays at any load, False if none gains anything at any of all."""
    for workload in dict.fromkeys((*points, *(row.workload for row in summary.arms))):
        unknown = list(_without_speedup(summary, workload, baseline))
        speedups = [item for item in summary.speedups if item.workload == workload]
        judged = {item: item.pays for item in speedups if not _fails_more(item, summary, baseline)}
        failing = [item for item in speedups if item not in judged]
        if any(judged.values()):
            holds: bool | None = True
        else:
            all_known = not failing and not unknown and len(judged) >= max(1, points.get(workload, 0))
            holds = False if all_known and all(item.high < _LEAST_GAIN for item in judged) else None
        details = [f"{item.arm} {_word(item, pays)}: {_at(item)}" for item, pays in judged.items()]
        details += [f"{item.arm} not shown with {load_in_words(item)}: {_FAILS_MORE}" for item in failing]
        details += unknown
        if holds is None:
            details += _further(speedups, answers, baseline, summary)
        yield Verdict("pays", holds, "; ".join(details) or "too few pairs of answers to compare", workload)


def _without_speedup(summary: Summary, workload: str, baseline: str) -> Iterator[str]:
    """The points that were measured too shortly for an interval, and what they lack."""
    known = {(item.arm, item.workload, item.concurrency, item.rate) for item in summary.speedups}
    for row in summary.arms:
        at = row.arm, row.workload, row.concurrency, row.rate
        if row.workload == workload and row.arm != baseline and at not in known:
            lacking = lacks_blocks(summary.blocks[row.concurrency is None])
            yield f"{row.arm} not shown with {load_in_words(row)}{lacking}"


def _fails_more(item: Speedup, summary: Summary, baseline: str) -> bool:
    """Whether the arm fails where the baseline answers: what is left may be the easier, and the load is lower."""
    point = item.workload, item.concurrency, item.rate
    rows = {row.arm: row for row in summary.arms if (row.workload, row.concurrency, row.rate) == point}
    ours, theirs = rows[item.arm], rows[baseline]
    return ours.failed - theirs.failed > _TOLERATED_FAILURES * ours.requests


def _word(item: Speedup, pays: bool | None) -> str:
    if pays is None:
        return "gains nothing" if item.high < _LEAST_GAIN else "not shown"
    return "pays" if pays else "costs"


def _further(
    speedups: Sequence[Speedup], answers: Sequence[RequestResult], baseline: str, summary: Summary
) -> Iterator[str]:
    """What would settle the point that is most likely to pay."""
    best = max(speedups, key=lambda item: item.ratio, default=None)
    if best is None:
        return
    point = best.workload, best.concurrency or best.rate, best.concurrency is None
    mine = [item for item in answers if (item.workload, item.load, item.open_loop) == point]
    width = abs(math.expm1(abs(math.log(best.ratio))))
    more = what_narrows(pairs_of(mine, best.arm, baseline), width, summary.blocks[best.concurrency is None])
    if more and more.requests:
        yield f"{more} would settle it"


def _as_published(arm: Arm, answers: Sequence[RequestResult]) -> Iterator[Verdict]:
    """Acceptance against the evidence of the arm's recipe.

    The published length comes from other prompts, so it is as uncertain as ours: of the difference of two logarithms
    with that uncertainty, √2 times our half-width is the 95 % interval.
    """
    published = arm.expected.published
    for workload, mine in _by_workload(arm, answers).items():
        length = _length(mine)
        if workload not in published or length is None:
            continue
        reach = math.sqrt(2) * math.log(length.high / length.ratio)
        holds = math.log(published[workload] / length.ratio) <= reach
        detail = f"{arm.name}: acceptance length {_range(length)}, {published[workload]:.2f} in the recipe's evidence"
        yield Verdict("expected", holds, detail, workload)


def _as_expected(arm: Arm, answers: Sequence[RequestResult], summary: Summary) -> Iterator[Verdict]:
    """The `expect` of the arm's recipe: each bound against the interval of what was measured."""
    for workload, wanted in arm.expected.expect.items():
        rows = [row for row in summary.arms if _is_for(row, arm, workload, wanted)]
        if not rows:
            missing = f"{arm.name}: not measured with {wanted.concurrency} concurrent requests"
            yield Verdict("expected", None, missing, workload)
            continue
        mine = [
            item
            for item in answers
            if (item.arm, item.workload, item.load) == (arm.name, workload, wanted.concurrency) and not item.open_loop
        ]
        if wanted.speedup:
            measured = next((item for item in summary.speedups if _is_for(item, arm, workload, wanted)), None)
            yield _at_least(arm, workload, "speedup", wanted.speedup, measured)
        if wanted.acceptance_length:
            yield _at_least(arm, workload, "acceptance length", wanted.acceptance_length, _length(mine))
        if wanted.slo and mine:
            within = share(sum(is_met(wanted.slo, item) for item in mine), len(mine))
            yield _at_least(arm, workload, "share of requests within the SLO", wanted.slo.share, within)


def _is_for(item: ArmReport | Speedup, arm: Arm, workload: str, wanted: Expect) -> bool:
    return (item.arm, item.workload, item.concurrency) == (arm.name, workload, wanted.concurrency)


def _at_least(arm: Arm, workload: str, name: str, bound: float, measured: Interval | Speedup | None) -> Verdict:
    if measured is None:
        return Verdict("expected", None, f"{arm.name}: {name} is not known, at least {bound:g} is expected", workload)
    detail = f"{arm.name}: {name} {_range(measured)}, at least {bound:g} is expected"
    holds = True if measured.low >= bound else False if measured.high < bound else None
    return Verdict("expected", holds, detail, workload)


def _by_workload(arm: Arm, answers: Sequence[RequestResult]) -> dict[str, list[RequestResult]]:
    by_name: dict[str, list[RequestResult]] = {}
    for item in answers:
        if item.arm == arm.name:
            by_name.setdefault(item.workload, []).append(item)
    return by_name


def _length(answers: Sequence[RequestResult]) -> Interval | None:
    """The acceptance length with its interval; a single answer's as it is."""
    total = acceptance_of(answers)
    if total is None:
        return None
    return acceptance_length(answers) or Interval(total.length, total.length, total.length)


def _range(item: Interval | Speedup) -> str:
    return f"{item.ratio:.2f} ({item.low:.2f}-{item.high:.2f})"


def _at(item: Speedup) -> str:
    return f"{interval(item)} with {load_in_words(item)}"
