"""AWS's study of speculative decoding on Trainium, of a recipe: compile, deploy both arms, measure, remove."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from toolkit.api.catalogue import recipes
from toolkit.api.context import find_platform, recipe_or_none
from toolkit.api.endpoint import Endpoint
from toolkit.api.jobs import compile as compile_ahead
from toolkit.api.steps import STEPS, Steps
from toolkit.api.tracking import bench_metrics, find_trackers
from toolkit.api.trials import circumstances, content
from toolkit.apply.progress import Progress, default_progress
from toolkit.checks.run import require
from toolkit.errors import UsageError
from toolkit.files import make_private_folder
from toolkit.home import home_folder
from toolkit.loading import RecipeLike, on_platform
from toolkit.measure.report import BenchReport
from toolkit.measure.study import CONCURRENCY, WORKLOAD, StudyReport, published
from toolkit.planning.artifacts import compiles_ahead
from toolkit.recipe.content import digest
from toolkit.recipe.recipe import Recipe
from toolkit.registry import price_text, rules_of

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
    call carries on where one was interrupted. An endpoint that was in service before is measured as it is, and stays.
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
    deployed = folder / "deployed"
    if deployed.exists() or not _is_there(recipe):
        report = _deploy_and_measure(recipe, measure, deployed, keep, _steps, progress)
    else:
        report = measure(_in_service(recipe, _steps, progress))
    if report.complete:
        results.unlink(missing_ok=True)  # or the next study would measure nothing
    report = replace(report, setting={**report.setting, **circumstances(recipe)})
    measured = StudyReport(report, setting_of(recipe))
    trackers.log(f"study {recipe.name}", dict(measured.setting), bench_metrics(report), measured.to_dict())
    return measured


def _deploy_and_measure(
    recipe: Recipe,
    measure: Callable[[Endpoint], BenchReport],
    deployed: Path,
    keep: bool,
    steps: Steps,
    progress: Progress,
) -> BenchReport:
    """Both arms are removed whatever happens; the file `deployed` tells who comes after a kill that they are ours."""
    if compiles_ahead(recipe) and rules_of(recipe.platform.name).parts.compilation:
        # A job goes on after Ctrl-C, and the next call waits for it: nothing of it is removed.
        compile_ahead(recipe, baseline=True, progress=progress)
    deployed.touch()
    try:
        return measure(steps.deploy(recipe, baseline=True, progress=progress))
    finally:
        if not keep:
            steps.destroy(recipe, platform=recipe.platform.name, progress=progress)
        deployed.unlink(missing_ok=True)


def _is_there(recipe: Recipe) -> bool:
    """Whether an arm serves, or is paused, that no study has deployed."""
    opened = find_platform(recipe.name, recipe, None, None)
    arms = (recipe.name, recipe.baseline().name)
    return opened is not None and bool(opened.endpoints(lambda name: name in arms, False).endpoints)


def _in_service(recipe: Recipe, steps: Steps, progress: Progress) -> Endpoint:
    """The endpoint as it serves, which is not the study's to change. Raises UsageError if it has no baseline."""
    endpoint = steps.connect(recipe).wait(progress=progress)
    if endpoint.twin is None:
        hint = f"Deploy that first: toolkit deploy {recipe.path} --baseline"
        raise UsageError(f"{recipe.name} is in service, without its baseline", hint=hint)
    return endpoint


def price(recipe: Recipe) -> str | None:
    """What a study costs while it runs, in words; None on a platform that bills nothing."""
    if recipe.price_per_hour == 0:
        return None
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
    chosen = [found[name] for name in published().recipes if name in found] or [*found.values()]
    here = [one for one in chosen if one.platform.name == (platform or chosen[0].platform.name)]
    if len(here) == 1:
        return here[0]
    on = f" on {hardware}" if hardware else ""
    if found:
        raise UsageError(f"{len(found)} recipes of {model}{on} could be meant", hint=f"Name one: {', '.join(found)}.")
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
