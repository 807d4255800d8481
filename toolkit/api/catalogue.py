"""The recipes that come with the toolkit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.recipe.load import catalogue
from toolkit.recipe.resolve import Recipe, load
from toolkit.text import html_table, inert


@dataclass(frozen=True)
class Catalogue(Sequence[Recipe]):
    """The recipes that come with the toolkit; shows itself as a table in a notebook."""

    entries: tuple[tuple[str, Recipe], ...]

    def __getitem__(self, index: Any) -> Any:
        return self.entries[index][1]

    def __len__(self) -> int:
        return len(self.entries)

    def to_dict(self) -> dict[str, Any]:
        """Recipes by catalogue name."""
        return {name: recipe.to_dict() for name, recipe in self.entries}

    def __repr__(self) -> str:
        return inert("\n".join(f"{name:24} {recipe.description}" for name, recipe in self.entries))

    def _repr_html_(self) -> str:
        return html_table((name, recipe.description) for name, recipe in self.entries)


def recipes() -> Catalogue:
    """All recipes that come with the toolkit."""
    return Catalogue(tuple((name, load(name)) for name in catalogue()))
