"""What a plan asks of an endpoint on several nodes: its own names, and what a change to or from one node leaves."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.errors import PlatformError
from toolkit.planning.kinds import Transition
from toolkit.planning.plan import Action
from toolkit.planning.resources import Observed, Resource
from toolkit.platforms.kubernetes.rules.kinds import ENDPOINTS

CHANGED = "Changed"
"""In the state of an endpoint: by it the newer of two is the greater."""


def group_of(service: str) -> str:
    """The set of groups that has a Service of that name for one of them; empty where none would."""
    name, _, number = service.rpartition("-")
    return name if number.isdecimal() else ""


def require_free_names(desired: Sequence[Resource], observed: Observed) -> None:
    """Raise PlatformError for an endpoint that would have the Service by which workers find their leader, or lose it:
    LeaderWorkerSet makes `NAME-0` for the first group, and none where there is one.
    """
    there = {(item.kind, item.name) for item in observed.existing}
    wanted = {(item.kind, item.name) for item in desired}
    for kind, service in sorted(there | wanted):
        group = group_of(service)
        clash = {(kind, service), ("LeaderWorkerSet", group)}
        if kind == "Service" and clash <= there | wanted and clash & wanted - there:
            message = f"endpoints {group}, on several nodes, and {service} cannot be in one namespace"
            why = f"the nodes of {group} find each other by a Service {service} of its own"
            raise PlatformError(f"{message}: {why}", hint="Give the recipe another `name:`, or another namespace.")


def transition(desired: Sequence[Resource], observed: Observed) -> Transition:
    """A change to several nodes, or back, that was given up: what it made is removed before anything is waited for.

    Until then the endpoint is the newer of both. What is older serves until the newer one does, and is removed last.
    """
    removed = []
    for name in {item.name for item in desired if item.kind in ENDPOINTS}:
        there = [item for kind in ENDPOINTS if (item := observed.get(kind, name)) and item.ours]
        wanted = {item.kind for item in desired if item.name == name}
        if len(there) > 1 and (newest := max(there, key=lambda item: item.state[CHANGED])).kind not in wanted:
            removed.append(Action(newest.kind, name, "delete", "of a change that was given up", {}))
    return Transition(tuple(desired), tuple(removed))
