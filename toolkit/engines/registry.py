"""The engines by name: the object behind each, imported when it is first used.

Names are data, in the files of catalog/engines, so a new engine needs no change here; `register_engine` adds one at run
time. No engine's own rooms import this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from toolkit.catalog.lookup import Instance, engine_files
from toolkit.errors import UsageError
from toolkit.recipe.assemble import Sections
from toolkit.recipe.recipe import EngineRules
from toolkit.training.engine import TrainingEngine

_T = TypeVar("_T")


@dataclass(frozen=True)
class EngineEntry:
    """Where an engine's objects are, as `module:attribute`: its EngineRules, and the sections of a recipe it reads."""

    rules: str
    sections: str


def engines() -> tuple[str, ...]:
    """Names of all engines that a recipe may have, the default first."""
    return tuple(_engines())


def engine_rules(name: str) -> EngineRules:
    """The rules of an engine. Raises UsageError for an unknown name."""
    rules: EngineRules = load_attribute(known_entry(name, _engines(), "engine").rules)
    return rules


def engine_sections() -> dict[str, Sections]:
    """The sections of a recipe that each engine reads."""
    return {name: load_attribute(entry.sections) for name, entry in _engines().items()}


def engine_for(instance: Instance) -> str | None:
    """The first engine that runs on that hardware."""
    return next((name for name in _engines() if engine_rules(name).runs_on(instance)), None)


def training_engine() -> TrainingEngine:
    """What training asks of the default engine."""
    engine: TrainingEngine = load_attribute(engine_files()[0]["training"])
    return engine


def register_engine(name: str, entry: EngineEntry) -> None:
    """Add an engine, or replace the one of that name."""
    _engines()[name] = entry


def unregister_engine(name: str) -> None:
    """Remove an engine added by `register_engine`."""
    del _engines()[name]


def known_entry(name: str, known: Mapping[str, _T], what: str) -> _T:
    """The entry of that name. Raises UsageError, with all names."""
    if name not in known:
        raise UsageError(f"unknown {what} `{name}`", hint=f"Use one of: {', '.join(known)}.")
    return known[name]


@cache
def load_attribute(address: str) -> Any:
    """What stands at `module:attribute`."""
    module, _, attribute = address.partition(":")
    return getattr(import_module(module), attribute)


@cache
def _engines() -> dict[str, EngineEntry]:
    return {
        name: EngineEntry(rules, facts["sections"])
        for facts in engine_files()
        for name, rules in facts["engines"].items()
    }
