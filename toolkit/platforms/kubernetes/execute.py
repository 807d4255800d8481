"""Execute one action of a plan; all functions are idempotent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes.client import ApiException

from toolkit.errors import PlatformError, WaitTimeout
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.kinds import is_ours, path
from toolkit.platforms.kubernetes.observe import apply, compared, conflicts
from toolkit.platforms.kubernetes.rules.kinds import KINDS, RULES_BY_KIND

# Pods get time to drain, and their owners are deleted after them.
_DELETE_SECONDS = 900.0
_PAUSE_SECONDS = 1.0


def put(cluster: Cluster, kind: str, namespace: str, manifest: Mapping[str, Any]) -> None:
    """Create or update it with the manifest. Refuses an object that others have created since the plan."""
    existing = cluster.find(path(kind, namespace, manifest["metadata"]["name"]))
    if existing and not RULES_BY_KIND[kind].may_be_foreign and not is_ours(existing):
        raise PlatformError(
            f"{kind} {manifest['metadata']['name']} was created by somebody else since the plan",
            hint="Give the recipe another `name:`, or remove that object.",
        )
    try:
        apply(cluster, kind, namespace, manifest, existing)
    except ApiException as error:
        if found := conflicts(error):
            managers = ", ".join(sorted({manager for manager, _ in found}))
            hint = "Run the same command again: the new plan names the fields."
            raise PlatformError(
                f"{kind} {manifest['metadata']['name']} was changed by {managers} since the plan", hint=hint
            ) from error
        raise


def delete(
    cluster: Cluster,
    kind: str,
    namespace: str,
    name: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Delete it and what it owns, and wait for that. Raises WaitTimeout after 15 minutes."""
    existing = cluster.find(path(kind, namespace, name))
    if existing and is_ours(existing):
        _delete(cluster, kind, namespace, existing, clock, sleep)


def replace(
    cluster: Cluster,
    kind: str,
    namespace: str,
    manifest: Mapping[str, Any],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Create it after waiting for an object that is being deleted, or after deleting one with immutable changes.

    If neither is necessary any more, because somebody changed it since the plan, update it. A job is always deleted: it
    runs once. Raises WaitTimeout.
    """
    wanted = Resource(kind, manifest["metadata"]["name"], manifest)
    existing = cluster.find(path(kind, namespace, wanted.name))
    if existing and existing["metadata"].get("deletionTimestamp"):
        wait_gone(cluster, kind, namespace, existing, clock, sleep)
    elif existing and (RULES_BY_KIND[kind].is_job or "Immutable" in compared(cluster, wanted, namespace, existing)):
        _delete(cluster, kind, namespace, existing, clock, sleep)
    put(cluster, kind, namespace, manifest)


def delete_autoscalers(
    cluster: Cluster,
    kind: str,
    namespace: str,
    manifest: Mapping[str, Any],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Delete our autoscalers that would conflict with the manifest: a second one, or with a fixed number of pods."""
    if not RULES_BY_KIND[kind].sets_replicas and not (kind == "Deployment" and "replicas" in manifest["spec"]):
        return
    for other in (rule for rule in KINDS if rule.sets_replicas and rule.kind != kind):
        try:
            delete(cluster, other.kind, namespace, manifest["metadata"]["name"], clock, sleep)
        except ApiException as error:
            if error.status != 403:  # a user who may not list them has created none
                raise


def wait_gone(
    cluster: Cluster,
    kind: str,
    namespace: str,
    existing: Mapping[str, Any],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Wait until exactly that object (uid) is deleted. Raises WaitTimeout after 15 minutes."""
    name, uid, deadline = existing["metadata"]["name"], existing["metadata"]["uid"], clock() + _DELETE_SECONDS
    url_path = path(kind, namespace, name)
    while (now := cluster.find(url_path)) and now["metadata"]["uid"] == uid:
        if clock() > deadline:
            finalizers = ", ".join(now["metadata"].get("finalizers") or ["none"])
            hint = f"See: kubectl describe {kind.lower()} {name}. Run the same command again to go on waiting."
            raise WaitTimeout(
                f"{kind} {name} is still being deleted after {_DELETE_SECONDS:.0f} s (finalizers: {finalizers})",
                hint=hint,
            )
        sleep(_PAUSE_SECONDS)


def _delete(
    cluster: Cluster,
    kind: str,
    namespace: str,
    existing: Mapping[str, Any],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Delete exactly that object (uid), not another one with its name."""
    # Foreground deletion: a Deployment exists until its pods are deleted.
    options = {"propagationPolicy": "Foreground", "preconditions": {"uid": existing["metadata"]["uid"]}}
    try:
        cluster.call("DELETE", path(kind, namespace, existing["metadata"]["name"]), options)
    except ApiException as error:
        if error.status not in (404, 409):  # deleted already, or replaced by another object of that name
            raise
    wait_gone(cluster, kind, namespace, existing, clock, sleep)
