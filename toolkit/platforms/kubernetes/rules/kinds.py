"""The kinds of objects that are made on a cluster, in one table: where the API has them, and how plans decide on them.

A new kind is a row here and a manifest in manifests.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from toolkit.errors import PlatformError
from toolkit.planning.kinds import Decision, Kind
from toolkit.planning.names import RECIPE_ANNOTATION
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.kubernetes.keys import OWN_LABELS

_MOST_PATHS = 3
_COMPONENT = OWN_LABELS[-1]


class ApiResource(NamedTuple):
    version: str
    plural: str
    namespaced: bool = True


@dataclass(frozen=True)
class ManifestKind(Kind):
    """One kind of object. It is decided by what the cluster says that applying the manifest would change.

    `is_base`: `serve` and `compile` both need it. `is_rare`: few endpoints have one, and few users may list them.
    `sets_replicas`: it sets an endpoint's number of pods, so that two of such kinds would work against each other.
    """

    kind: str = field()  # else the default of Kind stands in for it
    api: ApiResource
    is_base: bool = False
    is_rare: bool = False
    sets_replicas: bool = False

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        """By the server-side dry run in `existing`. Raises PlatformError where others have set a field of ours."""
        if existing is None:
            return Decision("create", "does not exist")
        state = existing.state
        if state.get("Deleting"):
            return Decision("replace", "is being deleted")
        if conflicts := state.get("Conflicts"):
            fields = ", ".join(f"{path} is set by {manager}" for manager, path in conflicts)
            names = existing.endpoints  # several use what is shared
            option = " --baseline" if names and all(name.endswith("-baseline") for name in names) else ""
            hint = (
                "Remove that field from the recipe, or undo their change; or take over all that the recipe says: "
                f"toolkit render RECIPE{option} | "
                "kubectl apply --server-side --force-conflicts --field-manager=toolkit -f -"
            )
            raise PlatformError(f"{resource.kind} {resource.name}: {fields}", hint=hint)
        if immutable := state.get("Immutable"):
            return Decision("replace", f"{_paths(immutable)} cannot be changed")
        if changes := state.get("Changes"):
            return Decision("update", f"changes {_paths(changes)}")
        return Decision(
            "reuse", "is up to date" if existing.ours else "exists and belongs to somebody else; is used as it is"
        )


class NamespaceKind(ManifestKind):
    """A namespace is used whoever made it, and never removed: others may have something in it."""

    may_be_foreign = True
    is_kept = True

    def kept_note(self, existing: Existing) -> str:
        return (
            f"namespace {existing.name}, which may contain other objects, such as your Secret. "
            f"Remove it with all that is in it: kubectl delete namespace {existing.name}"
        )


class WeightsKind(Kind):
    """A model that is uploaded to the bucket that pods mount. Its volume is made afterwards, which proves it whole."""

    kind = "Weights"
    is_kept = True

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        """Its address says its content, so that nothing has to be compared."""
        if existing is None:
            return Decision("create", "no volume has been made of it yet")
        return Decision("reuse", "was uploaded before its volume was made")

    def kept_note(self, existing: Existing) -> str:
        uri = existing.state["Uri"]
        return f"the model in {uri}, which other clusters may use. Remove it: aws s3 rm --recursive {uri}"


class JobKind(ManifestKind):
    """A Job that trains a head. Its name is that of its result, so that it is decided by how far it is."""

    is_job = True

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        """Started again where it has failed: what it has kept on its volume is taken up."""
        if existing is None:
            return Decision("create", "is not trained yet")
        if existing.state.get("Deleting"):
            return Decision("replace", "is being deleted")
        status, reason = existing.state["Status"], existing.state["Reason"]
        if status == "Completed":
            return Decision("reuse", "is already trained")
        if status == "Failed":
            return Decision("replace", f"failed: {reason}; goes on from its last checkpoint")
        return Decision("update", "is already training; waits for it")


class EndpointKind(ManifestKind):
    """A Deployment is the endpoint, or a LeaderWorkerSet where several nodes run a model together."""

    def serves(self, request: Mapping[str, Any]) -> str | None:
        return None if is_beside(request) else str(request["metadata"]["annotations"][RECIPE_ANNOTATION])


WEIGHTS = WeightsKind()
"""No object of a cluster: it comes first."""

KINDS: Sequence[ManifestKind] = (
    NamespaceKind("Namespace", ApiResource("v1", "namespaces", namespaced=False), is_base=True),
    ManifestKind("ServiceAccount", ApiResource("v1", "serviceaccounts"), is_base=True),
    ManifestKind("NetworkPolicy", ApiResource("networking.k8s.io/v1", "networkpolicies"), is_base=True),
    ManifestKind("ConfigMap", ApiResource("v1", "configmaps"), is_base=True),
    ManifestKind(
        "PersistentVolume", ApiResource("v1", "persistentvolumes", namespaced=False), is_base=True, is_rare=True
    ),
    ManifestKind("PersistentVolumeClaim", ApiResource("v1", "persistentvolumeclaims"), is_base=True),
    ManifestKind("ResourceClaimTemplate", ApiResource("resource.k8s.io/v1", "resourceclaimtemplates"), is_base=True),
    ManifestKind("Role", ApiResource("rbac.authorization.k8s.io/v1", "roles"), is_rare=True),
    ManifestKind("RoleBinding", ApiResource("rbac.authorization.k8s.io/v1", "rolebindings"), is_rare=True),
    ManifestKind("Service", ApiResource("v1", "services")),
    EndpointKind("Deployment", ApiResource("apps/v1", "deployments")),
    EndpointKind("LeaderWorkerSet", ApiResource("leaderworkerset.x-k8s.io/v1", "leaderworkersets"), is_rare=True),
    ManifestKind(
        "HorizontalPodAutoscaler", ApiResource("autoscaling/v2", "horizontalpodautoscalers"), sets_replicas=True
    ),
    ManifestKind("PodDisruptionBudget", ApiResource("policy/v1", "poddisruptionbudgets"), is_rare=True),
    ManifestKind("ScaledObject", ApiResource("keda.sh/v1alpha1", "scaledobjects"), is_rare=True, sets_replicas=True),
    ManifestKind("PodMonitor", ApiResource("monitoring.coreos.com/v1", "podmonitors"), is_rare=True),
    ManifestKind("PrometheusRule", ApiResource("monitoring.coreos.com/v1", "prometheusrules"), is_rare=True),
    ManifestKind("InferencePool", ApiResource("inference.networking.k8s.io/v1", "inferencepools"), is_rare=True),
    ManifestKind("HTTPRoute", ApiResource("gateway.networking.k8s.io/v1", "httproutes"), is_rare=True),
    JobKind("Job", ApiResource("batch/v1", "jobs")),
)
"""In the order in which they are made."""

ENDPOINTS: Sequence[str] = tuple(rule.kind for rule in KINDS if isinstance(rule, EndpointKind))
"""Kinds of what serves. An endpoint has one of them, but while it goes from one kind to the other."""

AUTOSCALERS: Sequence[str] = tuple(rule.kind for rule in KINDS if rule.sets_replicas)

KINDS_BY_NAME: Mapping[str, ManifestKind] = {rule.kind: rule for rule in KINDS}


def position(kind: str) -> int:
    return [WEIGHTS.kind, *KINDS_BY_NAME].index(kind)


def is_beside(manifest: Mapping[str, Any]) -> bool:
    """Whether a Deployment is none of an endpoint's models, but works for one: what picks its pods for a Gateway."""
    return _COMPONENT in (manifest["metadata"].get("labels") or {})


def serving(observed: Observed, name: str) -> Existing | None:
    """What serves an endpoint and is ours."""
    found = (observed.get(kind, name) for kind in ENDPOINTS)
    return next((item for item in found if item and item.ours), None)


def pods_of(endpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The template of the pods that answer for an endpoint."""
    spec: Mapping[str, Any] = endpoint["spec"]
    template: Mapping[str, Any] = spec["template"] if "template" in spec else _group(spec)["leaderTemplate"]
    return template


def nodes_of(endpoint: Mapping[str, Any]) -> int:
    """Pods of one copy of an endpoint's model."""
    return int(_group(endpoint["spec"]).get("size", 1))


def _group(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = spec.get("leaderWorkerTemplate", {})
    return found


def _paths(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    return ", ".join(paths[:_MOST_PATHS]) + more
