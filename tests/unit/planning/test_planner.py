"""The order of a plan's actions, and what each of them sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.planning.kinds import Decision, Kind, PlanParts, Transition
from toolkit.planning.plan import Action
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Existing, Observed, Resource


class Place(Kind):
    """An endpoint, which is updated where it exists."""

    kind = "Place"

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        return Decision("update", "runs another") if existing else super().decide(resource, existing, observed)

    def serves(self, request: Mapping[str, Any]) -> str | None:
        return str(request["Runs"])


class Store(Kind):
    kind = "Store"


class Scale(Kind):
    kind = "Scale"


def without_scale(desired: Sequence[Resource], observed: Observed) -> Transition:
    gone = [Action("Scale", item.name, "delete", "is in the way", {}) for item in observed.existing[1:]]
    return Transition(tuple(desired), tuple(gone))


PARTS = PlanParts(transition=without_scale)


@dataclass(frozen=True)
class Rules:
    name: str = "toy"
    kinds: Sequence[Kind] = (Store(), Place(), Scale())
    parts: PlanParts = PARTS


DESIRED = (
    Resource("Store", "s", {}),
    Resource("Place", "e", {"Runs": "new", "Tags": {}}, update={"Runs": "new"}),
    Resource("Scale", "e", {}),
)


def planned(*existing: str) -> Sequence[Action]:
    there = Observed(tuple(Existing(kind, "e", True, ("e",), {}) for kind in existing))
    return make_plan("recipe", Rules(), ["e"], DESIRED, there).actions


def test_what_an_update_needs_removed_is_missing_for_the_update_alone() -> None:
    actions = planned("Place", "Scale")
    assert [(action.verb, action.kind) for action in actions] == [
        ("create", "Store"),
        ("delete", "Scale"),
        ("update", "Place"),
        ("create", "Scale"),
    ]


def test_what_is_superseded_is_deleted_unless_it_is_somebody_elses() -> None:
    there = Observed((Existing("Store", "ours", True, ("e",), {}), Existing("Store", "theirs", False, ("e",), {})))
    actions = make_plan("recipe", Rules(parts=PlanParts()), ["e"], DESIRED, there).actions
    assert [action.name for action in actions if action.verb == "delete"] == ["ours"]


def test_an_update_sends_its_own_request() -> None:
    assert [action.request for action in planned("Place") if action.kind == "Place"] == [{"Runs": "new"}]
    assert [action.request for action in planned() if action.kind == "Place"] == [{"Runs": "new", "Tags": {}}]
