"""Compare what shall be with what is: desired x observed -> plan. Pure; the same inputs give the same plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.catalog import lookup
from toolkit.errors import PlatformError, UsageError
from toolkit.planning.names import LEASES_PREFIX
from toolkit.planning.observability import differs
from toolkit.planning.plan import Action, Plan, Verb
from toolkit.planning.resources import KINDS, Account, Existing, Kind, Observed, Resource

UNDER_WAY = ("Creating", "Updating", "SystemUpdating", "RollingBack")
"""Statuses of an endpoint that will be in service, or failed, by itself."""

_WATCHING: tuple[Kind, ...] = ("LogGroup", "MetricFilter", "Alarm", "Dashboard", "ScalableTarget", "ScalingPolicy")
_LEFT_ON_PURPOSE: tuple[Kind, ...] = ("LogGroup", "Repository", "Image")

# A base of 10 GB that is copied once, at some 60 MB/s; an estimate. Where it is in the registry already: seconds.
_BUILD_SECONDS = 180

_TOLD: tuple[Kind, ...] = ("LogGroup", "Repository")


def make_plan(
    recipe: str,
    platform: str,
    endpoints: Sequence[str],
    desired: Sequence[Resource],
    observed: Observed,
    *,
    account: Account | None = None,
    price_per_hour: float | None = 0.0,
    price_before: float | None = 0.0,
    notes: Sequence[str] = (),
) -> Plan:
    """The plan that leads from `observed` to `desired` for these endpoints; with nothing desired, it removes them.

    What carries our tag for one of the endpoints, and is neither desired nor used by another endpoint, is removed last;
    but what an endpoint ran before its update stays for `toolkit rollback`. Prices are US dollars per hour of what
    shall be and of what is, None where they are not known. Raises PlatformError when a resource of a desired name is
    not ours.
    """
    _require_hosts(desired, observed)
    wanted = {(resource.kind, resource.name) for resource in desired}
    changes = [_action(resource, observed, platform) for resource in desired]
    updated = {action.name for action in changes if action.kind == "Endpoint" and action.verb == "update"}
    kept = wanted | _for_rollback(observed, updated) if desired else wanted
    superseded = [
        item
        for item in observed.existing
        if (item.kind, item.name) not in kept and item.ours and set(item.endpoints) <= set(endpoints)
    ]
    deletes = [
        _delete(item, bool(desired), endpoints[0])
        for item in sorted(superseded, key=_removal_order)
        if item.kind not in _LEFT_ON_PURPOSE
    ]
    return Plan(
        recipe,
        platform,
        tuple(endpoints),
        (*changes, *deletes),
        price_per_hour,
        observed.fingerprint(),
        price_before,
        account.id if account else "",
        account.region if account else "",
        () if platform == "local" else tuple(_left(item) for item in superseded if item.kind in _TOLD),
        tuple(notes),
    )


def _require_hosts(desired: Sequence[Resource], observed: Observed) -> None:
    """Raise PlatformError when a component would take over an endpoint that serves models of its own."""
    for item in desired:
        host = item.request["EndpointName"] if item.kind == "InferenceComponent" else None
        endpoint = observed.get("Endpoint", host) if host and host != item.name else None
        config = observed.get("EndpointConfig", endpoint.state["Running"]) if endpoint else None
        if config and config.state["Models"]:
            message = f"Endpoint {host} serves a model of its own, and no inference components"
            raise PlatformError(message, hint="Name another one as `platform.inference_component.endpoint`.")


def rollback_plan(recipe: str, platform: str, endpoint: str, observed: Observed) -> Plan:
    """The plan that brings an endpoint back to the EndpointConfig of before its last update. Raises UsageError."""
    existing = observed.get("Endpoint", endpoint)
    if existing is None or not existing.ours:
        raise UsageError(f"there is no endpoint {endpoint} that the toolkit made", hint="See: toolkit status")
    running, previous = existing.state["Running"], existing.state.get("Previous")
    if previous in (None, running):
        why = "its last update was rolled back already" if previous else "it was never updated"
        raise UsageError(f"{endpoint} runs {running}, and there is nothing to go back to: {why}")
    if observed.get("EndpointConfig", previous) is None:
        raise UsageError(f"{endpoint} ran {previous} before, which is gone", hint="Deploy the recipe that you want.")
    # All at once, and without alarms: what serves now is what one wants to get away from.
    request = {"EndpointName": endpoint, "EndpointConfigName": previous, "RetainAllVariantProperties": True}
    seconds = lookup.platform(platform).endpoint_seconds
    action = Action("Endpoint", endpoint, "update", f"goes back from {running}", request, seconds)
    return Plan(recipe, platform, (endpoint,), (action,), None, observed.fingerprint())


def _action(resource: Resource, observed: Observed, platform: str) -> Action:
    existing = observed.get(resource.kind, resource.name)
    verb, reason = _decide(resource, existing)
    seconds = {"Endpoint": lookup.platform(platform).endpoint_seconds, "Image": _BUILD_SECONDS}.get(resource.kind, 0)
    request = resource.update if verb == "update" and resource.update else resource.request
    return Action(resource.kind, resource.name, verb, reason, request, 0 if verb == "reuse" else seconds)


def _decide(resource: Resource, existing: Existing | None) -> tuple[Verb, str]:
    if existing is None:
        return "create", _missing(resource)
    if not existing.ours:
        raise PlatformError(
            f"{resource.kind} {resource.name} exists and was not made by the toolkit",
            hint="Give the recipe another `name:`; what is not tagged as ours is never changed.",
        )
    decide = {
        "Endpoint": _decide_endpoint,
        "InferenceComponent": _decide_component,
        "Weights": _decide_weights,
        "RolePolicy": _decide_policy,
        **dict.fromkeys(_WATCHING, _decide_watching),
    }.get(resource.kind)
    if decide:
        return decide(resource, existing)
    return "reuse", "exists with this content" if resource.kind in ("Model", "EndpointConfig") else "exists"


def _missing(resource: Resource) -> str:
    if resource.kind != "Image":
        return "does not exist"
    request = resource.request
    # As build.py chooses, but for what this machine has.
    builder = request["Builder"] or ("docker, buildah or codebuild" if request["NeedsRun"] else "append")
    return f"is not built yet: {builder} does it on {request['Base']}"


def _decide_policy(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    """IAM gives a policy back with spaces and keys as it likes."""
    wanted, there = resource.request["PolicyDocument"], existing.state["PolicyDocument"]
    same = json.loads(wanted) == json.loads(there)
    return ("reuse", "exists") if same else ("update", "what it may do has changed")


def _decide_watching(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    return ("update", "has changed") if differs(resource, existing) else ("reuse", "exists")


def _decide_endpoint(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    status, config = existing.state["EndpointStatus"], existing.state["EndpointConfigName"]
    if status not in ("InService", *UNDER_WAY):
        return "replace", f"is {status}"
    if config != resource.request["EndpointConfigName"]:
        others = sorted(set(existing.endpoints) - {resource.name})
        shared = f", and is shared: {', '.join(others)}" if others else ""
        return "update", f"runs {config}{shared}"
    return "reuse", "is in service with this configuration" if status == "InService" else f"is {status.lower()} already"


def _decide_component(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    status, model, host = (existing.state[key] for key in ("Status", "ModelName", "EndpointName"))
    if host != resource.request["EndpointName"]:
        return "replace", f"lives on {host}"
    if status not in ("InService", *UNDER_WAY):
        return "replace", f"is {status}"
    if model != resource.request["Specification"]["ModelName"]:
        return "update", f"runs {model}"
    if status != "InService":
        return "update", f"is {status.lower()} already"  # which has to be waited for
    return "reuse", "is in service with this model"


def _decide_weights(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    if "Hub" in resource.request:
        complete = existing.state.get("Complete", False)
        return ("reuse", "all files are in S3") if complete else ("update", "only part of the files is in S3")
    total, there = len(resource.request["Files"]), existing.state["Files"]
    if there < total:
        return "update", f"{there} of {total} files are in S3"
    return "reuse", "all files are in S3"


def _for_rollback(observed: Observed, updated: set[str]) -> set[tuple[str, str]]:
    """What endpoints run, and would go back to: configurations, their models, the models' weights.

    An endpoint that is `updated` goes back to what it runs now.
    """
    names = {
        item.state.get(key)
        for item in observed.existing
        if item.kind == "Endpoint"
        for key in ("Running", "EndpointConfigName" if item.name in updated else "Previous")
    }
    configs = [item for item in observed.existing if item.kind == "EndpointConfig" and item.name in names]
    models = {name for config in configs for name in config.state.get("Models", ())}
    prefixes = {
        prefix
        for item in observed.existing
        if item.kind == "Model" and item.name in models
        for prefix in item.state.get("Prefixes", ())
    }
    weights = {item.name for item in observed.existing if item.state.get("Prefix") in prefixes}
    uses = {item.name for item in observed.existing if item.kind == "WeightsUse" and item.name.split("/")[0] in weights}
    return {
        *(("EndpointConfig", config.name) for config in configs),
        *(("Model", name) for name in models),
        *(("Weights", name) for name in weights),
        *(("WeightsUse", name) for name in uses),
    }


def _delete(item: Existing, superseded: bool, endpoint: str) -> Action:
    reason = "no longer used" if superseded else "removes the endpoint"
    return Action(item.kind, item.name, "delete", reason, _delete_request(item, endpoint))


def _delete_request(item: Existing, endpoint: str) -> Mapping[str, Any]:
    if item.kind == "Bucket":
        return {"Bucket": item.name, "Lease": f"{LEASES_PREFIX}{endpoint}"}
    if item.kind in ("Endpoint", "EndpointConfig", "Model", "InferenceComponent"):
        return {f"{item.kind}Name": item.name}
    if item.kind == "Role":
        return {"RoleName": item.name}
    if item.kind == "RolePolicy":
        role, _, policy = item.name.partition("/")
        return {"RoleName": role, "PolicyName": policy}
    if item.kind in _WATCHING:
        return {}
    return {key: item.state[key] for key in ("Bucket", "Key", "Prefix", "Mark") if key in item.state}


def _removal_order(item: Existing) -> tuple[int, str]:
    return -KINDS.index(item.kind), item.name


def _left(item: Existing) -> str:
    """One line: what it is, what keeping it costs, and how to remove it. Prices: us-east-1, unverified."""
    if item.kind == "LogGroup":
        days = item.state.get("RetentionInDays")
        kept = f"kept for {days} days" if days else "kept for ever"
        return (
            f"log group {item.name}: {kept}, about $0.03 per GB and month (us-east-1, unverified). "
            f"Remove it: aws logs delete-log-group --log-group-name {item.name}"
        )
    return (
        f"images in {item.name}: about $0.10 per GB and month (us-east-1, unverified). "
        f"Remove them: aws ecr delete-repository --force --repository-name {item.name}"
    )
