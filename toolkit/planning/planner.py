"""Compare desired with existing resources to make a plan. Pure: the same inputs give the same plan."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from toolkit.errors import PlatformError
from toolkit.planning.kinds import Kind, PlanRules, Transition
from toolkit.planning.plan import Action, Changes, Plan
from toolkit.planning.resources import Account, Existing, Observed, Resource


def make_plan(
    recipe: str,
    rules: PlanRules,
    endpoints: Sequence[str],
    desired: Sequence[Resource],
    observed: Observed,
    *,
    account: Account | None = None,
    price_per_hour: float | None = 0.0,
    price_before: float | None = 0.0,
    notes: Sequence[str] = (),
) -> Plan:
    """The plan that leads from `observed` to `desired` for these endpoints; with nothing desired, it removes them.

    `rules` are the platform's. What carries our tag for one of the endpoints, and is neither desired nor used by
    another endpoint, is removed last; but what an endpoint ran before its update stays for `toolkit rollback`. Prices
    are US dollars per hour of what shall be and of what is, None where they are not known. Raises PlatformError when a
    resource of a desired name is not ours.
    """
    parts = rules.parts
    if parts.require:
        parts.require(desired, observed)
    of_kind = {kind.kind: kind for kind in rules.kinds}
    transition = parts.transition(desired, observed) if parts.transition else Transition(tuple(desired))
    remaining = _without(observed, transition.removed_first)
    try:
        changes = [
            _action(resource, transition.desired, remaining, of_kind[resource.kind]) for resource in transition.desired
        ]
    except PlatformError as error:
        error.hint = error.hint.replace("RECIPE", shlex.quote(recipe) if recipe else "RECIPE")
        raise
    order = list(of_kind)
    superseded = sorted(
        _superseded(rules, endpoints, desired, remaining, changes),
        key=lambda item: (-order.index(item.kind), item.name),
    )
    why = "no longer used" if desired else "removes the endpoint"
    deletes = [
        Action(item.kind, item.name, "delete", why, of_kind[item.kind].delete_request(item, endpoints[0]))
        for item in superseded
        if not of_kind[item.kind].is_kept
    ]
    actions = (*_with_removals(changes, transition.removed_first, of_kind), *deletes)
    kept = [of_kind[item.kind].kept_note(item) for item in superseded if of_kind[item.kind].is_kept]
    return Plan(
        recipe,
        rules.name,
        tuple(endpoints),
        tuple(
            replace(action, calls=of_kind[action.kind].calls(action, observed.get(action.kind, action.name)))
            for action in actions
        ),
        price_per_hour,
        observed.fingerprint(),
        price_before,
        account.id if account else "",
        account.location if account else "",
        (*(note for note in kept if note), *observed.unseen),
        (*notes, *transition.notes),
    )


def _without(observed: Observed, removed: Sequence[Action]) -> Observed:
    """What exists after these actions."""
    gone = {(action.kind, action.name) for action in removed}
    return replace(observed, existing=tuple(item for item in observed.existing if (item.kind, item.name) not in gone))


def _with_removals(
    changes: Sequence[Action], removed: Sequence[Action], of_kind: Mapping[str, Kind]
) -> Sequence[Action]:
    """The removals stand just before the first endpoint, so that what they remove is missing for a short time only."""
    if not removed:
        return changes
    gone = {(action.kind, action.name) for action in removed}
    again = [
        replace(action, reason="again, after the update") if (action.kind, action.name) in gone else action
        for action in changes
    ]
    first = next(i for i, action in enumerate(changes) if of_kind[action.kind].serves(action.request) is not None)
    return [*again[:first], *removed, *again[first:]]


def _action(resource: Resource, desired: Sequence[Resource], observed: Observed, rule: Kind) -> Action:
    existing = observed.get(resource.kind, resource.name)
    if existing and not existing.ours and not rule.may_be_foreign:
        hint = "Give the recipe another `name:`. The toolkit only changes resources with its own tag."
        raise PlatformError(f"{resource.kind} {resource.name} exists and was not created by the toolkit", hint=hint)
    decision = rule.decide(resource, existing, observed)
    request = decision.request
    if request is None:
        request = resource.update if decision.verb == "update" and resource.update else resource.request
    name = decision.name or resource.name
    is_update = existing and decision.verb in ("update", "replace")
    changes = rule.changes(resource, existing, desired, observed) if existing and is_update else Changes()
    reason = f"{changes.words}; {decision.reason}" if changes.words else decision.reason
    return Action(resource.kind, name, decision.verb, reason, request, decision.expected_seconds, changes.items)


def _superseded(
    rules: PlanRules,
    endpoints: Sequence[str],
    desired: Sequence[Resource],
    observed: Observed,
    changes: Sequence[Action],
) -> list[Existing]:
    """Our existing resources that only these endpoints use and that are no longer desired."""
    of_kind = {kind.kind: kind for kind in rules.kinds}
    kept = {(resource.kind, resource.name) for resource in desired}
    if desired and rules.parts.kept_for_rollback:
        updated = [action for action in changes if action.verb == "update"]
        served = {action.name: of_kind[action.kind].serves(action.request) for action in updated}
        kept |= rules.parts.kept_for_rollback(observed, {name: config for name, config in served.items() if config})
    return [
        item
        for item in observed.existing
        if (item.kind, item.name) not in kept and item.ours and set(item.endpoints) <= set(endpoints)
    ]
