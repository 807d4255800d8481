"""Execute one action of a plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client import ApiException

from toolkit.apply.progress import Progress, Silent
from toolkit.errors import PlatformError, WaitTimeout
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.cluster import Cluster, SuppressStatus, is_ours, path
from toolkit.platforms.kubernetes.observe import apply, compared, conflicts
from toolkit.platforms.kubernetes.rules.kinds import ENDPOINTS, KINDS, KINDS_BY_NAME, pods_of

# On top of the time that pods get to drain: their owners are deleted after them.
_DELETE_SECONDS = 900.0
_PAUSE_SECONDS = 1.0
_FOREGROUND = "foregroundDeletion"
# A controller may write between our look and our write.
_ATTEMPTS = 10


@dataclass(frozen=True)
class Objects:
    """Changes objects of one namespace. Every method may be called again after it was interrupted."""

    cluster: Cluster
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    progress: Progress = field(default_factory=Silent)

    def put(self, kind: str, manifest: Mapping[str, Any]) -> None:
        """Create or update it with the manifest. Refuses an object that others have created since the plan.

        It is written to the version that was looked at: if somebody has changed it since, it is looked at again, and
        our lease too.
        """
        name = manifest["metadata"]["name"]
        for left in reversed(range(_ATTEMPTS)):
            existing = self._find(kind, name)
            if existing and not KINDS_BY_NAME[kind].may_be_foreign and not is_ours(existing):
                hint = "Give the recipe another `name:`, or remove that object."
                raise PlatformError(f"{kind} {name} was created by somebody else since the plan", hint=hint)
            try:
                apply(self.cluster, kind, manifest, existing)
                return
            except ApiException as error:
                if owners := conflicts(error):
                    managers = ", ".join(sorted({manager for manager, _ in owners}))
                    hint = "Run the same command again: the new plan names the fields."
                    raise PlatformError(f"{kind} {name} was changed by {managers} since the plan", hint=hint) from error
                if error.status != 409 or not left:
                    raise

    def delete(self, kind: str, name: str) -> None:
        """Delete it and what it owns, and wait for that. Raises WaitTimeout after 15 minutes."""
        existing = self._find(kind, name)
        if existing and is_ours(existing):
            self.remove(kind, existing)

    def replace(self, kind: str, manifest: Mapping[str, Any]) -> None:
        """Create it after waiting for an object that is being deleted, or after deleting one with immutable changes.

        If neither is necessary any more, because somebody changed it since the plan, update it. A job is always
        deleted: it runs once. Raises WaitTimeout.
        """
        wanted = Resource(kind, manifest["metadata"]["name"], manifest)
        existing = self._find(kind, wanted.name)
        if existing and existing["metadata"].get("deletionTimestamp"):
            self.wait_gone(kind, existing)
        elif existing and (KINDS_BY_NAME[kind].is_job or "Immutable" in compared(self.cluster, wanted, existing)):
            self.remove(kind, existing)
        self.put(kind, manifest)

    def delete_autoscalers(self, kind: str, manifest: Mapping[str, Any]) -> None:
        """Delete our autoscalers that conflict with the manifest: a second one, or with a fixed number of pods."""
        if not KINDS_BY_NAME[kind].sets_replicas and not (kind in ENDPOINTS and "replicas" in manifest["spec"]):
            return
        for other in (rule for rule in KINDS if rule.sets_replicas and rule.kind != kind):
            with SuppressStatus(403):  # a user who may not list them has created none
                self.delete(other.kind, manifest["metadata"]["name"])

    def wait_gone(self, kind: str, existing: Mapping[str, Any]) -> None:
        """Wait until exactly that object (uid) is deleted. Raises WaitTimeout 15 minutes after its pods should end."""
        name, uid = existing["metadata"]["name"], existing["metadata"]["uid"]
        patience = _DELETE_SECONDS + _grace(existing)
        deadline = self.clock() + patience
        while (now := self._find(kind, name)) and now["metadata"]["uid"] == uid:
            held = _held_by(now)
            if self.clock() > deadline:
                why = held or "what it owns, such as pods, is still there"
                hint = (
                    f"See: kubectl describe -n {self.cluster.namespace} {kind.lower()} {name}. The controller that a "
                    "finalizer names takes it off, and must run. Run the same command again to go on waiting."
                )
                raise WaitTimeout(f"{kind} {name} is still being deleted after {patience:.0f} s: {why}", hint=hint)
            if held:
                self.progress.update(f"waiting until {kind} {name} is deleted: {held}")
            self.sleep(_PAUSE_SECONDS)

    def remove(self, kind: str, existing: Mapping[str, Any], **options: Any) -> None:
        """Delete exactly that object (uid), not another one with its name, and wait for that. Raises WaitTimeout.

        As in `put`, it is the version that was looked at.
        """
        place, there = path(kind, self.cluster.namespace, existing["metadata"]["name"]), existing
        # Foreground deletion: a Deployment exists until its pods are deleted.
        how = options or {"propagationPolicy": "Foreground"}
        for _ in range(_ATTEMPTS):
            conditions = {name: there["metadata"][name] for name in ("uid", "resourceVersion")}
            with SuppressStatus(404, 409):  # deleted already, or changed, or replaced by another object of that name
                self.cluster.call("DELETE", place, {**how, "preconditions": conditions})
                break
            now = self.cluster.find(place)
            if now is None or now["metadata"]["uid"] != conditions["uid"]:
                break
            there = now
        self.wait_gone(kind, existing)

    def _find(self, kind: str, name: str) -> dict[str, Any] | None:
        return self.cluster.find(path(kind, self.cluster.namespace, name))


def _held_by(deleted: Mapping[str, Any]) -> str:
    """What a deletion waits for, besides what the object owns: finalizers, and what a namespace says of its content."""
    waits = [f"finalizer {name}" for name in deleted["metadata"].get("finalizers") or () if name != _FOREGROUND]
    of_namespace = (
        item for item in (deleted.get("status") or {}).get("conditions") or () if "Namespace" in item["type"]
    )
    waits += [item["message"] for item in of_namespace if item["status"] == "True"]
    return "; ".join(waits)


def _grace(existing: Mapping[str, Any]) -> float:
    """How long its pods may take to end, where it has pods."""
    spec = existing.get("spec") or {}
    pod = pods_of(existing)["spec"] if {"template", "leaderWorkerTemplate"} & spec.keys() else {}
    return float(pod.get("terminationGracePeriodSeconds") or 0)
