"""What is known of models without a network: from folders and locks, and what the package knows of public models.

The last comes from the locks of its recipes, and from catalog/models.json. Nobody has read those models' files on this
machine, so their facts are `partial`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from toolkit.catalog.lookup import FOLDER
from toolkit.errors import ToolkitError
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.lock import lock_path, pins, read_lock
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource

_NOT_READ = ("generation_config", "tensors and tokenizer")


def catalogue_dir() -> Path:
    """The folder of the recipes that come with the toolkit."""
    packaged = Path(__file__).parents[1] / "_data" / "recipes"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "recipes"


def catalogue() -> list[str]:
    """Names of the recipes that come with the toolkit, such as `tiny/p-eagle`."""
    root = catalogue_dir()
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.glob("*/*.yaml"))


def known_model(name: str) -> ModelFacts | None:
    """Facts of the public model `name`, such as `Qwen/Qwen3-8B`; case does not matter, as on the hub."""
    return known_models().get(name.lower())


def known_facts(recipe: Recipe) -> Lock | None:
    """Facts of both models, from folders, the lock, or what the toolkit knows; None if the target is unknown."""
    lock = None
    with suppress(ToolkitError):
        lock = read_lock(lock_path(recipe))
    target = _facts(recipe.target, lock.target if lock else None)
    drafter = _facts(recipe.drafter, lock.drafter if lock else None) if recipe.drafter else None
    return Lock(target, drafter) if target else None


def _facts(source: ModelSource, locked: ModelFacts | None) -> ModelFacts | None:
    if source.folder:
        with suppress(ToolkitError):
            return read_folder(source.folder)
        return None
    if locked and pins(locked, source):
        return locked
    return known_model(source.model)


@cache
def known_models() -> Mapping[str, ModelFacts]:
    """Every public model that the package knows, by its name in lower case."""
    data = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
    listed = {entry["model"].lower(): _listed(entry) for entry in data["models"]}
    return {**listed, **{facts.model.lower(): facts for facts in _locked()}}


def _listed(entry: dict[str, object]) -> ModelFacts:
    rest: dict[str, object] = {
        "revision": "",
        "generation_config": {},
        "tensors": None,
        "tokenizer": None,
        "weight_bytes": None,
    }
    return ModelFacts.from_dict({**rest, "partial": True, "unverified": _NOT_READ, **entry})


def _locked() -> Iterator[ModelFacts]:
    """Both models of every recipe that comes with the toolkit, if they are on the hub."""
    for path in sorted(catalogue_dir().glob("*/*.lock.json")):
        with suppress(ToolkitError):
            lock = read_lock(path)
            for facts in (lock.target, lock.drafter) if lock else ():
                if facts and "/" in facts.model and ":" not in facts.model:
                    yield facts
