"""A plan: what will be done, why, with which request. Data only; it can be shown, saved, reviewed and applied later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal, Self

from toolkit import documents
from toolkit.catalog import registry
from toolkit.errors import UsageError

Verb = Literal["create", "update", "replace", "delete", "reuse"]


@dataclass(frozen=True)
class Action:
    """One step. `request` is the exact API request, `expected_seconds` a typical duration (0: a moment)."""

    kind: str
    name: str
    verb: Verb
    reason: str
    request: Mapping[str, Any] = field(repr=False)
    expected_seconds: int = 0

    __pydantic_config__ = documents.NO_OTHER_KEYS

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.name}"


@dataclass(frozen=True)
class Plan:
    """Actions in the order in which they are applied.

    `endpoints` are the names that the plan brings up (the first is the recipe's own) or removes; `fingerprint` stands
    for what was observed when the plan was made, in `account` and `region`. `price_per_hour` is in US dollars for all
    endpoints together, `price_before` that of what runs now; None where it is not known. `left` says what a removal
    leaves on purpose, and what that costs; `notes` what else there is to know.
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
    left: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    __pydantic_config__ = documents.NO_OTHER_KEYS

    @property
    def changes(self) -> Sequence[Action]:
        """The actions that do something."""
        return [action for action in self.actions if action.verb != "reuse"]

    @property
    def configs(self) -> Mapping[str, str]:
        """What each endpoint shall run, by its name, as its kind says it; empty for a removal."""
        rules = {rule.kind: rule for rule in registry.platform_rules(self.platform).kinds}
        made = [action for action in self.actions if action.verb != "delete"]
        found = [(action.name, rules[action.kind].serves(action.request)) for action in made]
        return {name: config for name, config in found if config is not None}

    @property
    def cost(self) -> str:
        """The price in words."""
        if self.price_per_hour is None:
            return "price not known"
        now = f"{self.price_per_hour:.2f} $/h while it runs"
        if not self.price_before or self.price_before == self.price_per_hour:
            return now
        difference = self.price_per_hour - self.price_before
        return f"{now}, {abs(difference):.2f} {'more' if difference > 0 else 'less'} than now"

    def to_dict(self) -> dict[str, Any]:
        """The document of `toolkit plan --json`, and of a saved plan."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The plan that `to_dict` wrote. Raises documents.Unfit, which names the key that is wrong."""
        return documents.fit(cls, data)

    def save(self, path: Path) -> None:
        """Write the plan as JSON, to be read by people and applied by `toolkit deploy --plan`."""
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """The plan that `save` wrote. Raises UsageError when the file is none."""
        try:
            return cls.from_dict(documents.decode(documents.read_file(path)))
        except (OSError, ValueError) as error:
            hint = "Make one: toolkit plan RECIPE --out plan.json"
            raise UsageError(f"{path} is not a saved plan: {error}", hint=hint) from error

    def __repr__(self) -> str:
        head = f"<Plan {self.recipe} on {self.platform}: {len(self.changes)} changes, {self.cost}>"
        return "\n".join([head, *(f"  {action} ({action.reason})" for action in self.actions), *self.notes])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{a.verb}</td><td>{a.kind}</td><td><code>{escape(a.name)}</code></td><td>{escape(a.reason)}</td></tr>"
            for a in self.actions
        )
        changes = f"{len(self.changes)} changes, {self.cost}"
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<b>{escape(self.recipe)}</b> on {self.platform}: {changes}<table>{rows}</table><ul>{notes}</ul>"
