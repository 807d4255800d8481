"""Compare what shall be with what is: desired x observed -> plan. Pure; the same inputs give the same plan."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolkit.catalog import lookup
from toolkit.errors import PlatformError
from toolkit.planning.desired import ROLE_POLICY_NAME
from toolkit.planning.plan import Action, Plan, Verb
from toolkit.planning.resources import KINDS, Existing, Observed, Resource

UNDER_WAY = ("Creating", "Updating", "SystemUpdating", "RollingBack")
"""Statuses of an endpoint that will be in service, or failed, by itself."""


def make_plan(
    recipe: str, platform: str, endpoints: Sequence[str], desired: Sequence[Resource], observed: Observed
) -> Plan:
    """The plan that leads from `observed` to `desired` for these endpoints; with nothing desired, it removes them.

    What carries our tag for one of the endpoints, and is neither desired nor used by another endpoint, is removed last.
    Raises PlatformError when a resource of a desired name is not ours.
    """
    wanted = {(resource.kind, resource.name) for resource in desired}
    changes = [_action(resource, observed, platform) for resource in desired]
    superseded = [
        item
        for item in observed.existing
        if (item.kind, item.name) not in wanted and item.ours and set(item.endpoints) <= set(endpoints)
    ]
    deletes = [_delete(item, bool(desired)) for item in sorted(superseded, key=_removal_order)]
    facts = lookup.platform(platform)
    price = facts.price_per_hour * sum(resource.kind == "Endpoint" for resource in desired)
    return Plan(recipe, platform, tuple(endpoints), (*changes, *deletes), price, observed.fingerprint())


def _action(resource: Resource, observed: Observed, platform: str) -> Action:
    existing = observed.get(resource.kind, resource.name)
    verb, reason = _decide(resource, existing)
    seconds = lookup.platform(platform).endpoint_seconds if resource.kind == "Endpoint" and verb != "reuse" else 0
    return Action(resource.kind, resource.name, verb, reason, resource.request, seconds)


def _decide(resource: Resource, existing: Existing | None) -> tuple[Verb, str]:
    if existing is None:
        return "create", "does not exist"
    if not existing.ours:
        raise PlatformError(
            f"{resource.kind} {resource.name} exists and was not made by the toolkit",
            hint="Give the recipe another `name:`; what is not tagged as ours is never changed.",
        )
    if resource.kind == "Endpoint":
        return _decide_endpoint(resource, existing)
    if resource.kind == "Weights":
        return _decide_weights(resource, existing)
    if resource.kind == "RolePolicy" and not _same_policy(resource, existing):
        return "update", "the weights it may read have changed"
    return "reuse", "exists with this content" if resource.kind in ("Model", "EndpointConfig") else "exists"


def _same_policy(resource: Resource, existing: Existing) -> bool:
    """IAM gives a policy back with spaces and keys as it likes."""
    wanted, there = resource.request["PolicyDocument"], existing.state["PolicyDocument"]
    return bool(json.loads(wanted) == json.loads(there))


def _decide_endpoint(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    status, config = existing.state["EndpointStatus"], existing.state["EndpointConfigName"]
    if status not in ("InService", *UNDER_WAY):
        return "replace", f"is {status}"
    if config != resource.request["EndpointConfigName"]:
        return "update", f"runs {config}"
    return "reuse", "is in service with this configuration" if status == "InService" else f"is {status.lower()} already"


def _decide_weights(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    total, there = len(resource.request["Files"]), existing.state["Files"]
    if there < total:
        return "update", f"{there} of {total} files are in S3"
    return "reuse", "all files are in S3"


def _delete(item: Existing, superseded: bool) -> Action:
    reason = "no longer used" if superseded else "removes the endpoint"
    return Action(item.kind, item.name, "delete", reason, _delete_request(item))


def _delete_request(item: Existing) -> dict[str, str]:
    if item.kind in ("Endpoint", "EndpointConfig", "Model"):
        return {f"{item.kind}Name": item.name}
    if item.kind == "Role":
        return {"RoleName": item.name}
    if item.kind == "RolePolicy":
        return {"RoleName": item.name, "PolicyName": ROLE_POLICY_NAME}
    return {key: item.state[key] for key in ("Bucket", "Key", "Prefix") if key in item.state}


def _removal_order(item: Existing) -> tuple[int, str]:
    return -KINDS.index(item.kind), item.name
