"""AWS's study of speculative decoding on Trainium, of a recipe: compile, deploy both arms, measure, remove."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from toolkit.api.catalogue import recipes
from toolkit.api.context import recipe_or_none
from toolkit.api.steps import STEPS, Steps
from toolkit.api.study_arms import Arms, are_there, in_service, require_deployable
from toolkit.api.tracking import bench_metrics, find_trackers
from toolkit.api.trials import circumstances, content
from toolkit.apply.progress import Progress, default_progress
from toolkit.checks.run import require
from toolkit.errors import UsageError
from toolkit.files import make_private_folder
from toolkit.home import home_folder
from toolkit.loading import RecipeLike, on_platform
from toolkit.measure.study import CONCURRENCY, WORKLOAD, StudyReport, published
from toolkit.planning.artifacts import compiles_ahead
from toolkit.recipe.content import digest
from toolkit.recipe.recipe import Recipe
from toolkit.registry import price_text

SECONDS = 1800.0
"""How long both arms are measured at most."""


def study(
    what: RecipeLike,
    *,
    hardware: str | None = None,
    platform: str | None = None,
    seconds: float = SECONDS,
    keep: bool = False,
    progress: Progress | None = None,
    _steps: Steps = STEPS,
) -> StudyReport:
    """Measure a recipe as AWS's study of Trainium did, and say what it published beside.

    `what` is a recipe, or a model such as `qwen3-32b` with its `hardware`: then the recipe that comes with the toolkit.
    The arms, with and without speculation, are compiled if they compile ahead, deployed, asked the eight classes of
    prompts four at a time, for `seconds` at most, and removed, unless `keep`. What was measured is kept, so a repeated
    call carries on where one was interrupted. What was there before stays, also what a killed study has left: arms in
    service are measured as they are, if they serve what the recipe says. `remains` of the report says what could not be
    removed.
    The result is a run where the environment names a tracker (tracking.py).

    Raises UsageError, RecipeError or PlatformError.
    """
    progress = progress or default_progress()
    trackers = find_trackers(progress)
    recipe = studied_recipe(what, hardware, platform)
    require(recipe)
    folder = home_folder("studies") / recipe.name
    results = folder / f"{digest(content(recipe))}.jsonl"
    make_private_folder(folder)
    measure = partial(
        _steps.measure,
        workloads=(WORKLOAD,),
        concurrency=(CONCURRENCY,),
        seconds=seconds,
        journal=results,
        progress=progress,
    )
    with _alone(folder, recipe.name):
        if are_there(recipe):
            report, remains = measure(in_service(recipe, _steps, progress)), ""
        else:
            require_deployable(recipe)
            report, remains = Arms(recipe, _steps, progress).measured(measure, keep=keep)
        report = replace(report, setting={**report.setting, **circumstances(recipe)})
        measured = StudyReport(report, setting_of(recipe), remains)
        trackers.log(f"study {recipe.name}", dict(measured.setting), bench_metrics(report), measured.to_dict())
        if report.complete:
            results.unlink(missing_ok=True)  # or the next study would measure nothing
    return measured


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Raises UsageError while another process studies it."""
    lock = FileLock(folder / "lock", timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout as error:
        raise UsageError(f"{name} is being studied by another process", hint="Wait until it has ended.") from error
    try:
        yield
    finally:
        lock.release()


def price(recipe: Recipe) -> str | None:
    """What a study costs while it runs, in words; None where nothing is billed, or both arms serve already.

    Raises UsageError for what a study cannot deploy.
    """
    if recipe.price_per_hour == 0 or are_there(recipe):
        return None
    require_deployable(recipe)
    before = "two jobs that compile, then " if compiles_ahead(recipe) else ""
    return f"{before}two endpoints, for as long as they start and are measured; each {price_text(recipe)}"


def studied_recipe(what: RecipeLike, hardware: str | None = None, platform: str | None = None) -> Recipe:
    """The recipe that is meant, on its platform. Raises UsageError where none is, or where it does not speculate."""
    recipe = recipe_or_none(what)
    if recipe and hardware:
        raise UsageError(f"{what} is a recipe, which names its hardware", hint="Leave out --hardware.")
    recipe = recipe or _of_model(str(what), hardware, platform)
    if recipe.speculation is None:
        hint = "Name one that does: its baseline is measured beside it."
        raise UsageError(f"{recipe.path} does not speculate", hint=hint)
    return on_platform(recipe, platform)


def _of_model(model: str, hardware: str | None, platform: str | None) -> Recipe:
    """The recipe of a model: that of the published pair, or else the only one on this hardware."""
    found = {name: one for name, one in recipes().matching(hardware=hardware).entries if name.split("/")[0] == model}
    there = {name: one for name, one in found.items() if platform in (None, one.platform.name)}
    chosen = [there[name] for name in published().recipes if name in there] or [*there.values()]
    here = [one for one in chosen if one.platform.name == chosen[0].platform.name]
    if len(here) == 1:
        return here[0]
    on = f" on {hardware}" if hardware else ""
    if there:
        raise UsageError(f"{len(there)} recipes of {model}{on} could be meant", hint=f"Name one: {', '.join(there)}.")
    if found:
        known = ", ".join(f"{name} ({one.platform.name})" for name, one in found.items())
        raise UsageError(f"no recipe of {model}{on} is for platform `{platform}`", hint=f"There are {known}.")
    hint = f"Make one, and study that: toolkit new MODEL{f' --hardware {hardware}' if hardware else ''}"
    raise UsageError(f"no recipe of {model}{on} comes with the toolkit", hint=hint)


def setting_of(recipe: Recipe) -> dict[str, str]:
    """By the names of the published one."""
    drafter, made = recipe.drafter, circumstances(recipe)
    assert recipe.speculation, "a study's recipe speculates"
    return {
        "target": recipe.target.name,
        "drafter": drafter.name if drafter else recipe.method,
        "K": str(recipe.speculation.num_speculative_tokens),
        "hardware": made["hardware"],
        "tensor parallel": str(recipe.engine.args.get("tensor-parallel-size", 1)),
        "engine": made["engine"],
        "longest sequence": str(recipe.engine.max_model_len),
        "requests in a batch": str(recipe.engine.max_num_seqs),
        "concurrent requests": str(CONCURRENCY),
        "asked by": "toolkit bench, the arms by turns",
    }
