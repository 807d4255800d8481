"""Jobs that run once, those that train a head and those that compile: planned, started, and waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.api.context import record_of
from toolkit.apply.executor import make
from toolkit.apply.progress import Progress
from toolkit.apply.training import wait_completed
from toolkit.planning.plan import Action, Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Account, Observed, Observer, Resource
from toolkit.platforms import rules_of
from toolkit.recipe.recipe import Recipe

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
        str(recipe.path.resolve()),
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


def start(plan: Plan, platform: TrainingPlatform, progress: Progress) -> None:
    """Start the plan's jobs, with what they need. Does nothing if all of it exists. Raises ApplyError."""
    if any(action.verb in _STARTS for action in plan.changes):
        name = plan.endpoints[0]
        with platform.lease(name):
            make(plan, platform, record_of(name, progress), progress)


def wait(plan: Plan, platform: TrainingPlatform, progress: Progress, *, stage: str, again: str, done: str) -> None:
    """Return when all jobs of the plan are completed. `again` and `done` as in `wait_completed`."""
    jobs = {action.name: action.expected_seconds for action in jobs_of(plan) if action.verb != "reuse"}
    if jobs:
        with progress.stage(stage):
            wait_completed(platform, jobs, progress, again=again, done=done)
