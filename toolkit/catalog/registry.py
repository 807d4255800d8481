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

from toolkit.catalog.lookup import Instance
from toolkit.errors import UsageError

_FOLDER = Path(__file__).parent
_T = TypeVar("_T")


@dataclass(frozen=True)
class PlatformEntry:
    """Where a platform's objects are, as `module:attribute`.

    `rules` is its pure part (a PlatformRules), `session` what opens it (a PlatformSession). `causes` are JSON files
    with its causes of failure (apply/causes.py), in the package's folder or by absolute paths.
    """

    rules: str
    session: str
    causes: tuple[str, ...] = ()


def platforms() -> tuple[str, ...]:
    """Names of all platforms."""
    return tuple(_platforms())


def platform_rules(name: str) -> Any:
    """The pure part of a platform. Raises UsageError for an unknown name."""
    return _load(_platform(name).rules)


def platform_session(name: str) -> Any:
    """What opens a platform. Raises UsageError for an unknown name."""
    return _load(_platform(name).session)


def platform_causes(name: str) -> tuple[Path, ...]:
    """JSON files with a platform's causes of failure. Raises UsageError for an unknown name."""
    return tuple(_FOLDER.parent / path for path in _platform(name).causes)


def engines() -> tuple[str, ...]:
    """Names of all engines that a recipe may write, the default first."""
    return tuple(_engines())


def default_engine() -> str:
    """The engine of a recipe that names none."""
    return next(iter(_engines()))


def engine_summary() -> str:
    """What the catalogue's engines are for, in a line."""
    return "; ".join(facts["summary"] for facts in _engine_files())


def engine_for(instance: Instance) -> str | None:
    """The first engine that runs on that hardware."""
    return next((name for name in _engines() if engine_rules(name).runs_on(instance)), None)


def engine_rules(name: str) -> Any:
    """What answers for an engine. Raises UsageError for an unknown name."""
    return _load(_known(name, _engines(), "engine"))


def register_platform(name: str, entry: PlatformEntry) -> None:
    """Add a platform, or replace the one of that name."""
    _platforms()[name] = entry


def unregister_platform(name: str) -> None:
    """Take out a platform that was added."""
    del _platforms()[name]


def unregister_engine(name: str) -> None:
    """Take out an engine that was added."""
    del _engines()[name]


def register_engine(name: str, rules: str) -> None:
    """Add an engine, or replace the one of that name. `rules` is `module:attribute`."""
    _engines()[name] = rules


@cache
def _platforms() -> dict[str, PlatformEntry]:
    data = json.loads((_FOLDER / "platforms.json").read_text(encoding="utf-8"))
    return {
        name: PlatformEntry(facts["rules"], facts["session"], tuple(facts["causes"])) for name, facts in data.items()
    }


@cache
def _engines() -> dict[str, str]:
    return {name: rules for facts in _engine_files() for name, rules in facts["engines"].items()}


@cache
def _engine_files() -> tuple[dict[str, Any], ...]:
    """What the catalogue says of engines, the default's file first."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((_FOLDER / "engines").glob("*.json"))]
    return tuple(sorted(files, key=lambda facts: not facts["is_default"]))


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
