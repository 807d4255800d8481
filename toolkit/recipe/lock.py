"""`<recipe>.lock.json`: the facts of both models, pinned, so that checks are the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.errors import ToolkitError, UnreadableModel
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.model_files import ModelFiles, read_folder, read_model
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.source import ModelSource

OpenFiles = Callable[[ModelSource], ModelFiles]
"""Where files of a model that is in no folder are read from."""


@dataclass(frozen=True)
class Lock:
    """Facts of the recipe's models; `drafter` is None for a baseline."""

    target: ModelFacts
    drafter: ModelFacts | None = None

    def to_dict(self) -> dict[str, Any]:
        """The content of a lock file."""
        return {"target": self.target.to_dict(), "drafter": self.drafter.to_dict() if self.drafter else None}


def lock_path(recipe: Recipe) -> Path:
    """Where the recipe's lock lies: beside it, as `<recipe>.lock.json`."""
    return recipe.path.with_suffix(".lock.json")


def read_models(recipe: Recipe, open_files: OpenFiles) -> Lock:
    """Facts read from where the recipe's models are, now. Raises UnreadableModel."""
    drafter = recipe.speculation.drafter if recipe.speculation else None
    return Lock(_read(recipe.target, open_files), _read(drafter, open_files) if drafter else None)


def read_lock(path: Path) -> Lock | None:
    """The lock file's facts, None when there is no such file. Raises ToolkitError when it is something else."""
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        drafter = ModelFacts.from_dict(data["drafter"]) if data["drafter"] else None
        return Lock(ModelFacts.from_dict(data["target"]), drafter)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        first = " ".join(str(error).split("\n")[:3])
        message = f"{path} is not a lock file: {type(error).__name__}: {first}"
        raise ToolkitError(message, hint="Make it anew: toolkit lock RECIPE") from error


def write_lock(recipe: Recipe, open_files: OpenFiles) -> Path:
    """Read both models' facts and write the lock beside the recipe. Raises UnreadableModel; then nothing changed."""
    text = json.dumps(read_models(recipe, open_files).to_dict(), indent=1, sort_keys=True)
    path = lock_path(recipe)
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def _read(source: ModelSource, open_files: OpenFiles) -> ModelFacts:
    if source.folder:
        return read_folder(source.folder)
    if source.kind == "jumpstart":
        message = f"{source} names what only JumpStart's own catalogue can tell"
        raise UnreadableModel(message, hint="Keep the lock as it is, or name the model's hub id.")
    return read_model(open_files(source), source.written)
