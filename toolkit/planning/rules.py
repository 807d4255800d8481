"""What a plan has to know of a kind of resource: one rule object for each kind, from the platform that has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toolkit.planning.plan import Verb
from toolkit.planning.resources import Existing, Observed, Resource


@dataclass(frozen=True)
class Decision:
    """What becomes of a desired resource, and why.

    `name` and `request` stand in for the resource's own where they differ; `expected_seconds` is a typical duration, 0
    for a moment.
    """

    verb: Verb
    reason: str
    expected_seconds: int = 0
    name: str = ""
    request: Mapping[str, Any] | None = None


class KindRule:
    """The default for a kind: it is made where it does not exist, never changed, and removed by its name alone.

    Class attributes:
        kind: its name in plans.
        needs_service: it can only be made once the endpoint is in service.
        may_be_foreign: one that somebody else made is used as it is; of other kinds that is an error.
        is_kept: it outlives its endpoint on purpose, and `kept_note` says how to remove it.
    """

    kind: str = ""
    needs_service: bool = False
    may_be_foreign: bool = False
    is_kept: bool = False

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        """What becomes of the resource; `existing` is ours unless `may_be_foreign`. Raises PlatformError."""
        return Decision("create", "does not exist") if existing is None else Decision("reuse", "exists")

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        """The request that removes it; `endpoint` is the one that goes."""
        return {}

    def kept_note(self, existing: Existing) -> str:
        """For a kind that is kept: what it is, what keeping it costs, and how to remove it; empty: nothing to say."""
        return ""

    def serves(self, request: Mapping[str, Any]) -> str | None:
        """For a kind that is an endpoint: what it shall run, to wait for; None for every other kind."""
        return None


class PlanRules(Protocol):
    """What the planner asks of a platform."""

    @property
    def name(self) -> str:
        """The platform's name in recipes."""

    @property
    def kinds(self) -> Sequence[KindRule]:
        """In the order in which they are made; they are removed in the reverse order."""

    def require(self, desired: Sequence[Resource], observed: Observed) -> None:
        """Raise PlatformError where what is desired cannot be made beside what exists."""

    def kept_for_rollback(self, observed: Observed, updated: Sequence[str]) -> set[tuple[str, str]]:
        """Kind and name of all that the endpoints run, or would go back to; `updated` are those that change now."""


def in_order(resources: Sequence[Resource], rules: PlanRules) -> tuple[Resource, ...]:
    """The resources in the order in which they are made; what stands twice only once."""
    order = [rule.kind for rule in rules.kinds]
    once = {(item.kind, item.name): item for item in resources}
    return tuple(sorted(once.values(), key=lambda item: order.index(item.kind)))
