"""A plan: what will be done, why, with which request. Data only; it can be shown, saved, reviewed and applied later."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from toolkit import documents
from toolkit.display import Fragment, Tone, bullets, card, data_frame, fold, in_tone, on_one_line, table
from toolkit.errors import UsageError, reason
from toolkit.files import write_whole
from toolkit.text import inert

NOTHING = object()
"""What stands where one of two requests that are compared has no value."""

_LONGEST = 120


@dataclass(frozen=True)
class Changes:
    """What an update changes: each value as `path`, `from` and `to`, None where there is none; and in words."""

    items: tuple[Mapping[str, Any], ...] = ()
    words: str = ""


def differing(path: tuple[str, ...], before: Any, after: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Each value that differs between two requests, with its path."""
    before, after = _parse(before), _parse(after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*after, *before)):
            yield from differing((*path, str(key)), before.get(key, NOTHING), after.get(key, NOTHING))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differing((*path, str(number)), one, other)
    elif before != after:
        yield path, before, after


def as_change(path: tuple[str, ...], before: Any, after: Any) -> dict[str, Any]:
    """A change as JSON."""
    start, end = (None if value is NOTHING else value for value in (before, after))
    return {"path": ".".join(path), "from": start, "to": end}


def shown(value: Any) -> str:
    """A value on one line."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _parse(value: Any) -> Any:
    """Policies, dashboards and settings are JSON in a string: what they say is compared."""
    if not (isinstance(value, str) and value.startswith(("{", "["))):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


WARNING = "Warning: "
"""Notes begin with it that must be seen also where nothing is asked."""

Verb = Literal["create", "update", "replace", "delete", "reuse"]

_SIGNS: Mapping[str, tuple[str, Tone]] = {
    "create": ("+", "good"),
    "update": ("~", "fair"),
    "replace": ("±", "fair"),
    "delete": ("-", "bad"),
    "reuse": ("=", "soft"),
}


@dataclass(frozen=True)
class Action:
    """One step. `request` is all that it needs, `expected_seconds` a typical duration (0: too short to show).

    `changes` says what an update makes different from what exists: each value as `path`, `from` and `to`. `calls` are
    the API calls that change something, as `service`, `operation` and `request`; copying files has none of its own.
    """

    kind: str
    name: str
    verb: Verb
    reason: str
    request: Mapping[str, Any] = field(repr=False)
    expected_seconds: int = 0
    changes: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    calls: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    __pydantic_config__ = documents.NO_OTHER_KEYS

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.name}"


@dataclass(frozen=True)
class Plan:
    """Actions in the order in which they are applied.

    `recipe` is a file, empty where an endpoint was named instead. `endpoints` are the names of the endpoints that the
    plan deploys (the recipe's own first) or removes. `fingerprint` is a digest of what existed in `account` and
    `region` when the plan was made. `price_per_hour` is in US dollars for all endpoints together, `price_before` the
    same for what runs now, both after `discount_percent`; None if unknown, and then a note says why. `not_removed`
    describes what a removal keeps on purpose and what that costs, or what it could not look at. `unpinned` names images
    and models that others may change at any time, with the command that pins them.
    """

    recipe: str
    platform: str
    endpoints: tuple[str, ...]
    actions: tuple[Action, ...]
    price_per_hour: float | None
    fingerprint: str
    price_before: float | None = 0.0
    account: str = ""
    region: str = ""
    not_removed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unpinned: tuple[str, ...] = ()
    discount_percent: float = 0.0

    __pydantic_config__ = documents.NO_OTHER_KEYS

    @property
    def changes(self) -> Sequence[Action]:
        """The actions that change something."""
        return [action for action in self.actions if action.verb != "reuse"]

    @property
    def size(self) -> str:
        """`1 change`, `2 changes`, ..."""
        number = len(self.changes)
        return f"{number} change{'' if number == 1 else 's'}"

    @property
    def warnings(self) -> list[str]:
        """The notes that are warnings."""
        return [note for note in self.notes if note.startswith(WARNING)]

    @property
    def unpinned_lines(self) -> list[str]:
        """What is not pinned, a line each."""
        return [f"Not pinned: {line}" for line in self.unpinned]

    @property
    def cost(self) -> str:
        """The price as a phrase."""
        if self.price_per_hour is None:
            return "no price, and a note on why"
        less = f" with your discount of {self.discount_percent:g} %" if self.discount_percent else ""
        now = f"{self.price_per_hour:.2f} $/h while running{less}"
        if not self.price_before or self.price_before == self.price_per_hour:
            return now
        difference = self.price_per_hour - self.price_before
        return f"{now}, {abs(difference):.2f} {'more' if difference > 0 else 'less'} than now"

    @property
    def costs_more(self) -> bool:
        """Whether it raises what is billed per hour, as far as prices are known before or after."""
        if not self.changes or self.price_per_hour is None:
            return bool(self.changes) and self.price_before is not None
        return self.price_per_hour > (self.price_before or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit plan --json` and of a saved plan."""
        return asdict(Plan(**{item.name: getattr(self, item.name) for item in fields(Plan)}))

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each action."""
        return data_frame(self.to_dict()["actions"])

    def save(self, path: Path) -> None:
        """Write the plan as JSON, for review and for `toolkit deploy --plan`."""
        write_whole(path, json.dumps(self.to_dict(), indent=2) + "\n")

    @staticmethod
    def read(path: Path) -> Plan:
        """The plan that `save` wrote, to look at and compare. Raises UsageError if the file is not a plan."""
        data: Any = None
        try:
            data = documents.decode(documents.read_file(path))
            return documents.fit(Plan, data)
        except (OSError, ValueError) as error:
            written = data.get("recipe") if isinstance(data, dict) else None
            recipe = written if isinstance(written, str) and Path(written).is_file() else ""
            again = shlex.join(["toolkit", "plan", recipe or "RECIPE", "--out", str(path)])
            what = "a plan of another version of the toolkit" if recipe else "not a saved plan"
            raise UsageError(f"{path} is {what}: {reason(error)}", hint=f"Save one: {again}") from error

    @property
    def _subject(self) -> str:
        return self.recipe or ", ".join(self.endpoints)

    def __repr__(self) -> str:
        head = f"<Plan {self._subject} on {self.platform}: {self.size}, {self.cost}>"
        actions = [f"  {action} ({action.reason})" for action in self.actions]
        return inert("\n".join([head, *actions, *self.notes, *self.unpinned_lines]))

    def _repr_html_(self) -> str:
        said = f"on {self.platform}: {self.size}, {self.cost}"
        same = [_show(action) for action in self.actions if action.verb == "reuse"]
        unchanged = fold(f"{len(same)} stay as they are", table(same)) if same else Fragment("")
        changes = table(map(_show, self.changes))
        return card(self._subject, changes, unchanged, bullets([*self.notes, *self.unpinned_lines]), says=said)


def _show(action: Action) -> tuple[object, ...]:
    """An action as a row of a table: what it does as a sign and a word, to what, why, and how long that takes."""
    sign, tone = _SIGNS.get(action.verb, ("", "soft"))
    minutes = f"about {action.expected_seconds / 60:.0f} min" if action.expected_seconds >= 60 else ""
    return (
        in_tone(f"{sign} {action.verb}", tone),
        action.kind,
        action.name,
        in_tone(action.reason, "soft"),
        on_one_line(minutes),
    )


def differences(saved: Plan, derived: Plan) -> list[str]:
    """Each difference in what the plans do, and where: `kind name, key: saved … / derived …`.

    Reasons, notes and prices do nothing, and are not compared.
    """
    found = [*differing((), _scope(saved), _scope(derived))]
    for title, ours, theirs in _pairs(saved, derived):
        found += differing((title,), _done(ours), _done(theirs))
    return [_line(*item) for item in sorted(found, key=lambda item: _follows(*item))]


def _follows(path: Sequence[str], saved: Any, derived: Any) -> tuple[bool, bool]:
    """Tags, names and whole actions change with the recipe: the cause is what resources are asked to be."""
    _, *keys = path
    is_name = keys in (["name"], ["verb"]) or any(key.endswith("Name") for key in keys[-1:])
    return keys[:2] == ["request", "Tags"], is_name or (not keys and NOTHING in (saved, derived))


def unapproved(approved: Plan, now: Plan) -> list[Action]:
    """The changes of `now` that are not among those of `approved`. Others may have done a part of it meanwhile."""
    known = [_essence(action) for action in approved.changes]
    return [action for action in now.changes if _essence(action) not in known]


def _essence(action: Action) -> tuple[Any, ...]:
    """To send all files, or those that are missing, is the same."""
    verb = "make" if action.verb in ("create", "update") else action.verb
    return verb, action.kind, action.name, action.request, action.changes


def same_scope(saved: Plan, derived: Plan) -> bool:
    """Whether both are for the same endpoints on the same platform, in the same account and region."""
    return _scope(saved) == _scope(derived)


def _scope(plan: Plan) -> dict[str, str]:
    names = ", ".join(plan.endpoints)
    return {"platform": plan.platform, "account": plan.account, "region": plan.region, "endpoints": names}


def _pairs(saved: Plan, derived: Plan) -> Iterator[tuple[str, Action | None, Action | None]]:
    """Each action with its counterpart: the one of the same kind and name, else one of that kind with another name."""
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
    return {"name": action.name, "verb": action.verb, "request": action.request} if action else NOTHING


def _line(path: Sequence[str], saved: Any, derived: Any) -> str:
    action, *keys = path
    at = f"{action}, {'.'.join(keys)}" if keys else action
    return f"{at}: saved {_short(saved)} / derived {_short(derived)}"


def _short(value: Any) -> str:
    return "nothing" if value is NOTHING else shown(json.dumps(value, default=str))
