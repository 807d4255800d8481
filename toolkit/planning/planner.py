"""Compare what shall be with what is: desired x observed -> plan. Pure; the same inputs give the same plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.catalog import lookup
from toolkit.errors import PlatformError, UsageError
from toolkit.images.reference import parse
from toolkit.planning.compilation import decide_artifacts, job_action
from toolkit.planning.names import LEASES_PREFIX
from toolkit.planning.observability import differs
from toolkit.planning.plan import Action, Plan, Verb
from toolkit.planning.resources import KINDS, Account, Existing, Kind, Observed, Resource

UNDER_WAY = ("Creating", "Updating", "SystemUpdating", "RollingBack")
"""Statuses of an endpoint that will be in service, or failed, by itself."""

_WATCHING: tuple[Kind, ...] = ("LogGroup", "MetricFilter", "Alarm", "Dashboard", "ScalableTarget", "ScalingPolicy")
_LEFT_ON_PURPOSE: tuple[Kind, ...] = ("LogGroup", "Repository", "Image", "Artifacts", "Namespace")
_MANIFESTS: tuple[Kind, ...] = KINDS[KINDS.index("Namespace") :]
_MOST_PATHS = 3

# How fast a base is copied from one registry to another, and what is done besides: estimates, not measured on AWS.
_COPY_BYTES_PER_SECOND = 60e6
_LAYER_SECONDS = 10
# Stands for a base of unknown size.
_SOME_BYTES = 10e9

_TOLD: tuple[Kind, ...] = ("LogGroup", "Repository", "Artifacts", "Namespace")


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
        account.location if account else "",
        () if platform == "local" else (*(_left(item) for item in superseded if item.kind in _TOLD), *observed.unseen),
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
    if resource.kind == "TrainingJob":
        return job_action(resource, existing)
    verb, reason = _decide(resource, existing)
    seconds = lookup.platform(platform).endpoint_seconds if resource.kind == "Endpoint" else 0
    if resource.kind == "Image" and verb == "create":
        reason, seconds = _build(resource.request, observed)
    request = resource.update if verb == "update" and resource.update else resource.request
    return Action(resource.kind, resource.name, verb, reason, request, 0 if verb == "reuse" else seconds)


def _decide(resource: Resource, existing: Existing | None) -> tuple[Verb, str]:
    if existing is None:
        return "create", "does not exist"
    if not existing.ours and resource.kind != "Namespace":  # somebody else's may be lived in
        raise PlatformError(
            f"{resource.kind} {resource.name} exists and was not made by the toolkit",
            hint="Give the recipe another `name:`; what is not tagged as ours is never changed.",
        )
    decide = {
        "Endpoint": _decide_endpoint,
        "InferenceComponent": _decide_component,
        "Artifacts": decide_artifacts,
        "Weights": _decide_weights,
        "RolePolicy": _decide_policy,
        **dict.fromkeys(_WATCHING, _decide_watching),
        **dict.fromkeys(_MANIFESTS, _decide_manifest),
    }.get(resource.kind)
    if decide:
        return decide(resource, existing)
    return "reuse", "exists with this content" if resource.kind in ("Model", "EndpointConfig") else "exists"


def _build(request: Mapping[str, Any], observed: Observed) -> tuple[str, int]:
    """What builds an image, on which base, and how much of that has to be copied; the seconds that this takes."""
    # As build.py chooses, but for what this machine has.
    builder = request["Builder"] or ("docker, buildah or codebuild" if request["NeedsRun"] else "append")
    base, there = request["Base"], observed.get("Image", request["Base"])
    size = request.get("BaseBytes") or (there.state["Bytes"] if there else None)
    gigabytes = f"{size / 1e9:.1f} GB" if size else "size unknown"
    seconds = _LAYER_SECONDS + round((size or _SOME_BYTES) / _COPY_BYTES_PER_SECOND)
    # All others fetch the base to where they are.
    if builder == "append" and parse(base).registry == parse(request["Image"]).registry:
        seconds, work = _LAYER_SECONDS, "which is in this registry already: seconds, if its layers may be mounted"
    else:
        example = "" if size else f" if it has {_SOME_BYTES / 1e9:.0f} GB"
        rate = f"{_COPY_BYTES_PER_SECOND / 1e6:.0f} MB/s"
        work = f"to copy but for layers that are there: about {max(1, round(seconds / 60))} min{example}, at {rate}"
    return f"is not built yet: {builder} does it on {base} ({gigabytes}), {work}", seconds


def _decide_policy(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    """IAM gives a policy back with spaces and keys as it likes."""
    wanted, there = resource.request["PolicyDocument"], existing.state["PolicyDocument"]
    same = json.loads(wanted) == json.loads(there)
    return ("reuse", "exists") if same else ("update", "what it may do has changed")


def _decide_watching(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    return ("update", "has changed") if differs(resource, existing) else ("reuse", "exists")


def _decide_manifest(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    """By what the cluster said that applying it would do. Raises PlatformError where others want it otherwise."""
    state = existing.state
    if state.get("Deleting"):
        return "replace", "is being deleted"
    if conflicts := state.get("Conflicts"):
        wanted = ", ".join(f"{path} is set by {manager}" for manager, path in conflicts)
        hint = (
            "Leave that field to them in the recipe, or undo their change; or take the field over: kubectl apply "
            "--server-side --force-conflicts --field-manager=toolkit -f MANIFEST."
        )
        raise PlatformError(f"{resource.kind} {resource.name}: {wanted}", hint=hint)
    if immutable := state.get("Immutable"):
        return "replace", f"{_paths(immutable)} cannot be changed"
    if changes := state.get("Changes"):
        return "update", f"changes {_paths(changes)}"
    return "reuse", "exists as it shall be" if existing.ours else "exists, and is somebody else's"


def _paths(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    return ", ".join(paths[:_MOST_PATHS]) + more


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
    """What endpoints run, and would go back to: configurations, their models, the models' weights and compiled code.

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
    stored = {(item.kind, item.name) for item in observed.existing if item.state.get("Prefix") in prefixes}
    weights = {name for _, name in stored}
    uses = {item.name for item in observed.existing if item.kind == "WeightsUse" and item.name.split("/")[0] in weights}
    return {
        *(("EndpointConfig", config.name) for config in configs),
        *(("Model", name) for name in models),
        *stored,
        *(("WeightsUse", name) for name in uses),
    }


def _delete(item: Existing, superseded: bool, endpoint: str) -> Action:
    reason = "no longer used" if superseded else "removes the endpoint"
    return Action(item.kind, item.name, "delete", reason, _delete_request(item, endpoint))


def _delete_request(item: Existing, endpoint: str) -> Mapping[str, Any]:
    if item.kind == "Bucket":
        return {"Bucket": item.name, "Lease": f"{LEASES_PREFIX}{endpoint}"}
    if item.kind in ("Endpoint", "EndpointConfig", "Model", "InferenceComponent", "TrainingJob"):
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
    if item.kind == "Artifacts":
        place = f"s3://{item.state['Bucket']}/{item.state['Prefix']}"
        return (
            f"compiled code in {place}, so that deploying again need not compile, about $0.023 per GB and month "
            f"(us-east-1, unverified). Remove it: aws s3 rm --recursive {place}"
        )
    if item.kind == "Namespace":
        return (
            f"namespace {item.name}, in which others may have something, such as a Secret of yours. "
            f"Remove it with all that is in it: kubectl delete namespace {item.name}"
        )
    return (
        f"images in {item.name}: none with a tag expires, about $0.10 per GB and month (us-east-1, unverified). "
        f"Remove them: aws ecr delete-repository --force --repository-name {item.name}"
    )
