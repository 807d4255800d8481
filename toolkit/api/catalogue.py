"""The recipes that come with the toolkit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.display import card, dollars_per_hour, table
from toolkit.frames import data_frame
from toolkit.recipe.load import catalogue
from toolkit.recipe.resolve import Recipe, load
from toolkit.text import inert


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
        rows = [tuple(row.values()) for row in self._rows()]
        return card("Recipes", table(rows, ("recipe", "target", "method", "K", "platform", "instance type", "price")))

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each recipe."""
        return data_frame(self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        for name, recipe in self.entries:
            platform = recipe.platform
            yield {
                "recipe": name,
                "target": recipe.target.name,
                "method": recipe.method,
                "k": recipe.speculation.num_speculative_tokens if recipe.speculation else "",
                "platform": platform.name,
                "instance_type": platform.instance_types[0] if platform.rules.has_instance_types else "",
                "price": dollars_per_hour(platform.rules.price_per_hour(recipe)),
            }


def recipes() -> Catalogue:
    """All recipes that come with the toolkit."""
    return Catalogue(tuple((name, load(name)) for name in catalogue()))
