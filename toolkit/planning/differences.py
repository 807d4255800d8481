"""Where a saved plan differs from the one that its recipe and what runs lead to now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.planning.plan import Action, Plan

_LONGEST = 120
_NOTHING = object()
_TAG = ", request.Tags."


def differences(saved: Plan, derived: Plan) -> list[str]:
    """Each difference in what the plans do, and where: `kind name, key: saved … / derived …`.

    Reasons, notes and prices do nothing, and are not compared.
    """
    lines = [*_differ([], _scope(saved), _scope(derived))]
    for title, ours, theirs in _pairs(saved, derived):
        lines += _differ([title], _done(ours), _done(theirs))
    return sorted(lines, key=lambda line: _TAG in line)  # each resource has a tag that changes with the recipe


def same_scope(saved: Plan, derived: Plan) -> bool:
    """Whether both are for the same endpoints on the same platform, in the same account and region."""
    return _scope(saved) == _scope(derived)


def _scope(plan: Plan) -> dict[str, str]:
    names = ", ".join(plan.endpoints)
    return {"platform": plan.platform, "account": plan.account, "region": plan.region, "endpoints": names}


def _pairs(saved: Plan, derived: Plan) -> Iterator[tuple[str, Action | None, Action | None]]:
    """Each action with its counterpart: of that kind and name, else another of that kind, whose name has changed."""
    rest = list(saved.actions)
    names = {(action.kind, action.name) for action in derived.actions}
    for action in derived.actions:
        key = (action.kind, action.name)
        same = [item for item in rest if (item.kind, item.name) == key]
        renamed = [item for item in rest if item.kind == action.kind and (item.kind, item.name) not in names]
        counterpart = next(iter([*same, *renamed]), None)
        if counterpart:
            rest.remove(counterpart)
        yield f"{action.kind} {action.name}", counterpart, action
    for action in rest:
        yield f"{action.kind} {action.name}", action, None


def _done(action: Action | None) -> Any:
    return {"name": action.name, "verb": action.verb, "request": action.request} if action else _NOTHING


def _differ(path: list[str], saved: Any, derived: Any) -> Iterator[str]:
    saved, derived = _parse(saved), _parse(derived)
    if isinstance(saved, Mapping) and isinstance(derived, Mapping):
        for key in dict.fromkeys((*derived, *saved)):
            yield from _differ([*path, str(key)], saved.get(key, _NOTHING), derived.get(key, _NOTHING))
    elif isinstance(saved, list) and isinstance(derived, list) and len(saved) == len(derived):
        for number, (ours, theirs) in enumerate(zip(saved, derived, strict=True)):
            yield from _differ([*path, str(number)], ours, theirs)
    elif saved != derived:
        action, *keys = path
        at = f"{action}, {'.'.join(keys)}" if keys else action
        yield f"{at}: saved {_show(saved)} / derived {_show(derived)}"


def _parse(value: Any) -> Any:
    """Policies and dashboards are JSON in a string: what they say is compared."""
    if not (isinstance(value, str) and value.startswith(("{", "["))):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _show(value: Any) -> str:
    if value is _NOTHING:
        return "nothing"
    text = json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
