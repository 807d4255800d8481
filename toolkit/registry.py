"""The platforms by name, and what a recipe may say with all platforms and engines.

Names are data, in catalog/platforms.json, so a new platform needs no change here; `register_platform` adds one at run
time. No platform's own rooms import this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from toolkit.catalog import lookup
from toolkit.engines.registry import engine_sections, known_entry, load_attribute
from toolkit.recipe.assemble import Sections, assemble
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import RecipeFile

if TYPE_CHECKING:
    from toolkit.planning.resources import Account
    from toolkit.platforms.rules import AwsSession, Platform, PlatformRules, PlatformSession


@dataclass(frozen=True)
class PlatformEntry:
    """Where a platform's objects are, as `module:attribute`.

    `rules` is its pure part (a PlatformRules), `session` opens it (a PlatformSession), `sections` are those of
    a recipe that it reads.
    """

    rules: str
    session: str
    sections: str


def platforms() -> tuple[str, ...]:
    """Names of all platforms."""
    return tuple(_platforms())


def recipe_schema() -> type[RecipeFile]:
    """What a recipe file may say, with the keys of all platforms and engines."""
    platforms = {name: load_attribute(entry.sections) for name, entry in _platforms().items()}
    return _schema(_as_tuples(platforms), _as_tuples(engine_sections()))


def _as_tuples(declared: Mapping[str, Sections]) -> tuple[Any, ...]:
    return tuple((name, tuple(sections.items())) for name, sections in declared.items())


@cache
def _schema(platforms: tuple[Any, ...], engines: tuple[Any, ...]) -> type[RecipeFile]:
    of_platforms, of_engines = ({name: dict(items) for name, items in each} for each in (platforms, engines))
    return assemble(of_platforms, of_engines, lookup.engine_summary())


def rules_of(name: str) -> PlatformRules:
    """The pure part of a platform. Raises UsageError for an unknown name."""
    rules: PlatformRules = load_attribute(_entry(name).rules)
    return rules


def endpoint_name(recipe: Recipe) -> str:
    """The name of the endpoint that serves the recipe. Several recipes may share one."""
    name = rules_of(recipe.platform.name).parts.endpoint_name
    return name(recipe) if name else recipe.name


def base_images(recipe: Recipe, account: Account) -> Sequence[str]:
    """Addresses of the images from elsewhere that run, or that one is built on. Raises UsageError where none is."""
    images = rules_of(recipe.platform.name).parts.base_images
    return images(recipe, account) if images else ()


def price_text(recipe: Recipe) -> str:
    """The price as a phrase, with its source and date, or why it is unknown."""
    text = rules_of(recipe.platform.name).parts.price_text
    return text(recipe) if text else "? $/h"


def session_of(name: str, login: AwsSession | None = None) -> PlatformSession:
    """The session that opens a platform, with `login` for AWS if it is given.

    Raises UsageError for an unknown name, and for a login to a platform that is not AWS.
    """
    session: PlatformSession = load_attribute(_entry(name).session)
    return session if login is None else session.logged_in(login)


def open_platform(name: str, scope: str | None = None, login: AwsSession | None = None) -> Platform:
    """Open a platform; the local one is started if necessary. Raises UsageError or PlatformError."""
    return session_of(name, login).open(scope)


def open_readable(name: str, scope: str | None = None, login: AwsSession | None = None) -> Platform | None:
    """Open a platform for a plan; None if it does not run or there are no credentials, as a plan needs no account."""
    session = session_of(name, login)
    return session.running(scope) if session.can_be_asked() else None


def register_platform(name: str, entry: PlatformEntry) -> None:
    """Add a platform, or replace the one of that name."""
    _platforms()[name] = entry


def unregister_platform(name: str) -> None:
    """Remove a platform added by `register_platform`."""
    del _platforms()[name]


def _entry(name: str) -> PlatformEntry:
    return known_entry(name, _platforms(), "platform")


@cache
def _platforms() -> dict[str, PlatformEntry]:
    data = json.loads((lookup.FOLDER / "platforms.json").read_text(encoding="utf-8"))
    return {name: PlatformEntry(facts["rules"], facts["session"], facts["sections"]) for name, facts in data.items()}
