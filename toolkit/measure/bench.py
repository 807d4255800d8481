"""A whole measurement: run it, judge what came of it, and report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from toolkit.measure.arm import Arm
from toolkit.measure.counters import counted
from toolkit.measure.journal import Journal
from toolkit.measure.judge import judge
from toolkit.measure.load import closed_loop, open_loop
from toolkit.measure.report import BenchReport, Verdict
from toolkit.measure.result import RequestResult, successful
from toolkit.measure.run import Design, Load, Progress, Send, again, run
from toolkit.measure.stream_clock import Ask, Timing
from toolkit.measure.summary import summarise
from toolkit.measure.verdicts import Expected, slos, verdicts


async def measure(
    design: Design,
    title: str,
    expected: Expected | None = None,
    progress: Callable[[Progress], object] = lambda _: None,
    journal: Journal | None = None,
    settle_seconds: float = 0.0,
) -> BenchReport:
    """Run a measurement, judge its results by what a recipe expects, and report.

    On a machine that all arms share, an engine that has just answered slows the others down for `settle_seconds`.
    Raises InvocationError.
    """
    measured = await run(design, sender(settle_seconds), progress, journal)
    results = measured.results
    limits = slos(expected.expect) if expected else {}
    summary = summarise(results, design.arms, design.baseline, limits)
    speed = verdicts(results, summary, design.arms, design.baseline, expected)
    return BenchReport(
        title,
        verdicts=(*speed, *await _lossless(design, results)),
        arms=summary.arms,
        speedups=summary.speedups,
        noise=summary.noise,
        notes=(*(item.note for item in design.workloads if item.note), *measured.notes, *_cut(results)),
    )


def sender(settle_seconds: float = 0.0) -> Send:
    """Sends requests to arms; before another arm than last it waits until that has settled."""
    last: list[str] = []

    async def send(arm: Arm, asks: Sequence[Ask], load: Load, timing: Timing) -> list[RequestResult]:
        if last and last[0] != arm.name:
            await asyncio.sleep(settle_seconds)
        last[:] = [arm.name]
        if load.open_loop:
            block = open_loop(arm, asks, load.value, timing)
        else:
            block = closed_loop(arm, asks, round(load.value), timing)
        return await counted(arm.connection, block) if arm.speculative else await block

    return send


async def _lossless(design: Design, results: Sequence[RequestResult]) -> tuple[Verdict, ...]:
    if design.baseline is None:
        return ()
    judgements = await judge(design.baseline, design.arms, results, again(design.baseline.name))
    return tuple(verdict for judgement in judgements for verdict in judgement.verdicts)


def _cut(results: Sequence[RequestResult]) -> list[str]:
    """A note if reasoning used up the answers: their texts are empty then."""
    answers = successful(list(results))
    cut = [item for item in answers if item.finish_reason == "length" and item.reasoning_tokens >= item.output_tokens]
    if not cut:
        return []
    return [f"{len(cut)} of {len(answers)} answers were cut while the model was still reasoning; see --max-tokens"]
