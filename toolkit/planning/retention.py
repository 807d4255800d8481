"""What the toolkit leaves behind, and how long: the rules of catalog/retention.json, held against what was found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Protocol

from toolkit.catalog.lookup import FOLDER

_DAY = 86400.0


@dataclass(frozen=True)
class Rule:
    """When one kind of thing may go: `days` after its last use or change, in words `rule`; None if it always stays.

    `usd_per_gb_month` is what AWS bills for keeping it, in us-east-1, unverified.
    """

    where: str
    days: int | None
    usd_per_gb_month: float
    rule: str


@cache
def rules() -> Mapping[str, Rule]:
    """Every rule, by the kind of thing."""
    data = json.loads((FOLDER / "retention.json").read_text(encoding="utf-8"))["kinds"]
    return {kind: Rule(**rule) for kind, rule in data.items()}


@dataclass(frozen=True)
class Leftover:
    """Something that was found: `name` says where it is, `age` is in seconds, `size` in bytes, None if unknown.

    `needed` says what needs it now, and is empty if nothing does. `handle` is what removing it takes.
    """

    kind: str
    name: str
    age: float
    size: int | None
    needed: str = ""
    handle: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def goes(self) -> bool:
        """Whether its rule lets it go."""
        days = rules()[self.kind].days
        return not self.needed and days is not None and self.age >= days * _DAY

    @property
    def why(self) -> str:
        """The rule by which it goes, or why it stays."""
        rule = rules()[self.kind]
        if self.needed or self.goes or rule.days is None:
            return self.needed or rule.rule
        return f"goes in {max(1, round(rule.days - self.age / _DAY))} days: {rule.rule}"

    @property
    def usd_per_month(self) -> float:
        """What AWS bills for it."""
        return (self.size or 0) / 1e9 * rules()[self.kind].usd_per_gb_month

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the JSON document of `toolkit clean --json`."""
        document = asdict(self)
        del document["handle"], document["needed"]
        return {**document, "goes": self.goes, "why": self.why, "usd_per_month": self.usd_per_month}


@dataclass(frozen=True)
class Found:
    """What was found, and what could not be looked at, with the reason."""

    items: tuple[Leftover, ...] = ()
    unread: tuple[str, ...] = ()

    def __add__(self, other: Found) -> Found:
        return Found(self.items + other.items, self.unread + other.unread)


class Cleaner(Protocol):
    """Finds what a platform keeps, and removes it."""

    def find(self) -> Found:
        """What there is, with what needs it. Raises PlatformError if what is in use cannot be seen."""

    def remove(self, item: Leftover) -> None:
        """Remove it, if nothing needs it meanwhile. Raises PlatformError."""


def price_in_words(kind: str) -> str:
    """What keeping such a thing costs."""
    return f"about ${rules()[kind].usd_per_gb_month:.2f} per GB and month (us-east-1, unverified)"


def stays_in_words(kinds: Sequence[str]) -> str:
    """For a plan: which of these `toolkit destroy` leaves, and for how long; empty if none."""
    kept = "; ".join(f"{kind}s, {price_in_words(kind)}, go by this rule: {rules()[kind].rule}" for kind in kinds)
    return f"Stays after `toolkit destroy`, until `toolkit clean`: {kept}" if kept else ""
