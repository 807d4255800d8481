"""What the rooms below may ask of an engine and of a platform. `catalog.registry` finds who answers.

Engines implement EngineRules (toolkit/engines), the pure parts of platforms PlatformTraits (toolkit/platforms).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from toolkit.catalog.lookup import Image, Instance
    from toolkit.findings import Finding
    from toolkit.recipe.lock import Lock
    from toolkit.recipe.resolve import Engine, PlatformSettings, Recipe
    from toolkit.recipe.schema import EngineSection


class EngineRules(Protocol):
    """All that differs between engines. `recipe` is always one that runs on this engine."""

    name: str
    variable_prefix: str
    """What the variables begin with that the container's entrypoint turns into flags: `SM_VLLM_`."""

    def settle(self, written: EngineSection, method: str, instance_type: str) -> Engine:
        """The engine's settings with name, version and limits filled in."""

    def default_tokens(self, engine: Engine, method: str) -> int:
        """K where the recipe does not say it."""

    def compiles(self, recipe: Recipe) -> bool:
        """Whether it compiles for its accelerators, ahead of its start or at it."""

    def flags(self, recipe: Recipe, drafter: str) -> dict[str, Any]:
        """Flags besides those of every engine; `drafter` is where the engine finds the drafter, empty without one."""

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        """Environment besides `engine.env`; `flags` are the texts of all flags."""

    def reports_drafts(self, recipe: Recipe) -> bool:
        """Whether it tells how many tokens it drafted and accepted."""

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on what this engine makes of the recipe and, where they are known, of its models."""


class PlatformTraits(Protocol):
    """What rooms without a platform's word in them ask of a platform's pure part."""

    name: str

    def portable(self, settings: PlatformSettings) -> PlatformSettings:
        """Settings of this platform as others read them: the catalogue's instance types, without its own section."""

    def settings_from(self, portable: PlatformSettings) -> PlatformSettings:
        """Settings for this platform, from the portable ones of another."""

    def instance(self, name: str) -> Instance | None:
        """The catalogue's hardware of an instance type, by its name here; None where it is not known."""

    def instances(self) -> Sequence[Instance]:
        """All known instance types that may serve here, by their names here."""

    def builds(self, recipe: Recipe) -> bool:
        """Whether an image is built for the recipe."""

    def images(self, recipe: Recipe) -> Sequence[Image]:
        """The catalogue's images of the recipe's engine that run here, or that one is built on; the preferred first."""

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on what this platform makes of the recipe and, where they are known, of its models."""
