"""A whole measurement: run it, judge what came of it, and report."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Literal

from toolkit.errors import PlatformError
from toolkit.measure.arm import FIXED_LENGTH, Arm, Connection, count_energy
from toolkit.measure.design import Design, Load, Measured, Progress, Send
from toolkit.measure.journal import Journal
from toolkit.measure.judge import judge, judge_alone
from toolkit.measure.load import Ask, Timing, closed_loop, count_drafts, open_loop
from toolkit.measure.lossless import count_identical, pair_answers
from toolkit.measure.measurement import ArmReport, Claim, Verdict
from toolkit.measure.replay import asked_rate, replay_notes, stretches_of
from toolkit.measure.report import BenchReport
from toolkit.measure.result import Request, RequestResult, successful
from toolkit.measure.run import again, block_seconds, run
from toolkit.measure.saturation import Searching, saturate
from toolkit.measure.scoring import Scored
from toolkit.measure.summary import summarise
from toolkit.measure.verdicts import slos, verdicts
from toolkit.measure.what_if import other_acceptance, synthetic_verdicts
from toolkit.recipe.schema import Slo

_OF_ARMS: tuple[Claim, ...] = ("on", "accepted", "baseline")
"""Claims that no arm's speed at the same load as another's decides."""


async def measure(
    design: Design,
    title: str,
    progress: Callable[[Progress | Searching | Scored], object] = lambda _: None,
    journal: Journal | None = None,
    what_if: Sequence[float] = (),
) -> BenchReport:
    """Run a measurement, judge its results by what the arms' recipes expect, and report.

    `what_if` are acceptance lengths: the report then says how fast the arms would be at each. With an SLO and no trace
    the design has no loads: the highest rates within it are searched for. Raises InvocationError.
    """
    if design.slo and not design.trace:
        return await _saturation(design, design.slo, title, progress, journal)
    measured = await run(design, sender(design.settle_seconds, design.seed), progress, journal)
    stretches: dict[int | None, float] = {}
    if design.trace:
        stretches = stretches_of(design, measured.results, block_seconds(design))
        measured = _at_rate(measured, asked_rate(measured.results, stretches))
    results = measured.results
    limits = {item.name: design.slo for item in design.workloads} if design.slo else slos(design.arms)
    summary = summarise(results, design.arms, design.baseline, limits, measured.left_out, stretches)
    real = [arm for arm in design.arms if arm.synthetic_acceptance_length is None]
    names = [name for item in design.workloads for name in item.names]
    points = {name: len(design.loads) * len(real) for name in names}
    speed = verdicts(results, summary, real, design.baseline, points)
    baseline, comparable = design.baseline.name if design.baseline else "", {arm.name for arm in real}
    judged, ending = await _judge(design, real, measured, progress)
    return BenchReport(
        title,
        verdicts=(
            *speed,
            *judged,
            *(verdict for arm in design.arms if arm not in real for verdict in synthetic_verdicts(arm)),
        ),
        arms=tuple(
            replace(row, identical=identical_share(results, row, baseline)) if row.arm in comparable else row
            for row in summary.arms
        ),
        speedups=summary.speedups,
        noise=summary.noise,
        gains=summary.gains,
        between_arms=summary.between_arms,
        notes=(
            *(item.note for item in design.workloads if item.note),
            *measured.notes,
            *(replay_notes(design, results, stretches) if design.trace else ()),
            *_lengths(design, summary.arms),
            *_parted(design, results),
            *_cut(results),
            *_refused(design),
            *_chunks(results),
        ),
        points=len(names) * len(design.loads) * len(design.arms) if design.baseline else 0,
        machine=measured.machine,
        complete=ending == "complete",
        interrupted=ending == "interrupted",
        what_if=other_acceptance(results, design.arms, baseline, what_if) if what_if else None,
    )


def _at_rate(measured: Measured, rate: float) -> Measured:
    """The results of a trace's part, as of the rate that it had."""
    results = tuple(replace(item, load=rate) for item in measured.results)
    left_out = {(name, rate, is_open, arm): count for (name, _, is_open, arm), count in measured.left_out.items()}
    return replace(measured, results=results, left_out=left_out)


async def _saturation(
    design: Design, slo: Slo, title: str, progress: Callable[[Searching | Scored], object], journal: Journal | None
) -> BenchReport:
    found = await saturate(design, slo, sender(design.settle_seconds, design.seed), progress, journal)
    measured = found.measured
    limits = {workload.name: slo for workload in design.workloads}
    summary = summarise(measured.results, design.arms, None, limits, measured.left_out)
    if design.baseline:
        own = summarise(measured.results, [design.baseline], None, limits, measured.left_out)
        summary = replace(summary, arms=(*own.arms, *summary.arms))
    rows = sorted((row for row in summary.arms if row.requests), key=lambda row: (row.workload, row.rate or 0))
    speed = verdicts(measured.results, summary, design.arms, design.baseline)
    # Each arm has rates of its own: the same prompt, asked as often before, makes a pair.
    pairs = replace(measured, results=tuple(replace(item, load=0) for item in measured.results))
    judged, ending = await _judge(design, design.arms, pairs, progress)
    return BenchReport(
        title,
        verdicts=(*(verdict for verdict in speed if verdict.claim in _OF_ARMS), *judged),
        arms=tuple(rows),
        notes=(
            *(item.note for item in design.workloads if item.note),
            *measured.notes,
            *_cut(measured.results),
            *_refused(design),
            *_chunks(measured.results),
        ),
        machine=measured.machine,
        complete=ending == "complete",
        interrupted=ending == "interrupted",
        saturation=found.saturation,
        rate_ratios=found.ratios,
    )


def sender(settle_seconds: float = 0.0, seed: int = 0) -> Send:
    """A function that sends requests to arms. When the arm changes, it waits `settle_seconds` first.

    `seed` decides at what moments open loops ask.
    """
    last: list[Connection] = []
    without_counters: list[Connection] = []

    async def send(arm: Arm, asks: Sequence[Ask], load: Load, timing: Timing) -> list[RequestResult]:
        if last and last[0] is not arm.connection:
            await asyncio.sleep(settle_seconds)
        last[:] = [arm.connection]
        if load.open_loop:  # all arms are asked at the same moments, and each block at others
            block = open_loop(arm, asks, load.value, timing, seed=f"{seed} {asks[0].round} {asks[0].prompt}")
        else:
            block = closed_loop(arm, asks, round(load.value), timing)
        counted = count_drafts(arm.connection, block, without_counters)
        return await count_energy(arm.energy, counted) if arm.energy else await counted

    return send


_Ending = Literal["complete", "interrupted", "broken off"]


async def _judge(
    design: Design, arms: Sequence[Arm], measured: Measured, progress: Callable[[Scored], object]
) -> tuple[tuple[Verdict, ...], _Ending]:
    """The claims about the answers; not shown if Ctrl-C or the endpoint's end came before. And how it ended."""
    why = "the measurement was interrupted before the answers were judged"
    ending: _Ending = "interrupted"
    try:
        if measured.complete:
            return await _lossless(design.baseline, arms, measured.results, progress), "complete"
    except asyncio.CancelledError:
        if task := asyncio.current_task():
            task.uncancel()
    except PlatformError as error:
        why, ending = error.message, "broken off"
    return (Verdict("lossless", None, why), Verdict("same-target", None, why)), ending


async def _lossless(
    baseline: Arm | None,
    arms: Sequence[Arm],
    results: Sequence[RequestResult],
    progress: Callable[[Scored], object],
) -> tuple[Verdict, ...]:
    if baseline is None:
        return tuple([verdict for arm in arms for verdict in await judge_alone(arm, results, progress=progress)])
    judgements = await judge(baseline, arms, results, again(baseline.name), progress=progress) if arms else ()
    return tuple(verdict for judgement in judgements for verdict in judgement.verdicts)


def identical_share(results: Sequence[RequestResult], row: ArmReport, baseline: str) -> float | None:
    """The share of an arm's answers at one point that equal the baseline's; None for the baseline itself."""
    point = row.workload, row.concurrency or row.rate, row.concurrency is None
    at = [item for item in results if (item.workload, item.load, item.open_loop) == point]
    answers = [item for item in successful(at) if item.arm == row.arm]
    pairs = pair_answers(answers, [item for item in at if item.arm == baseline]) if row.arm != baseline else []
    return count_identical(pairs) / len(pairs) if pairs else None


def _lengths(design: Design, rows: Sequence[ArmReport]) -> Iterator[str]:
    """A note for each turn of chats, and each length of prompts: how long they were, and how much was in a cache."""
    chosen = (item for item in design.workloads if item.turns > 1 or design.prompt_tokens)
    for name in (name for item in chosen for name in item.names):
        there = [row for row in rows if row.workload == name and row.prompt_tokens]
        cached = [row.cached_share for row in there if row.cached_share is not None]
        if there:
            known = f", {fmean(cached):.0%} of them in a prefix cache" if cached else ""
            yield f"{name}: prompts of {fmean(row.prompt_tokens or 0 for row in there):.0f} tokens on average{known}"


def _parted(design: Design, results: Sequence[RequestResult]) -> Iterator[str]:
    """A note for each turn of which chats have parted: an arm's own answers made another prompt of it."""
    if design.baseline is None:
        return
    asked: dict[tuple[str, str], set[Request]] = defaultdict(set)
    for item in successful(results):
        asked[item.arm, item.workload].add(item.request)
    later = [name for item in design.workloads for name in item.names[1:]]
    for name, arm in ((name, arm.name) for name in later for arm in design.arms):
        ours, theirs = asked[arm, name], asked[design.baseline.name, name]
        both = len({one[:-1] for one in ours} & {one[:-1] for one in theirs})
        if parted := both - len(ours & theirs):
            yield (
                f"{name}: in {parted} of {both} chats the answers of {arm} before were not the baseline's: "
                "these are in no speedup and no comparison"
            )


def _chunks(results: Sequence[RequestResult]) -> Iterator[str]:
    """A note for each arm whose tokens are not known."""
    for arm in dict.fromkeys(item.arm for item in results if item.counts_chunks and item.outcome == "successful"):
        yield f"{arm} told neither usage nor token ids: its tokens/s and TPOT are those of chunks, not of tokens"


def _refused(design: Design) -> Iterator[str]:
    """A note for each arm whose server refuses what the others are asked with."""
    for arm in design.all_arms:
        if arm.refused:
            yield f"{arm.name} was asked without {', '.join(sorted(arm.refused))}, which its server refuses"
        if FIXED_LENGTH in arm.refused and any(workload.fixed_length for workload in design.workloads):
            yield f"{arm.name}'s answers are as long as they are: without {FIXED_LENGTH} no length can be fixed"


def _cut(results: Sequence[RequestResult]) -> list[str]:
    """A note if reasoning used up the answers: their texts are empty then."""
    answers = successful(list(results))
    cut = [item for item in answers if item.finish_reason == "length" and item.reasoning_tokens >= item.output_tokens]
    if not cut:
        return []
    return [f"{len(cut)} of {len(answers)} answers were cut while the model was still reasoning; see --max-tokens"]
