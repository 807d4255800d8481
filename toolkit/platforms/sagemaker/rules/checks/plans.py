"""Does the account have the training plans that a recipe names, and are they for what it wants of them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from toolkit.findings import Finding
from toolkit.platforms.sagemaker.rules.checks.capacity import PlanUse, plan_uses
from toolkit.recipe.recipe import Recipe

_CODE = "account.training-plan"
_FOR = {"endpoint": "endpoints", "training-job": "training jobs"}


@dataclass(frozen=True)
class BoughtPlan:
    """A training plan of the account: its status, what it is for, and how many machines of each type."""

    status: str
    targets: tuple[str, ...]
    machines: Mapping[str, int]


def check_plans(recipe: Recipe, plans: Mapping[str, BoughtPlan | None]) -> Iterator[Finding]:
    """Findings on plans by ARN; None is one that does not exist, and of one that was not read nothing is said."""
    for use in plan_uses(recipe):
        if use.arn not in plans:
            continue
        name, plan = use.arn.rpartition("/")[2], plans[use.arn]
        if message := _problem(use, plan):
            hint = f"Name another. Yours: aws sagemaker list-training-plans --region {use.arn.split(':')[3]}"
            yield Finding(_CODE, f"training plan {name} {message}", use.path, hint=hint)


def _problem(use: PlanUse, plan: BoughtPlan | None) -> str:
    """What is wrong with it; empty if nothing is. A job may wait for a plan that has not begun, an endpoint may not."""
    if plan is None:
        return "does not exist"
    if use.target not in plan.targets:
        bought = " and ".join(_FOR.get(target, target) for target in plan.targets)
        return f"is for {bought}, not for {_FOR[use.target]}"
    if use.instance_type not in plan.machines:
        return f"is of {', '.join(plan.machines)}, not of {use.instance_type}"
    if plan.status in ("Expired", "Failed") or (use.target == "endpoint" and plan.status != "Active"):
        return f"is {plan.status}"
    if plan.machines[use.instance_type] < use.count:
        return f"has {plan.machines[use.instance_type]} {use.instance_type}, and {use.count} are wanted"
    return ""
