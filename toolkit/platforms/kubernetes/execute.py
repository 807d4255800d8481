"""Carry out one action of a plan; each call may be made again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes.client import ApiException

from toolkit.errors import PlatformError, WaitTimeout
from toolkit.planning.resources import Kind
from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.kinds import is_ours, path
from toolkit.platforms.kubernetes.observe import apply, conflicts

# Pods get time to drain, and the objects that own them go after them.
_DELETE_SECONDS = 900.0
_PAUSE_SECONDS = 1.0


def put(cluster: Cluster, kind: Kind, namespace: str, manifest: Mapping[str, Any]) -> None:
    """Make it, or bring it to what the manifest says. What others made since the plan is refused."""
    there = cluster.find(path(kind, namespace, manifest["metadata"]["name"]))
    if there and kind != "Namespace" and not is_ours(there):
        raise PlatformError(
            f"{kind} {manifest['metadata']['name']} was made by somebody else since the plan",
            hint="Give the recipe another `name:`, or remove that object.",
        )
    try:
        apply(cluster, kind, namespace, manifest)
    except ApiException as error:
        if found := conflicts(error):
            managers = ", ".join(sorted({manager for manager, _ in found}))
            hint = "The same command plans again, and says which fields."
            raise PlatformError(
                f"{kind} {manifest['metadata']['name']} was changed by {managers} since the plan", hint=hint
            ) from error
        raise


def delete(
    cluster: Cluster,
    kind: Kind,
    namespace: str,
    name: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Remove it and what it owns, and return when it is gone. Raises WaitTimeout after 15 minutes."""
    place, deadline = path(kind, namespace, name), clock() + _DELETE_SECONDS
    there = cluster.find(place)
    if there is None or not is_ours(there):
        return
    uid = there["metadata"]["uid"]
    try:
        # In the foreground: a Deployment is gone when its pods are.
        cluster.call("DELETE", place, {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}})
    except ApiException as error:
        if error.status not in (404, 409):  # gone already, or another of that name is in its place
            raise
    while (there := cluster.find(place)) and there["metadata"]["uid"] == uid:
        if clock() > deadline:
            finalizers = ", ".join(there["metadata"].get("finalizers") or ["none"])
            hint = f"See: kubectl describe {kind.lower()} {name}. The same command goes on waiting."
            raise WaitTimeout(
                f"{kind} {name} is still being deleted after {_DELETE_SECONDS:.0f} s (finalizers: {finalizers})",
                hint=hint,
            )
        sleep(_PAUSE_SECONDS)
