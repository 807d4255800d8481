"""Rollback of a Deployment: its earlier versions, what must be kept for them, and the plan.

The cluster's own history is the truth: the ReplicaSets that the deployment controller keeps (revisionHistoryLimit).
`kubectl rollout undo` goes back by them, and so do we.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.errors import UsageError
from toolkit.planning.names import RECIPE_ANNOTATION, without_digest
from toolkit.planning.plan import Action, Plan
from toolkit.planning.resources import Existing, Observed
from toolkit.platforms.kubernetes.rules.kinds import ENDPOINTS, serving
from toolkit.platforms.kubernetes.rules.storage import volume_name

HISTORY = "History"
"""In the state of a Deployment: `version` of each ReplicaSet, the newest first; None where they may not be listed."""

_HASH = "pod-template-hash"
_TAGS = "toolkit/tags"
# Of `kubectl rollout restart`, which makes a version without a change.
_RESTARTED = "kubectl.kubernetes.io/restartedAt"
VERSIONED = ("ConfigMap", "ResourceClaimTemplate", "PersistentVolumeClaim", "PersistentVolume")
"""Kinds whose names have their content, so that each version of an endpoint has its own."""

_ONLY_PODS = (
    "Only pods go back. Autoscaling, rights and network rules stay as they are: for those, deploy the older recipe"
)


def version(replica_set: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier version was: annotations of the toolkit's, and the pods as the Deployment had them."""
    annotations = replica_set["metadata"].get("annotations") or {}
    template = replica_set["spec"]["template"]
    labels = {key: value for key, value in template["metadata"]["labels"].items() if key != _HASH}
    notes = {key: value for key, value in (template["metadata"].get("annotations") or {}).items() if key != _RESTARTED}
    metadata = {"labels": labels, **({"annotations": notes} if notes else {})}
    return {
        "Annotations": {key: annotations[key] for key in (RECIPE_ANNOTATION, _TAGS) if key in annotations},
        "Template": {**template, "metadata": metadata},
    }


def kept_for_rollback(observed: Observed, _updated: Mapping[str, str]) -> set[tuple[str, str]]:
    """What earlier versions of the Deployments use, so that going back to them finds it, also once one is updated."""
    return {used for item in observed.existing if item.kind in ENDPOINTS for used in _uses(item, observed)}


def rollback_plan(recipe: str, platform: str, name: str, observed: Observed) -> Plan:
    """The plan that returns a Deployment to the version before its last update. Raises UsageError."""
    existing = serving(observed, name)
    if existing is None:
        raise UsageError(f"the toolkit has created no endpoint {name}", hint="See: toolkit status")
    if existing.kind == "LeaderWorkerSet":
        why = "a LeaderWorkerSet keeps no earlier version once it is updated"
        raise UsageError(f"{name} cannot be rolled back: {why}", hint="Deploy the older recipe.")
    history = existing.state.get(HISTORY)
    if history is None:
        message = f"you may not list the ReplicaSets of {name}, which are its history"
        raise UsageError(message, hint="Ask for the verb `list` on `replicasets`, or deploy the older recipe.")
    previous = next((item for item in history if item["Template"] != history[0]["Template"]), None)
    if previous is None:
        raise UsageError(f"{name} cannot be rolled back: it was never updated", hint="Deploy the older recipe.")
    if RECIPE_ANNOTATION not in previous["Annotations"]:
        hint = f"Deploy the older recipe, or let the cluster go back: kubectl rollout undo deployment/{name}"
        raise UsageError(f"it is not known which recipe {name} ran before its last update", hint=hint)
    if gone := _gone(name, previous["Template"]["spec"], observed):
        hint = "Deploy the older recipe, which makes it anew: its pods could not start without it."
        raise UsageError(
            f"{name} cannot be rolled back: {gone}, which the version before needs, is not there", hint=hint
        )
    # The Deployment as it is, with the earlier version's pods. The number of pods stays (observe.apply).
    now = existing.state["Manifest"]
    metadata = {**now["metadata"], "annotations": previous["Annotations"]}
    request = {**now, "metadata": metadata, "spec": {**now["spec"], "template": previous["Template"]}}
    action = Action("Deployment", name, "update", "rolls back to the version before its last update", request)
    return Plan(recipe, platform, (name,), (action,), None, observed.fingerprint(), notes=(_ONLY_PODS,))


def _gone(endpoint: str, pod: Mapping[str, Any], observed: Observed) -> str:
    """What of its own such a pod needs and somebody has removed; empty where all is there.

    Volumes are left out, as one may not be allowed to see them: their claims are looked for.
    """
    ours = (
        (kind, name)
        for kind, name in references(pod)
        if kind in ("ConfigMap", "ResourceClaimTemplate", "PersistentVolumeClaim")
        and name.startswith(f"{endpoint}-")
        and without_digest(name) != name
    )
    return ", ".join(f"{kind} {name}" for kind, name in ours if observed.get(kind, name) is None)


def _uses(deployment: Existing, observed: Observed) -> Iterator[tuple[str, str]]:
    history: Sequence[Mapping[str, Any]] | None = deployment.state.get(HISTORY)
    if history is None:  # unknown, so everything that may be in it
        mine = (item for item in observed.existing if deployment.name in item.endpoints and item.kind in VERSIONED)
        yield from ((item.kind, item.name) for item in mine)
        return
    for item in history:
        yield from references(item["Template"]["spec"])


def references(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and name of the objects that a pod cannot start without."""
    for claim in pod.get("resourceClaims") or ():
        if template := claim.get("resourceClaimTemplateName"):
            yield "ResourceClaimTemplate", template
    for volume in pod.get("volumes") or ():
        if source := volume.get("configMap"):
            yield "ConfigMap", source["name"]
        if source := volume.get("persistentVolumeClaim"):
            yield "PersistentVolumeClaim", source["claimName"]
            yield "PersistentVolume", volume_name(source["claimName"])
            yield "Weights", volume_name(source["claimName"])
