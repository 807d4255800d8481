"""What if a drafter had another acceptance: its speed, before it is trained or its weights are fetched."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, Unpack

from toolkit.api.context import recipe_or_none
from toolkit.api.endpoint import Endpoint
from toolkit.api.measuring import BenchOptions, Subject
from toolkit.api.steps import STEPS, Steps
from toolkit.apply.progress import Progress, default_progress
from toolkit.errors import UsageError
from toolkit.loading import on_platform
from toolkit.measure.measurement import BreakEvenAcceptance, Verdict, WhatIf
from toolkit.measure.report import BenchReport
from toolkit.recipe.recipe import Recipe

_T = TypeVar("_T", bound=Hashable)

_GARBAGE = "dummy weights: all weights are random numbers, so only speed means anything"


def what_if(
    what: Subject,
    lengths: Sequence[float],
    *,
    baseline: Subject | None = None,
    seconds: float = 300.0,
    dummy_weights: bool = False,
    platform: str | None = None,
    progress: Progress | None = None,
    _steps: Steps = STEPS,
    **options: Unpack[BenchOptions],
) -> BenchReport:
    """Say how fast an endpoint would be at each acceptance length, and at which length speculation breaks even.

    `what` is a recipe, an endpoint or a URL, `seconds` the time for all lengths; `options` are further arguments of
    `bench`. If the recipe's engine can accept drafts at random, an endpoint `<name>-what-if` and its baseline are
    deployed, measured at each acceptance length and removed again. If not, or without a recipe, the endpoint that
    serves now is measured once, and the rest is calculated from its steps per second. `dummy_weights` always deploys
    `<name>-what-if`, with random weights: only configurations and tokenizers are read.

    Raises UsageError, and what `deploy` and `bench` raise.
    """
    progress = progress or default_progress()
    recipe = None if isinstance(what, Endpoint) or "://" in str(what) else recipe_or_none(what)
    recipe = on_platform(recipe, platform) if recipe else None
    _check_lengths(recipe, lengths)
    if recipe is None and dummy_weights:
        raise UsageError("only a recipe can be deployed with dummy weights", hint="Name its recipe.")
    measure = partial(
        _steps.measure, baseline=baseline, what_if=lengths, platform=platform, progress=progress, **options
    )
    by_chance = recipe.engine_rules.accepts_synthetically if recipe else None
    synthetic = recipe is not None and by_chance is not None and by_chance(recipe)
    if recipe is None or not (synthetic or dummy_weights):
        return measure(what, seconds=seconds, fixed_length=False)
    tried = [_as_if(recipe, length, dummy_weights) for length in (dict.fromkeys(lengths) if synthetic else [None])]
    progress.say(f"deploys {tried[0].name}, {len(tried)} times, and removes it at the end")
    reports: list[BenchReport] = []
    try:
        for one in tried:
            endpoint = _steps.deploy_uncompiled(one, baseline=baseline is None, progress=progress)
            reports.append(measure(endpoint, seconds=seconds / len(tried), fixed_length=True))
    finally:
        _steps.destroy(tried[0], progress=progress)
    return _without_answers(_merge(reports)) if dummy_weights else _merge(reports)


def _check_lengths(recipe: Recipe | None, lengths: Sequence[float]) -> None:
    """Raises UsageError for lengths that no drafter can have."""
    if recipe and recipe.speculation is None:
        raise UsageError(f"{recipe.name} does not speculate", hint="Name a recipe with a drafting method.")
    most = recipe.speculation.num_speculative_tokens + 1 if recipe and recipe.speculation else None
    for length in lengths:
        if length < 1 or (most and length > most):
            allowed = f"from 1 to {most} (num_speculative_tokens + 1)" if most else "at least 1"
            raise UsageError(f"no acceptance length can be {length:g}", hint=f"Use numbers {allowed}.")


def _as_if(recipe: Recipe, length: float | None, dummy_weights: bool) -> Recipe:
    """The recipe as it is measured; its expectations are about the real drafter."""
    assert recipe.speculation
    engine, platform = recipe.engine, recipe.platform
    if dummy_weights:
        engine = engine.edit(args={**engine.args, "load-format": "dummy"})
        platform = platform.edit(weights="hub" if platform.weights else None)  # nothing to stage
    return replace(
        recipe,
        name=f"{recipe.name}-what-if",
        synthetic_acceptance_length=length,
        engine=engine,
        platform=platform,
        expect={},
        evidence=(),
    )


def _without_answers(report: BenchReport) -> BenchReport:
    """Without the verdicts on what models with random weights have drafted and answered."""
    kept = (verdict for verdict in report.verdicts if verdict.claim == "baseline")
    unknown = (Verdict("lossless", None, _GARBAGE), Verdict("same-target", None, _GARBAGE))
    return replace(report, verdicts=(*kept, *unknown), notes=(*report.notes, _GARBAGE))


def _merge(reports: Sequence[BenchReport]) -> BenchReport:
    """One report of measurements that had a baseline each; the baseline's figures are those of the first."""
    first = reports[0]
    known = {row.arm for row in first.arms}
    answers = [report.what_if for report in reports if report.what_if]
    speedups = tuple(row for one in answers for row in one.speedups)
    noises = [report.noise for report in reports if report.noise]
    return replace(
        first,
        verdicts=_unique(verdict for report in reports for verdict in report.verdicts),
        arms=(*first.arms, *(row for report in reports[1:] for row in report.arms if row.arm not in known)),
        speedups=tuple(row for report in reports for row in report.speedups),
        noise=max(noises, key=lambda noise: noise.high / noise.low, default=None),
        notes=_unique(note for report in reports for note in report.notes),
        what_if=WhatIf(speedups, _nearest(answers)),
    )


def _nearest(reports: Sequence[WhatIf]) -> tuple[BreakEvenAcceptance, ...]:
    """At each point, what follows from the arm that is nearest to breaking even: it takes the least computing."""
    distance = {(row.workload, row.concurrency, row.arm): abs(row.ratio - 1) for one in reports for row in one.speedups}
    best: dict[tuple[str, int], BreakEvenAcceptance] = {}
    for row in (row for one in reports for row in one.break_even):
        known = best.setdefault((row.workload, row.concurrency), row)
        if distance.get(_key(row), 0.0) < distance.get(_key(known), 0.0):
            best[row.workload, row.concurrency] = row
    return tuple(best.values())


def _key(row: BreakEvenAcceptance) -> tuple[str, int, str]:
    return row.workload, row.concurrency, row.arm


def _unique(items: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(items))
