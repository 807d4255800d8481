"""Compile for Trainium before an endpoint needs it."""

from __future__ import annotations

from toolkit.api import jobs
from toolkit.api.context import RecipeLike, arms_of, complete_recipe, open_for_plan
from toolkit.apply.progress import Progress, default_progress
from toolkit.checks.run import require
from toolkit.errors import UsageError
from toolkit.planning.artifacts import require_compiles_ahead
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Observer
from toolkit.platforms import rules_of, session_of
from toolkit.platforms.parts import Compilation
from toolkit.recipe.resolve import Recipe, load


def compile_plan(recipe: RecipeLike, *, platform: str | None = None, baseline: bool = False) -> Plan:
    """What `compile` would do. Reads only; without AWS credentials for an account that holds nothing."""
    loaded = _compilable(recipe, platform)
    opened = open_for_plan(loaded)
    return _plan(*complete_recipe(loaded, opened), opened, baseline)


def compile(
    recipe: RecipeLike,
    *,
    platform: str | None = None,
    baseline: bool = False,
    wait: bool = True,
    progress: Progress | None = None,
) -> Plan:
    """Compile for Trainium, in a training job on the recipe's instance type; returns the plan that was applied.

    Done already, it does nothing; under way already, it waits for that. `baseline` compiles for its twin without
    speculation too. Raises UsageError for a recipe that does not compile ahead, RecipeError, ApplyError or
    TrainingJobFailed.
    """
    progress = progress or default_progress()
    with progress.stage("check"):
        loaded = _compilable(recipe, platform)
    session = session_of(loaded.platform.name)
    opened = session.trainer(session.scope(loaded))
    with progress.stage("plan"):
        plan = _plan(*complete_recipe(loaded, opened), opened, baseline)
    jobs.start(plan, opened, progress)
    if wait:
        options = f"{f' --platform {platform}' if platform else ''}{' --baseline' if baseline else ''}"
        again = f"toolkit compile {loaded.path}{options}"
        jobs.wait(plan, opened, progress, stage="wait until compiled", again=again, done="has compiled")
    return plan


def _compilable(recipe: RecipeLike, platform: str | None) -> Recipe:
    loaded = load(recipe).with_platform(platform)
    require(loaded)
    require_compiles_ahead(loaded)
    compilation_of(loaded)
    return loaded


def compilation_of(recipe: Recipe) -> Compilation:
    """How its platform compiles. Raises UsageError where `toolkit compile` cannot."""
    rules = rules_of(recipe.platform.name)
    if rules.parts.compilation:
        return rules.parts.compilation
    if rules.facts.why_not_compiled:
        run = rules.facts.compile_command.replace("RECIPE", str(recipe.path))
        hint = f"Run: {run}. For a SageMaker endpoint, add: --platform sagemaker"
        raise UsageError(rules.facts.why_not_compiled, hint=hint)
    hint = "Write `platform: {name: sagemaker}`."
    raise UsageError(f"platform `{rules.name}` cannot compile for Trainium", hint=hint)


def _plan(recipe: Recipe, account: Account, platform: Observer | None, baseline: bool) -> Plan:
    compilation = compilation_of(recipe)
    resources = compilation.resources(arms_of(recipe, baseline), account)
    notes = tuple(compilation.notes(recipe))
    return jobs.job_plan(recipe, resources, account, platform, price_per_hour=None, notes=notes)
