"""Remove an endpoint with all that was made for it, or only what costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit import registry
from toolkit.api.context import find_platform, recipe_file, recipe_or_none, record_on
from toolkit.api.listing import unknown_endpoint
from toolkit.apply.executor import leased, make, remove
from toolkit.apply.progress import Progress, default_progress
from toolkit.errors import ApplyError, UsageError
from toolkit.loading import RecipeLike
from toolkit.planning.plan import Action, Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Observed
from toolkit.platforms.rules import Platform
from toolkit.registry import endpoint_name, rules_of

if TYPE_CHECKING:
    from toolkit.platforms.rules import AwsSession


def any_action(_: Action) -> bool:
    """Whatever is planned."""
    return True


def destroy(
    name: RecipeLike,
    *,
    platform: str | None = None,
    progress: Progress | None = None,
    session: AwsSession | None = None,
    _may_go: Callable[[Action], bool] = any_action,
) -> Plan:
    """Remove an endpoint, its baseline and all that was made for them; returns the plan that was applied.

    If nothing of the recipe exists, the plan has no actions. Its `not_removed` says what is kept on purpose.
    `session` is an AWS session to use instead of the environment's.
    Raises ApplyError, and EndpointNotFound for a name that no platform has.
    """
    recipe = recipe_or_none(name)
    endpoint = recipe.name if recipe else str(name)
    opened = find_platform(endpoint, recipe, platform, None, session)
    hosts = [endpoint_name(recipe)] if recipe else []
    names = tuple(dict.fromkeys((endpoint, f"{endpoint}-baseline", *hosts)))
    if opened is None:
        done = make_plan(recipe_file(recipe), rules_of(platform or registry.platforms()[0]), names, (), Observed())
    else:
        done = destroy_on(opened, recipe_file(recipe), names, progress or default_progress(), _may_go)
    if not (done.actions or done.not_removed or recipe):
        raise unknown_endpoint(endpoint, is_wanted=False)
    return done


def pause(
    name: RecipeLike,
    *,
    platform: str | None = None,
    progress: Progress | None = None,
    session: AwsSession | None = None,
) -> Plan:
    """Remove the parts of an endpoint and its baseline that cost money, until `deploy`; returns the plan applied.

    On AWS these are the endpoint, its scaling and its alarms; on a cluster, the pods. Weights, models and
    configurations are kept. If it is paused already, the plan has no actions. `session` is an AWS session to use
    instead of the environment's. Raises ApplyError, UsageError for an inference component, and EndpointNotFound.
    """
    recipe = recipe_or_none(name)
    endpoint = recipe.name if recipe else str(name)
    opened = find_platform(endpoint, recipe, platform, None, session)
    if opened is None or not opened.endpoints(lambda each: each == endpoint, False).endpoints:
        raise unknown_endpoint(endpoint, is_wanted=False)
    plan_of, names = rules_of(opened.name).parts.pause, (endpoint, f"{endpoint}-baseline")
    if plan_of is None:
        raise UsageError(f"platform `{opened.name}` cannot pause", hint=f"Remove it: toolkit destroy {endpoint}")
    progress = progress or default_progress()
    with leased(opened, endpoint) as held:
        planned = plan_of(recipe_file(recipe), names, opened.observe((), names), time.time())
        record = record_on(opened, endpoint, progress)
        make(planned, rules_of(opened.name).kinds, held, record, progress)
        remove(planned, held, record, progress)
    return planned


def destroy_on(
    platform: Platform,
    recipe: str,
    endpoints: Sequence[str],
    progress: Progress,
    may_go: Callable[[Action], bool] = any_action,
) -> Plan:
    """Remove what was made for the endpoints from a platform; the first is the one that a lease is held of.

    What `may_go` spares stays, and is told.
    """
    planned = _spare(_removal(recipe, platform, endpoints), may_go)
    if planned.actions:
        with leased(platform, endpoints[0]) as held:
            planned = _spare(
                _removal(recipe, platform, endpoints), may_go
            )  # what exists once nobody else changes it, bucket included
            remove(planned, held, record_on(platform, endpoints[0], progress), progress)
        rest = _spare(_plan(recipe, platform, endpoints, platform.observe((), endpoints)), may_go).actions
        if still := ", ".join(f"{action.kind} {action.name}" for action in rest if action.kind != "Bucket"):
            raise ApplyError(f"still there: {still}", hint="Run the same command again.")
        planned = _without_buckets_that_stay(planned, rest)
    for line in planned.not_removed if may_go is not any_action else ():
        progress.say(f"not removed: {line}")
    return planned


def _spare(plan: Plan, may_go: Callable[[Action], bool]) -> Plan:
    actions = tuple(action for action in plan.actions if may_go(action))
    stay = [f"{action.kind} {action.name}, which was not made now" for action in plan.actions if action not in actions]
    return replace(plan, actions=actions, not_removed=(*plan.not_removed, *stay))


def _without_buckets_that_stay(planned: Plan, rest: Sequence[Action]) -> Plan:
    """A bucket that is not empty cannot go: another's lease is in it, captured requests, or what others put there."""
    buckets = [action.name for action in rest if action.kind == "Bucket"]
    notes = [f"bucket {name}, in which there is more. Look: aws s3 ls --recursive s3://{name}" for name in buckets]
    actions = tuple(action for action in planned.actions if action.kind != "Bucket" or action.name not in buckets)
    return replace(planned, actions=actions, not_removed=(*planned.not_removed, *notes))


def _removal(recipe: str, platform: Platform, endpoints: Sequence[str]) -> Plan:
    observed = platform.observe((), endpoints)
    plan = _plan(recipe, platform, endpoints, observed)
    host = observed.get("Endpoint", endpoints[0])
    # The bucket belongs to whatever remains.
    if host and host.ours and all(action.kind == "Bucket" for action in plan.actions):
        users = ", ".join(host.endpoints)
        hint = "Destroy those: the last takes the endpoint along."
        raise UsageError(f"{host.name} is the endpoint of the inference components {users}", hint=hint)
    return plan


def _plan(recipe: str, platform: Platform, endpoints: Sequence[str], observed: Observed) -> Plan:
    return make_plan(recipe, rules_of(platform.name), endpoints, (), observed)
