"""What a plan asks of an endpoint on several nodes: its own names, and what a change to or from one node leaves.

Names are LeaderWorkerSet's own (kubernetes-sigs/lws, api/leaderworkerset/v1): labels, and what pods are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.errors import PlatformError
from toolkit.planning.kinds import Transition
from toolkit.planning.plan import Action
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.kubernetes.rules.kinds import AUTOSCALERS, KINDS_BY_NAME

_PREFIX = "leaderworkerset.sigs.k8s.io"
SET_NAME, GROUP_KEY, REVISION = f"{_PREFIX}/name", f"{_PREFIX}/group-key", f"{_PREFIX}/template-revision-hash"
"""Labels of pods: their set, a digest of their group, and one of their version, which also the leaders' StatefulSet
has.
"""

LEADER_ADDRESS, WORKER_INDEX = "LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX"
"""Variables that stand before all others in its containers."""

OLDEST, OLDEST_THAT_SURGES = "0.6", "0.9"
"""Its versions: with the second variable, and with updates that begin though no group may be missing (lws, #778)."""

READY = "Ready"
"""In the state of an endpoint that is there on one node and on several: whether pods of it are ready."""

OVERTAKEN = "Overtaken"
"""In the state of such a one: whether it is in service although the other was applied after it."""

GROUP_SERVICES = "GroupServices"
"""In the state of another endpoint on several nodes."""


def group_services(group: Mapping[str, Any], autoscaler: Mapping[str, Any] | None) -> set[str]:
    """The names of a LeaderWorkerSet's own Services, one for each group: `NAME-0` and so on, as many as there may be.

    `autoscaler` is the one of KEDA, or the cluster's own.
    """
    spec, limits = group["spec"], autoscaler["spec"] if autoscaler else {}
    surge = spec.get("rolloutStrategy", {}).get("rollingUpdateConfiguration", {}).get("maxSurge", 0)
    most = max(spec.get("replicas", 1), limits.get("maxReplicaCount", 1), limits.get("maxReplicas", 1))
    return {f"{group['metadata']['name']}-{number}" for number in range(most + surge)}


def wanted_services(desired: Sequence[Resource]) -> dict[str, set[str]]:
    """Those of each LeaderWorkerSet."""
    autoscalers = {item.name: item.request for item in desired if item.kind in AUTOSCALERS}
    groups = (item for item in desired if item.kind == "LeaderWorkerSet")
    return {item.name: group_services(item.request, autoscalers.get(item.name)) for item in groups}


def require_free_names(desired: Sequence[Resource], observed: Observed) -> None:
    """Raise PlatformError for an endpoint that would have the Service by which workers find their leader, or lose it:
    LeaderWorkerSet makes none where there is one.
    """
    there = {(item.kind, item.name) for item in observed.existing}
    wanted = {(item.kind, item.name) for item in desired}
    services = {name for kind, name in there | wanted if kind == "Service"}
    others = {item.name: set(item.state[GROUP_SERVICES]) for item in observed.existing if GROUP_SERVICES in item.state}
    for group, own in sorted({**others, **wanted_services(desired)}.items()):
        for service in sorted(own & services):
            if {("Service", service), ("LeaderWorkerSet", group)} & wanted - there:
                message = f"endpoints {group}, on several nodes, and {service} cannot be in one namespace"
                why = f"the nodes of {group} find each other by a Service {service} of its own"
                raise PlatformError(f"{message}: {why}", hint="Give the recipe another `name:`, or another namespace.")


def transition(desired: Sequence[Resource], observed: Observed) -> Transition:
    """What a change to several nodes made, or back, is removed at once where it was given up before it served, or
    where what is wanted serves still, as it is wanted.

    Else the endpoint would be that until the end, as it is the newer of both. Nothing that serves is removed before
    what is wanted does.
    """
    removed = []
    for wanted in desired:
        existing = observed.get(wanted.kind, wanted.name)
        if existing is None or not existing.state.get(READY):
            continue
        serves_as_wanted = existing.state[OVERTAKEN] and _is_as(wanted, existing, observed)
        others = (item for item in observed.existing if item.name == wanted.name and item.kind != wanted.kind)
        for other in others:
            if READY in other.state and (serves_as_wanted or not other.state[READY]):
                removed.append(Action(other.kind, other.name, "delete", "of a change that was taken back", {}))
    return Transition(tuple(desired), tuple(removed))


def _is_as(wanted: Resource, existing: Existing, observed: Observed) -> bool:
    return KINDS_BY_NAME[wanted.kind].decide(wanted, existing, observed).verb == "reuse"
