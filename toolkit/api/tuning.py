"""Find the best setting of a recipe's speculation with few measurements: `toolkit tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from toolkit.api.context import require_default_share
from toolkit.api.steps import STEPS, Steps
from toolkit.api.tracking import find_trackers, tune_metrics
from toolkit.api.trials import Trials
from toolkit.apply.progress import Progress, default_progress
from toolkit.catalog import methods
from toolkit.checks.run import check
from toolkit.errors import PlatformError, RecipeError, UsageError
from toolkit.files import write_whole
from toolkit.findings import Finding
from toolkit.loading import RecipeLike, complete, load, on_platform, read
from toolkit.measure.break_even import break_even_in_words
from toolkit.measure.expected import reports_drafts
from toolkit.measure.find_k import Point, find_k
from toolkit.measure.settings import Setting, from_recipe, of_method, with_k, with_schedule
from toolkit.measure.tune import (
    Aim,
    Candidate,
    Goal,
    choose,
    find_schedule,
    perhaps_as_good,
    read_curves,
    schedule_pays,
)
from toolkit.measure.tune_report import TuneReport, evidence, measurement_notes, tune_rows
from toolkit.recipe.edit import with_evidence, with_speculation
from toolkit.recipe.known import catalogue_dir
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import Slo
from toolkit.registry import price_text

ALL_K = tuple(range(1, 11))
# As many are all measured; more need the engine's counts of drafts to predict from.
_FEW_K = 3


def tune(
    recipe: RecipeLike,
    *,
    k: Sequence[int] = ALL_K,
    arms: Sequence[RecipeLike] = (),
    methods: Sequence[str] = (),
    concurrency: Sequence[int] = (1,),
    slo: Slo | None = None,
    goal: Goal = "latency",
    workloads: Sequence[str] = (),
    seconds: float = 60.0,
    write: bool = False,
    platform: str | None = None,
    progress: Progress | None = None,
    _steps: Steps = STEPS,
) -> TuneReport:
    """Find the best K of a recipe, and compare it with other `methods` and recipes (`arms`), against its baseline.

    About half of the K are measured, for up to `seconds` each: two of them predict the others, then the best one and
    its neighbours are measured until it stays the best, at each `concurrency`. The winner is then measured once more,
    because part of its lead may be luck. Each setting is deployed under a name of its own and removed again; so is the
    baseline, unless it was in service before. Results are kept, so that a repeated call carries on. With several
    `concurrency`, a K by batch size is measured too, if the results suggest one. Settings that miss the `slo` do not
    count. `write` changes the recipe's file. If the environment names a tracker (tracking.py), the result is also a
    run there.

    Raises UsageError, RecipeError, PlatformError.
    """
    progress = progress or default_progress()
    trackers = find_trackers(progress)
    require_default_share(slo)
    loaded = load(recipe, platform)
    if write:
        _require_writable(loaded)
    asked = {"concurrency": list(concurrency), "workloads": list(workloads), "seconds": seconds}
    aim = Aim(goal, slo)

    measure = partial(_steps.measure, workloads=workloads, concurrency=concurrency, seconds=seconds, progress=progress)
    own, others, notes = _settings(loaded, k, [load(arm) for arm in arms], methods)
    with Trials(loaded, replace(_steps, measure=measure), asked, progress) as trials:
        tuning = _Tuning(loaded, aim, trials)
        tuning.find_k(own)
        for setting in others:
            tuning.try_other(setting)
        if len(concurrency) > 1:
            tuning.try_schedule()
        best = tuning.best()
    report = replace(tuning.result(best), notes=(*notes, *tuning.notes))
    parameters = {"recipe": loaded.name, **asked, "goal": goal, "k": list(k), "winner": report.winner}
    trackers.log(f"tune {loaded.name}", parameters, tune_metrics(report), report.to_dict())
    return _write(report, loaded, best) if write and best else report


def price(recipe: RecipeLike, *, platform: str | None = None) -> str | None:
    """What `tune` costs while it runs, in words; None on a platform that bills nothing."""
    loaded = load(recipe, platform)
    hourly = loaded.price_per_hour
    if hourly == 0:
        return None
    total = f", {2 * hourly:.2f} $/h in total" if hourly else ""
    return f"two endpoints at a time, the baseline and one setting{total}; each {price_text(loaded)}"


class _Tuning:
    """The candidates of one run, as they are measured."""

    def __init__(self, recipe: Recipe, aim: Aim, trials: Trials) -> None:
        self.recipe, self.aim = recipe, aim
        self.candidates: list[Candidate] = []
        self.notes: list[str] = []
        self._trials = trials
        self._settings: dict[str, Setting] = {}
        self._predictions: Mapping[str, Mapping[Point, float]] = {}
        self._schedule_pays: bool | None = None

    def find_k(self, settings: Mapping[int, Setting]) -> None:
        """Measure a few K of the recipe's own method."""
        if not settings:
            return
        if len(settings) <= _FEW_K and not reports_drafts(self.recipe):
            for setting in settings.values():
                self.add(setting)
            return
        search = find_k(list(settings), lambda k: read_curves(self.add(settings[k]).report, k))
        self.candidates = [
            replace(one, predicted=_speedups(trial.predicted or {}))
            for one, trial in zip(self.candidates, search.trials, strict=True)
        ]
        self._predictions = {settings[k].name: _speedups(speeds) for k, speeds in search.predicted.items()}

    def add(self, setting: Setting) -> Candidate:
        report, speculation = self._trials.report(setting, 1), setting.speculation
        self._settings[setting.name] = setting
        k, schedule = speculation.num_speculative_tokens, tuple(speculation.schedule)
        added = Candidate(setting.name, k, report, setting.keys, schedule)
        self.candidates.append(added)
        self.notes += [f"{added.name} does not count: {fault}" for fault in added.faults]
        return added

    def try_other(self, setting: Setting) -> None:
        """Another method or recipe. One that cannot be served takes nothing from what is known of the others.

        Raises PlatformError where it remains deployed, and billed, or nothing else is known.
        """
        try:
            self.add(setting)
        except PlatformError as error:
            if not self.candidates or self._trials.remains(setting):
                raise
            self.notes.append(f"{setting.name} could not be measured: {error.message}. {error.hint}".rstrip())

    def try_schedule(self) -> None:
        """Measure the K by batch size that follows from the K that were measured, if there is one."""
        own = [one for one in self.candidates if one.name.startswith("K=")]
        self.notes += break_even_in_words([replace(item, arm=one.name) for one in own for item in one.report.speedups])
        schedule = find_schedule([one for one in own if not one.faults], self.recipe.engine.max_num_seqs)
        fixed = choose(own, Aim())
        if not schedule or not fixed:
            self.notes.append("One K, or none, is the best at all concurrencies: no K by batch size follows.")
            return
        setting = with_schedule(self.recipe, schedule)
        self.notes.append(f"num_speculative_tokens_per_batch_size: {[list(entry) for entry in schedule]}")
        if errors := check(setting.recipe).errors:
            self.notes.append(f"{setting.name} cannot be used: {_reasons(errors)}")
            return
        self._schedule_pays, why = schedule_pays(self.add(setting), fixed)
        self.notes.append(why)

    def best(self) -> Candidate | None:
        """The best setting, as it was measured last; None if none is better than the baseline.

        If there were several to choose from, it must also have been better when it was measured once more.
        """
        usable = [one for one in self.candidates if not one.schedule or self._schedule_pays]
        chosen = choose(usable, self.aim)
        if chosen is None or len(usable) == 1:
            return chosen
        if others := perhaps_as_good(chosen, usable):
            alike = ", ".join(others)
            self.notes.append(f"Perhaps as good, by their intervals: {alike}. More --time tells them apart.")
        again = replace(chosen, report=self._trials.report(self._settings[chosen.name], 2), predicted={}, measurement=2)
        self.candidates.append(again)
        if choose([again], self.aim):
            return again
        reasons = "; ".join(again.faults) or "it is not shown to be better than the baseline"
        self.notes.append(f"{chosen.name} was the best, but not when it was measured again: {reasons}.")
        return None

    def result(self, best: Candidate | None) -> TuneReport:
        self.notes += measurement_notes(self.candidates)
        kept = (best or self.candidates[0]).report.setting
        names = {one.name for one in self.candidates}
        return TuneReport(
            title=f"{self.recipe.name}: {len(names)} settings against the baseline",
            goal=self.aim.goal,
            rows=tune_rows(self.candidates, self.aim, self._predictions),
            winner=best.name if best else None,
            speculation=best.keys if best else {},
            measured=len(names),
            schedule_pays=self._schedule_pays,
            setting={key: kept[key] for key in ("hardware", "engine", "toolkit", "date")},
        )


def _settings(
    recipe: Recipe, ks: Sequence[int], arms: Sequence[Recipe], methods: Sequence[str]
) -> tuple[dict[int, Setting], list[Setting], list[str]]:
    """The settings by K, the other settings, and why some cannot be deployed. Raises RecipeError if none can."""
    own = {k: with_k(recipe, k) for k in sorted(set(ks))}
    if len(own) > _FEW_K and not reports_drafts(recipe):
        message = f"{recipe.engine.name} does not count accepted drafts, which other K are predicted from"
        raise UsageError(message, hint=f"Give at most {_FEW_K} K: all of them are measured.")
    others = [
        *(of_method(recipe, with_method(recipe, method)) for method in methods),
        *(from_recipe(recipe, on_platform(arm, recipe.platform.name), number) for number, arm in enumerate(arms)),
    ]
    names = [one.name for one in others]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{twice} is given twice", hint="Remove one of them, or give the recipes different names.")
    refused = {one.name: errors for one in (*own.values(), *others) if (errors := check(one.recipe).errors)}
    own_usable = {k: one for k, one in own.items() if one.name not in refused}
    usable = [one for one in others if one.name not in refused]
    if not refused and not usable and not own_usable:
        raise UsageError("there is nothing to measure", hint="Give at least one K, method or recipe.")
    if not (own_usable or usable):
        raise RecipeError(str(recipe.path), next(iter(refused.values())))
    return own_usable, usable, [f"{name} cannot be used: {_reasons(errors)}" for name, errors in refused.items()]


def with_method(recipe: Recipe, method: str) -> Recipe:
    """The recipe with a method that needs no drafter. Raises UsageError for another method."""
    loaded, section = read(recipe.path), None
    with suppress(ValidationError):
        section = type(loaded.file.speculation).model_validate({"method": method})
    if section is None or method == methods.BASELINE:
        hint = "Methods without a drafter can be tried by name; give others as a recipe, with --arm."
        raise UsageError(f"method `{method}` cannot be tried by its name alone", hint=hint)
    file = loaded.file.edit(speculation=section)
    return on_platform(complete(replace(loaded, file=file)), recipe.platform.name)


def _reasons(errors: Sequence[Finding]) -> str:
    return "; ".join(f"{item.message} [{item.code}]" for item in errors)


def _speedups(speeds: Mapping[Point, float]) -> dict[Point, float]:
    """Seconds per token, in units of the baseline's, as speedups."""
    return {point: 1 / seconds for point, seconds in speeds.items()}


def _require_writable(recipe: Recipe) -> None:
    if recipe.path.resolve().is_relative_to(catalogue_dir().resolve()):
        hint = f"Copy it, and tune the copy: cp {recipe.path} my-recipe.yaml"
        raise UsageError(f"{recipe.path} comes with the toolkit, and is not changed", hint=hint)
    if by_type := [name for name, item in recipe.platform.overrides.items() if item.num_speculative_tokens]:
        own = f"`platform.instance_types` has a `num_speculative_tokens` of its own for {by_type[0]}"
        raise UsageError(f"{recipe.path}: {own}", hint="Tune without --write, and change it there by hand.")


def _write(report: TuneReport, recipe: Recipe, best: Candidate) -> TuneReport:
    """Write the best's K, schedule and figures into the recipe's file. Another method or drafter is not written."""
    own = best.name == with_k(recipe, best.k).name or best.schedule
    if not own:
        note = f"{recipe.path} was not changed: {best.name} has another method or drafter, which is for you to decide."
        return replace(report, notes=(note, *report.notes))
    text = recipe.path.read_text(encoding="utf-8")
    had_schedule = recipe.speculation is not None and recipe.speculation.schedule
    by_batch = [list(entry) for entry in best.schedule] if best.schedule or had_schedule else None
    changed = with_speculation(
        text, {"num_speculative_tokens": best.k, "num_speculative_tokens_per_batch_size": by_batch}
    )
    known = {item.model_dump_json() for item in recipe.evidence}
    measured = evidence(best, "toolkit tune")
    new = [item for item in measured if item.model_dump_json() not in known]
    write_whole(Path(recipe.path), with_evidence(changed, new) if new else changed)
    return replace(report, written=str(recipe.path))
