"""A kind of resource, and what the planner asks of a platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toolkit.planning.plan import Action, Changes, Plan, Verb
from toolkit.planning.resources import Existing, Observed, Resource


@dataclass(frozen=True)
class Decision:
    """What to do with a desired resource, and why.

    `name` and `request` stand in for the resource's own where they differ; `expected_seconds` is a typical duration, 0
    for a moment.
    """

    verb: Verb
    reason: str
    expected_seconds: int = 0
    name: str = ""
    request: Mapping[str, Any] | None = None


class Kind:
    """The default for a kind: created if it does not exist, never changed, deleted by name.

    Class attributes:
        kind: its name in plans.
        needs_service: it can only be made once the endpoint is in service.
        may_be_foreign: one that somebody else made is used as it is; of other kinds that is an error.
        is_kept: it outlives its endpoint on purpose, and `kept_note` says how to remove it.
        is_job: it runs once, and is waited for.
    """

    kind: str = ""
    needs_service: bool = False
    may_be_foreign: bool = False
    is_kept: bool = False
    is_job: bool = False

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        """What to do with the resource; `existing` is ours unless `may_be_foreign`. Raises PlatformError."""
        return Decision("create", "does not exist") if existing is None else Decision("reuse", "exists")

    def changes(
        self, resource: Resource, existing: Existing, desired: Sequence[Resource], observed: Observed
    ) -> Changes:
        """What an update of the resource changes, as far as it is known."""
        return Changes()

    def calls(self, action: Action, existing: Existing | None) -> tuple[Mapping[str, Any], ...]:
        """The API calls of the action that change something, as `service`, `operation` and `request`."""
        return ()

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        """The request that deletes it; `endpoint` is the endpoint being removed."""
        return {}

    def kept_note(self, existing: Existing) -> str:
        """For a kind that is kept: what it is, what it costs, and how to delete it. May be empty."""
        return ""

    @property
    def kept_as(self) -> str:
        """For a kind that is kept: what catalog/retention.json calls it. Empty where nothing is billed for it."""
        return ""

    def serves(self, request: Mapping[str, Any]) -> str | None:
        """For a kind that is an endpoint: the configuration to wait for. None for all others."""
        return None


@dataclass(frozen=True)
class Transition:
    """The desired resources, with the update requests that this change allows.

    `removed_first` are deletions that an endpoint's update needs; what they delete and is desired is created again
    afterwards. `notes` are for the plan.
    """

    desired: tuple[Resource, ...]
    removed_first: tuple[Action, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanParts:
    """What the planner asks of a platform that has it.

    Fields:
        require: raises PlatformError if a desired resource conflicts with an existing one.
        transition: what updates of endpoints need besides. Raises PlatformError if another's resource is in the way.
        kept_for_rollback: kind and name of all resources that the endpoints run or would roll back to, given the
            configurations that endpoints are about to run, by endpoint.
    """

    require: Callable[[Sequence[Resource], Observed], None] | None = None
    transition: Callable[[Sequence[Resource], Observed], Transition] | None = None
    kept_for_rollback: Callable[[Observed, Mapping[str, str]], set[tuple[str, str]]] | None = None


class PlanRules(Protocol):
    """What the planner asks of a platform."""

    @property
    def name(self) -> str:
        """The platform's name in recipes."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """In order of creation; deletion is in reverse order."""

    @property
    def parts(self) -> PlanParts:
        """What else it has."""


def in_order(resources: Sequence[Resource], kinds: Sequence[str]) -> tuple[Resource, ...]:
    """The resources in this order of their kinds, without duplicates."""
    once = {(item.kind, item.name): item for item in resources}
    return tuple(sorted(once.values(), key=lambda item: kinds.index(item.kind)))


def configs(plan: Plan, kinds: Sequence[Kind]) -> Mapping[str, str]:
    """The configuration that each endpoint of a plan will run, by endpoint name; empty for a removal."""
    by_name = {kind.kind: kind for kind in kinds}
    wanted = [action for action in plan.actions if action.verb != "delete"]
    served = [(action.name, by_name[action.kind].serves(action.request)) for action in wanted]
    return {name: config for name, config in served if config is not None}
