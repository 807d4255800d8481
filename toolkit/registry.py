"""The registry of platforms and engines: the object behind each name, imported when it is first used.

Names are data: platforms in platforms.json, engines in the files of the folder engines/. So lower layers use a platform
or an engine without importing it, and a new one needs no change here. `register_platform` and `register_engine` add
one at run time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from toolkit.catalog.lookup import Instance, engine_files
from toolkit.errors import UsageError
from toolkit.recipe.assemble import assemble
from toolkit.recipe.schema import RecipeFile

_PACKAGE = Path(__file__).parent
_T = TypeVar("_T")


@dataclass(frozen=True)
class PlatformEntry:
    """Import paths of a platform's objects, as `module:attribute`.

    `rules` is its pure part (a PlatformRules), `session` opens it (a PlatformSession), `keys` are the sections of a
    recipe that it reads (recipe/assemble.py). `causes` are JSON files with its known causes of failure
    (apply/causes.py): paths in this package, or absolute ones.
    """

    rules: str
    session: str
    keys: str
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
    return tuple(_PACKAGE / path for path in _platform(name).causes)


def engines() -> tuple[str, ...]:
    """Names of all engines that a recipe may have, the default first."""
    return tuple(_engines())


def default_engine() -> str:
    """The engine of a recipe that does not name one."""
    return next(iter(_engines()))


def engine_title() -> str:
    """The default engine as its makers write it."""
    title: str = engine_files()[0]["title"]
    return title


def example_command() -> str:
    """A command line that starts the default engine."""
    command: str = engine_files()[0]["command"]
    return command


def importable() -> str:
    """What `toolkit import` reads: formats of the default engine's settings."""
    formats: str = engine_files()[0]["imports"]
    return formats


def training_engine() -> Any:
    """What training asks of the default engine, a TrainingEngine (toolkit/training/engine.py)."""
    return _load(engine_files()[0]["training"])


def engine_summary() -> str:
    """What the catalogue's engines are for, in one line."""
    return "; ".join(facts["summary"] for facts in engine_files())


def engine_for(instance: Instance) -> str | None:
    """The first engine that runs on that hardware."""
    return next((name for name in _engines() if engine_rules(name).runs_on(instance)), None)


def engine_rules(name: str) -> Any:
    """The rules of an engine. Raises UsageError for an unknown name."""
    return _load(_known(name, _engines(), "engine").rules)


@dataclass(frozen=True)
class EngineEntry:
    """Import paths of an engine's objects: `rules` is an EngineRules, `keys` are the sections that it reads."""

    rules: str
    keys: str


def recipe_schema() -> type[RecipeFile]:
    """What a recipe file may say, with the keys of all platforms and engines."""
    return _schema(tuple(_platforms().items()), tuple(_engines().items()))


@cache
def _schema(
    platforms: tuple[tuple[str, PlatformEntry], ...], engines: tuple[tuple[str, EngineEntry], ...]
) -> type[RecipeFile]:
    return assemble(
        {name: _load(entry.keys) for name, entry in platforms},
        {name: _load(entry.keys) for name, entry in engines},
        engine_summary(),
    )


def register_platform(name: str, entry: PlatformEntry) -> None:
    """Add a platform, or replace the one of that name."""
    _platforms()[name] = entry


def unregister_platform(name: str) -> None:
    """Remove a platform added by `register_platform`."""
    del _platforms()[name]


def unregister_engine(name: str) -> None:
    """Remove an engine added by `register_engine`."""
    del _engines()[name]


def register_engine(name: str, entry: EngineEntry) -> None:
    """Add an engine, or replace the one of that name."""
    _engines()[name] = entry


@cache
def _platforms() -> dict[str, PlatformEntry]:
    data = json.loads((_PACKAGE / "catalog" / "platforms.json").read_text(encoding="utf-8"))
    return {
        name: PlatformEntry(facts["rules"], facts["session"], facts["keys"], tuple(facts["causes"]))
        for name, facts in data.items()
    }


@cache
def _engines() -> dict[str, EngineEntry]:
    return {
        name: EngineEntry(rules, facts["keys"]) for facts in _engine_files() for name, rules in facts["engines"].items()
    }


@cache
def _engine_files() -> tuple[dict[str, Any], ...]:
    """The catalogue's engine files, the default engine's first."""
    files = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((_PACKAGE / "catalog" / "engines").glob("*.json"))
    ]
    return tuple(sorted(files, key=lambda facts: not facts["is_default"]))


def _platform(name: str) -> PlatformEntry:
    return _known(name, _platforms(), "platform")


def _known(name: str, known: Mapping[str, _T], what: str) -> _T:
    if name not in known:
        raise UsageError(f"unknown {what} `{name}`", hint=f"Use one of: {', '.join(known)}.")
    return known[name]


@cache
def _load(address: str) -> Any:
    module, _, attribute = address.partition(":")
    return getattr(import_module(module), attribute)
