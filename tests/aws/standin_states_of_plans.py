"""Refusals by training plans: whether a plan is there, of the type, and for that use; see standin_states.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from standin_states import Scope, World, state


class _Use(NamedTuple):
    """A plan that a request names, on what types, for what."""

    plan: str
    types: list[str]
    target: str


def _uses(scope: Scope) -> Iterator[_Use]:
    """Of a job's ResourceConfig, or of a variant."""
    preferences = scope.get("InstancePreferences", [])
    pools = scope.get("InstancePools", [])
    own = [scope["InstanceType"]] if "InstanceType" in scope else []
    if "TrainingPlanArn" in scope:
        yield _Use(scope["TrainingPlanArn"], own or [item["InstanceType"] for item in preferences], "training-job")
    for item in preferences:
        for arn in item.get("TrainingPlanArns", []):
            yield _Use(arn, [item["InstanceType"]], "training-job")
    if arn := scope.get("CapacityReservationConfig", {}).get("MlReservationArn"):
        yield _Use(arn, own or [item["InstanceType"] for item in pools], "endpoint")


def _types(plan: Scope) -> set[str]:
    return {item["InstanceType"] for item in plan["ReservedCapacitySummaries"]}


def _known(scope: Scope, world: World) -> Iterator[tuple[_Use, dict[str, Any]]]:
    plans = world.account.plans.bought
    return ((use, plans[use.plan]) for use in _uses(scope) if use.plan in plans)


@state
def plan_that_is_nowhere(scope: Scope, world: World) -> bool:
    return any(use.plan not in world.account.plans.bought for use in _uses(scope))


@state
def plan_of_another_type(scope: Scope, world: World) -> bool:
    return any(not _types(plan).issuperset(use.types) for use, plan in _known(scope, world))


@state
def plan_for_something_else(scope: Scope, world: World) -> bool:
    return any(use.target not in plan["TargetResources"] for use, plan in _known(scope, world))


@state
def two_plans(scope: Scope, world: World) -> bool:
    variants = scope.get("ProductionVariants", [])
    return len({use.plan for variant in variants for use in _uses(variant)}) > 1


@state
def plan_that_is_not_active(scope: Scope, world: World) -> bool:
    variants = world.config(scope).get("ProductionVariants", [])
    return any(plan["Status"] != "Active" for variant in variants for _, plan in _known(variant, world))
