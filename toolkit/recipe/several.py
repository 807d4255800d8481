"""The recipes of a folder. Other YAML files may lie beside them, such as a chart's values; those are told apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import RecipeNotFound
from toolkit.recipe.load import plain_yaml

_OWN_KEYS = ("target", "speculation")
# Of a file that is not YAML, such as a recipe with a mistake: a key at the beginning of a line.
_OWN_LINE = re.compile(rf"^({'|'.join(_OWN_KEYS)})\s*:", re.MULTILINE)


@dataclass(frozen=True)
class Folder:
    """The recipes in a folder, by name, and its YAML files that are none."""

    recipes: tuple[Path, ...]
    others: tuple[Path, ...]


def recipes_in(folder: Path) -> Folder:
    """Those that lie in it, not in folders below; hidden files are left out. Raises RecipeNotFound if there is none.

    A recipe is a mapping with `target` or `speculation`; one that is not YAML is told by such a line, and counts.
    """
    files = sorted(path for path in folder.glob("*.y*ml") if path.is_file() and not path.name.startswith("."))
    recipes = tuple(path for path in files if _is_recipe(path))
    others = tuple(path for path in files if path not in recipes)
    if not recipes:
        found = f": {', '.join(path.name for path in others[:3])} have no `target:`" if others else ""
        below = next((path.parent for path in sorted(folder.glob("*/*.y*ml")) if _is_recipe(path)), None)
        hint = f"Did you mean {below}?" if below else "Write one: toolkit new MODEL"
        raise RecipeNotFound(f"{folder}: there is no recipe in this folder{found}", hint=hint)
    return Folder(recipes, others)


def _is_recipe(path: Path) -> bool:
    """One that cannot be read counts: the error that follows says why."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return True
    try:
        data = plain_yaml(text)
    except ValueError:
        return bool(_OWN_LINE.search(text))
    return isinstance(data, dict) and any(key in data for key in _OWN_KEYS)
