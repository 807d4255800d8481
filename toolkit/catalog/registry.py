"""The one registry of platforms and engines: who answers for a name, imported when it is first asked.

Names stand in data: platforms in platforms.json, engines in the files of the folder engines/. So the rooms below ask
a platform or an engine without importing it, and a new one needs no other file. `register_platform` and
`register_engine` add one at run time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from toolkit.errors import UsageError

_FOLDER = Path(__file__).parent
_T = TypeVar("_T")


@dataclass(frozen=True)
class PlatformEntry:
    """Where a platform's objects are, as `module:attribute`.

    `rules` is its pure part (a PlatformRules), `session` what opens it (a PlatformSession).
    """

    rules: str
    session: str


def platforms() -> tuple[str, ...]:
    """Names of all platforms."""
    return tuple(_platforms())


def platform_rules(name: str) -> Any:
    """The pure part of a platform. Raises UsageError for an unknown name."""
    return _load(_platform(name).rules)


def platform_session(name: str) -> Any:
    """What opens a platform. Raises UsageError for an unknown name."""
    return _load(_platform(name).session)


def engines() -> tuple[str, ...]:
    """Names of all engines that a recipe may write."""
    return tuple(_engines())


def engine_rules(name: str) -> Any:
    """What answers for an engine. Raises UsageError for an unknown name."""
    return _load(_known(name, _engines(), "engine"))


def register_platform(name: str, entry: PlatformEntry) -> None:
    """Add a platform, or put another in its place."""
    _platforms()[name] = entry


def register_engine(name: str, rules: str) -> None:
    """Add an engine, or put another in its place. `rules` is `module:attribute`."""
    _engines()[name] = rules


@cache
def _platforms() -> dict[str, PlatformEntry]:
    data = json.loads((_FOLDER / "platforms.json").read_text(encoding="utf-8"))
    return {name: PlatformEntry(facts["rules"], facts["session"]) for name, facts in data.items()}


@cache
def _engines() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted((_FOLDER / "engines").glob("*.json"), reverse=True):
        found |= json.loads(path.read_text(encoding="utf-8"))["engines"]
    return found


def _platform(name: str) -> PlatformEntry:
    return _known(name, _platforms(), "platform")


def _known(name: str, known: Mapping[str, _T], what: str) -> _T:
    if name not in known:
        raise UsageError(f"there is no {what} `{name}`", hint=f"Use one of: {', '.join(known)}.")
    return known[name]


@cache
def _load(address: str) -> Any:
    module, _, attribute = address.partition(":")
    return getattr(import_module(module), attribute)
