"""The model folder that a recipe most probably means: its paths begin at the recipe's folder, not at the shell's."""

from __future__ import annotations

import os
from pathlib import Path

from toolkit.catalog import lookup
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource


def folder_of_that_name(recipe: Recipe, source: ModelSource) -> str:
    """How the recipe names a folder that is written like a hub id; empty where there is no such folder."""
    for base in (_base(recipe), Path.cwd()):
        if (base / source.model).is_dir():
            return _from(_base(recipe), base / source.model)
    return ""


def folder_hint(recipe: Recipe, source: ModelSource) -> str:
    """The edit for a folder that does not exist; empty where nothing like it is known."""
    folder = Path(source.model)
    if folder.is_dir():
        return ""
    at_shell = Path.cwd() / os.path.relpath(folder, _base(recipe))
    if at_shell.is_dir():
        return f"Write `model: {_from(_base(recipe), at_shell)}`: the path begins at the recipe's folder."
    known = sorted({name for head in lookup.heads() for name in (head.target, head.repo)})
    if hub := next((name for name in known if name.partition("/")[2].lower() == folder.name.lower()), ""):
        return f"Write `model: {hub}` for the hub's model. A folder of yours is `./{folder.name}` beside the recipe."
    return ""


def _base(recipe: Recipe) -> Path:
    return recipe.path.resolve().parent


def _from(base: Path, folder: Path) -> str:
    written = os.path.relpath(folder.resolve(), base)
    return written if written.startswith("..") else f"./{written}"
