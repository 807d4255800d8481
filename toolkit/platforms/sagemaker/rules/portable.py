"""A recipe's files so that another machine deploys the same: what the model registry keeps of it.

Models of this machine's folders are named by where they are staged, what the file leaves open is as it was chosen, the
lock pins the images that were looked at, and other files lie beside the recipe.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from toolkit import documents
from toolkit.engines.arguments import DRAFTER_CHANNEL, is_in_image
from toolkit.errors import UsageError
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.kinds.image import base_images
from toolkit.platforms.sagemaker.rules.model_data import source_data
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.lock import lock_path, read_lock
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource
from toolkit.recipe.values import INSTANCE_TYPES, VERSION
from toolkit.sizing.fit import TENSOR_PARALLEL

RECIPE_FILE, REPORT_FILE = "recipe.yaml", "report.json"
_DOCKERFILE, _WORKLOADS = "Dockerfile", "workloads"


def portable_files(recipe: Recipe, account: Account) -> dict[str, str]:
    """Names and texts of the files. Raises UsageError for what cannot be deployed from there, or is no text."""
    staged = _staged(recipe, account)
    files = {RECIPE_FILE: _written(recipe, staged)}
    if (lock := _lock(recipe, account, staged)) is not None:
        files[Path(RECIPE_FILE).with_suffix(".lock.json").name] = json.dumps(lock.to_dict(), indent=1, sort_keys=True)
    if recipe.container and recipe.container.dockerfile:
        files[_DOCKERFILE] = _text("container.dockerfile", Path(recipe.container.dockerfile))
    for name, path in recipe.workloads.items():
        files[_workload(name, path)] = _text(f"workloads.{name}", path)
    return files


def _staged(recipe: Recipe, account: Account) -> dict[str, str]:
    """Where models of folders lie in S3, by their keys in the recipe."""
    found = {}
    for key, source in recipe.models.items():
        if source.folder is None:
            continue
        if key != "target.model" and is_in_image(recipe):
            hint = "Write `container: {bake_drafter: false}`, or name a drafter of the hub."
            raise UsageError(
                f"{key}: a drafter of a folder lies in the image, which is built from that folder", hint=hint
            )
        data = source_data("" if key == "target.model" else DRAFTER_CHANNEL, source, recipe, account)
        assert data, "a folder is always staged"
        found[key] = data.uri
    return found


def _written(recipe: Recipe, staged: Mapping[str, str]) -> str:
    """The recipe's text, with what has changed in it; comments stay. It is trained elsewhere, so `training` goes."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    data: Any = yaml.load(recipe.path.read_text(encoding="utf-8"))
    data.pop("training", None)
    for key, uri in staged.items():
        data[key.partition(".")[0]]["model"] = uri
    if VERSION in recipe.chosen:
        data["engine"]["version"] = recipe.engine.version
    if INSTANCE_TYPES in recipe.chosen:
        data["platform"]["instance_types"] = list(recipe.platform.types)
    if f"engine.args.{TENSOR_PARALLEL}" in recipe.chosen:
        data["engine"].setdefault("args", {})[TENSOR_PARALLEL] = recipe.engine.args[TENSOR_PARALLEL]
    if recipe.container and recipe.container.dockerfile:
        data["container"]["dockerfile"] = f"./{_DOCKERFILE}"
    for name, path in recipe.workloads.items():
        data["workloads"][name] = f"./{_workload(name, path)}"
    text = io.StringIO()
    yaml.dump(data, text)
    return text.getvalue()


def _lock(recipe: Recipe, account: Account, staged: Mapping[str, str]) -> Lock | None:
    """The lock, with the facts of what is staged and the images that tags mean now; none for an unlocked hub model."""
    lock = read_lock(lock_path(recipe))
    models = dict(recipe.models)
    target = _facts(models["target.model"], staged.get("target.model")) or (lock.target if lock else None)
    if target is None:
        return None
    drafter = _facts(models.get("speculation.model"), staged.get("speculation.model")) or (
        lock.drafter if lock else None
    )
    known = {image: account.digests[image] for image in base_images(recipe, account) if image in account.digests}
    images = {image: found.partition("@")[2] for image, found in known.items()}
    return Lock(target, drafter, {**images, **(lock.images if lock else {})}, lock.wheels if lock else {})


def _facts(source: ModelSource | None, uri: str | None) -> ModelFacts | None:
    """Of a model that is staged from a folder."""
    return replace(read_folder(source.folder), model=uri) if source and source.folder and uri else None


def _workload(name: str, path: Path) -> str:
    return f"{_WORKLOADS}/{name}{path.suffix}"


def _text(key: str, path: Path) -> str:
    try:
        return documents.read_file(path, documents.Limits(size=64 * 1024**2)).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{key}: {path} cannot be read: {error.strerror}", hint="Name a file that exists.") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{key}: {path} is no text, which is all that is registered", hint="Write it as .jsonl."
        ) from error
    except documents.Unfit as error:
        raise UsageError(f"{key}: {path} cannot be registered: {error}", hint="Name a shorter file.") from error
