"""Compile for Trainium before an endpoint needs it."""

from __future__ import annotations

from toolkit.api.context import RecipeLike, arms_of, complete_recipe, open_for_plan, record_of
from toolkit.apply.executor import make
from toolkit.apply.progress import Progress, default_progress
from toolkit.apply.training import wait_completed
from toolkit.checks.run import require
from toolkit.planning.artifacts import require_compiles_ahead
from toolkit.planning.plan import Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Account, Observed, Observer
from toolkit.platforms import rules_of, session_of
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
    if any(action.verb == "create" for action in plan.changes):
        with opened.lease(loaded.name):
            make(plan, opened, record_of(loaded.name, progress), progress)
    jobs = {action.name: action.expected_seconds for action in plan.changes if action.kind == "TrainingJob"}
    if wait and jobs:
        with progress.stage("wait until compiled"):
            options = f"{f' --platform {platform}' if platform else ''}{' --baseline' if baseline else ''}"
            wait_completed(opened, jobs, progress, again=f"toolkit compile {loaded.path}{options}")
    return plan


def _compilable(recipe: RecipeLike, platform: str | None) -> Recipe:
    loaded = load(recipe).with_platform(platform)
    require(loaded)
    require_compiles_ahead(loaded)
    rules_of(loaded.platform.name).require_compilable(loaded)
    return loaded


def _plan(recipe: Recipe, account: Account, platform: Observer | None, baseline: bool) -> Plan:
    """What the recipe's endpoint has, and compiling does not need, stays as it is."""
    rules = rules_of(recipe.platform.name)
    resources = rules.desired_compilation(arms_of(recipe, baseline), account)
    wanted = {(item.kind, item.name) for item in resources}
    observed = platform.observe(resources, [recipe.name]) if platform else Observed()
    return make_plan(
        str(recipe.path.resolve()),
        rules,
        [recipe.name],
        resources,
        Observed(tuple(item for item in observed.existing if (item.kind, item.name) in wanted)),
        account=account,
        price_per_hour=None,
        notes=tuple(rules.compilation_notes(recipe)),
    )
