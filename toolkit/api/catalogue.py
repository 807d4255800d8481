"""The recipes that come with the toolkit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.display import card, data_frame, table
from toolkit.errors import ToolkitError
from toolkit.loading import load
from toolkit.recipe.known import catalogue
from toolkit.recipe.lock import lock_path, read_lock
from toolkit.recipe.recipe import Recipe
from toolkit.registry import price_text
from toolkit.text import inert


@dataclass(frozen=True)
class Listed:
    """A recipe by its name, with what it costs and whether it fits."""

    name: str
    recipe: Recipe

    @property
    def tokens(self) -> str:
        """K; empty without speculation."""
        return str(self.recipe.speculation.num_speculative_tokens) if self.recipe.speculation else ""

    @property
    def dollars(self) -> str:
        """The price per hour, or `?`."""
        price = self.recipe.price_per_hour
        return "?" if price is None else f"{price:.2f}"

    @property
    def price_text(self) -> str:
        """The price with its source, or why it is unknown."""
        return price_text(self.recipe)

    @property
    def hardware(self) -> str:
        """Instance types and their accelerators; empty on this machine."""
        platform = self.recipe.platform
        if not self.recipe.platform_rules.facts.has_instance_types:
            return ""
        known = [self.recipe.platform_rules.instance(name) for name in platform.types]
        return " ".join([*platform.types, *(item.accelerator for item in known if item)])

    @property
    def fit_lines(self) -> list[str]:
        """How its models fit each instance type, a line each; why not where it cannot be told."""
        return list(_fits(self.recipe)) if self.recipe.platform_rules.facts.has_instance_types else []

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit recipes show --json`."""
        return {
            "name": self.name,
            "path": str(self.recipe.path),
            "text": self.recipe.path.read_text(encoding="utf-8"),
            "recipe": self.recipe.to_dict(),
            "price_per_hour": self.recipe.price_per_hour,
            "price": self.price_text,
            "fit": self.fit_lines,
            "evidence": [item.model_dump() for item in self.recipe.evidence],
        }

    def __repr__(self) -> str:
        return inert(f"<{self.name}: {self.recipe.description}, {self.dollars} $/h>")


@dataclass(frozen=True)
class Catalogue(Sequence[Recipe]):
    """The recipes that come with the toolkit; shows itself as a table in a notebook."""

    entries: tuple[tuple[str, Recipe], ...]

    def __getitem__(self, index: Any) -> Any:
        return self.entries[index][1]

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def listed(self) -> list[Listed]:
        return [Listed(name, recipe) for name, recipe in self.entries]

    def matching(
        self,
        model: str | None = None,
        method: str | None = None,
        hardware: str | None = None,
        max_price: float | None = None,
        *,
        with_evidence: bool = False,
    ) -> Catalogue:
        """The recipes whose target, method, instance types or accelerators have these words, up to that price.

        `max_price` is in US dollars per hour; it leaves out recipes whose price is unknown.
        """
        return Catalogue(
            tuple(
                (item.name, item.recipe)
                for item in self.listed
                if _has(f"{item.recipe.target} {item.name}", model)
                and method in (None, item.recipe.method)
                and _has(item.hardware, hardware)
                and (max_price is None or ((price := item.recipe.price_per_hour) is not None and price <= max_price))
                and not (with_evidence and not item.recipe.evidence)
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Recipes by catalogue name."""
        return {name: recipe.to_dict() for name, recipe in self.entries}

    def __repr__(self) -> str:
        return inert("\n".join(f"{name:24} {recipe.description}" for name, recipe in self.entries))

    def _repr_html_(self) -> str:
        rows = [tuple(row.values()) for row in self._rows()]
        return card("Recipes", table(rows, ("recipe", "target", "method", "K", "platform", "instance type", "$/h")))

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each recipe."""
        return data_frame(self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        for item in self.listed:
            platform = item.recipe.platform
            yield {
                "recipe": item.name,
                "target": item.recipe.target.name,
                "method": item.recipe.method,
                "k": item.tokens,
                "platform": platform.name,
                "instance_type": ", ".join(platform.types)
                if item.recipe.platform_rules.facts.has_instance_types
                else "",
                "price": item.dollars,
            }


def recipes() -> Catalogue:
    """All recipes that come with the toolkit."""
    return Catalogue(tuple((name, load(name)) for name in catalogue()))


def show_recipe(name: str | os.PathLike[str]) -> Listed:
    """One recipe, with price, fit and evidence. Raises RecipeNotFound with the nearest names."""
    return Listed(str(name), load(name))


def _has(text: str, words: str | None) -> bool:
    return words is None or words.lower() in text.lower()


def _fits(recipe: Recipe) -> Iterator[str]:
    from toolkit.sizing.fit import fits, sizable

    try:
        models = read_lock(lock_path(recipe))
        if models is None:
            yield f"not known without a lock: toolkit lock {recipe.path}"
            return
        known, problem = sizable(models)
        types = [recipe.platform_rules.instance(name) for name in recipe.platform.types]
        for one in fits(recipe, known, [item for item in types if item]):
            room = f"fits, with room for {one.kv_tokens:,} tokens" if one.fits else one.reason
            yield f"{one.instance}: {room}"
        if problem:
            yield problem.message
    except ToolkitError as error:
        yield error.message
