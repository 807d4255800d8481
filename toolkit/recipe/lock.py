"""`<recipe>.lock.json`: the facts of both models, pinned, so that checks are the same everywhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import ToolkitError
from toolkit.recipe.facts import ModelFacts, read_folder
from toolkit.recipe.resolve import Recipe


@dataclass(frozen=True)
class Lock:
    """Facts of the recipe's models; `drafter` is None for a baseline."""

    target: ModelFacts
    drafter: ModelFacts | None = None


def lock_path(recipe: Recipe) -> Path:
    """Where the recipe's lock lies: beside it, as `<recipe>.lock.json`."""
    return recipe.path.with_suffix(".lock.json")


def read_models(recipe: Recipe) -> Lock:
    """Facts read from the recipe's folders now. Raises UnreadableModel."""
    return Lock(read_folder(recipe.target), read_folder(recipe.speculation.drafter) if recipe.speculation else None)


def read_lock(path: Path) -> Lock | None:
    """The lock file's facts, None when there is no such file."""
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        drafter = ModelFacts.from_dict(data["drafter"]) if data["drafter"] else None
        return Lock(ModelFacts.from_dict(data["target"]), drafter)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolkitError(f"{path} is not a lock file: {error!r}", hint="Make it anew: toolkit lock RECIPE") from error


def write_lock(recipe: Recipe) -> Path:
    """Read both models' facts and write the lock beside the recipe."""
    lock = read_models(recipe)
    path = lock_path(recipe)
    data = {"target": lock.target.to_dict(), "drafter": lock.drafter.to_dict() if lock.drafter else None}
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path
