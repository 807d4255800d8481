"""Jobs that run once, those that train a head and those that compile: planned, started, and waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.api.context import arms_of, complete_recipe, open_for_plan, recipe_file, record_on
from toolkit.api.outside import open_trainer
from toolkit.apply.executor import leased, make
from toolkit.apply.progress import Progress, default_progress
from toolkit.apply.training import wait_completed
from toolkit.checks.run import require
from toolkit.errors import UsageError
from toolkit.loading import RecipeLike, load
from toolkit.planning.artifacts import require_compiles_ahead
from toolkit.planning.plan import Action, Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Account, Observed, Observer, Resource
from toolkit.platforms.parts import Compilation
from toolkit.recipe.recipe import Recipe
from toolkit.registry import rules_of

if TYPE_CHECKING:
    from toolkit.platforms.rules import TrainingPlatform


_STARTS = ("create", "replace")


def job_plan(
    recipe: Recipe,
    resources: Sequence[Resource],
    account: Account,
    platform: Observer | None,
    *,
    price_per_hour: float | None,
    notes: Sequence[str],
) -> Plan:
    """The plan for these resources. What the recipe's endpoint has, and the job does not need, stays as it is."""
    wanted = {(item.kind, item.name) for item in resources}
    observed = platform.observe(resources, [recipe.name]) if platform else Observed()
    return make_plan(
        recipe_file(recipe),
        rules_of(recipe.platform.name),
        [recipe.name],
        resources,
        Observed(tuple(item for item in observed.existing if (item.kind, item.name) in wanted)),
        account=account,
        price_per_hour=price_per_hour,
        notes=notes,
    )


def jobs_of(plan: Plan) -> list[Action]:
    """The plan's jobs, also those that are done already."""
    kinds = {rule.kind for rule in rules_of(plan.platform).kinds if rule.is_job}
    return [action for action in plan.actions if action.kind in kinds]


def starts_job(plan: Plan) -> bool:
    """Whether the plan starts a job, which may be billed."""
    return any(action.verb in _STARTS for action in jobs_of(plan))


def start_jobs(plan: Plan, platform: TrainingPlatform, progress: Progress) -> None:
    """Start the plan's jobs, with what they need. Does nothing if all of it exists. Raises ApplyError."""
    if any(action.verb in _STARTS for action in plan.changes):
        name = plan.endpoints[0]
        with leased(platform, name) as held:
            record = record_on(platform, name, progress)
            make(plan, rules_of(platform.name).kinds, held, record, progress)


def wait_for(plan: Plan, platform: TrainingPlatform, progress: Progress, *, stage: str, again: str, done: str) -> None:
    """Return when all jobs of the plan are completed. `again` and `done` as in `wait_completed`."""
    jobs = {action.name: action.expected_seconds for action in jobs_of(plan) if action.verb != "reuse"}
    if jobs:
        with progress.stage(stage):
            wait_completed(platform, jobs, progress, again=again, done=done)


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
    """Compile ahead, in a training job on the recipe's instance type; returns the plan that was applied.

    If it is compiled already, nothing is done; if a job is compiling it, that job is waited for. `baseline` also
    compiles the same endpoint without speculation. Raises UsageError for a recipe that does not compile ahead,
    RecipeError, ApplyError or TrainingJobFailed.
    """
    progress = progress or default_progress()
    with progress.stage("check"):
        loaded = _compilable(recipe, platform)
    opened = open_trainer(loaded)
    with progress.stage("plan"):
        plan = _plan(*complete_recipe(loaded, opened), opened, baseline)
    start_jobs(plan, opened, progress)
    if wait:
        options = f"{f' --platform {platform}' if platform else ''}{' --baseline' if baseline else ''}"
        again = f"toolkit compile {loaded.path}{options}"
        wait_for(plan, opened, progress, stage="wait until compiled", again=again, done="has compiled")
    return plan


def _compilable(recipe: RecipeLike, platform: str | None) -> Recipe:
    loaded = load(recipe, platform)
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
    raise UsageError(f"platform `{rules.name}` compiles nothing beforehand", hint=hint)


def _plan(recipe: Recipe, account: Account, platform: Observer | None, baseline: bool) -> Plan:
    compilation = compilation_of(recipe)
    resources = compilation.resources(arms_of(recipe, baseline), account)
    notes = tuple(compilation.notes(recipe))
    return job_plan(recipe, resources, account, platform, price_per_hour=None, notes=notes)
