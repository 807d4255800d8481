"""`<recipe>.lock.json`: the facts of both models, pinned, so that checks are the same everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from toolkit import documents
from toolkit.errors import HubError, UnreadableModel, UsageError
from toolkit.files import write_whole
from toolkit.recipe.content import ABOUT
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.folder import is_read
from toolkit.recipe.model_files import ModelFiles, read_folder, read_model, staged_names
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource, is_commit

# Conservative, of published logs: weights come from S3 or the hub at 200 MB/s, and from disk into accelerators at
# 500 MB/s; compiling and capturing CUDA graphs take one to three minutes, on a cold start more. SageMaker's limits:
# botocore 1.44.5, ProductionVariantModelDataDownloadTimeoutInSeconds.
_DOWNLOAD_RATE, _LOAD_RATE = 0.2e9, 0.5e9
_DOWNLOAD_SECONDS, _START_SECONDS = 300, 600
_SHORTEST_SECONDS, _LONGEST_SECONDS = 60, 3600

Sources = tuple[ModelSource, ModelSource | None]

OpenFiles = Callable[[ModelSource], ModelFiles]
"""Where files of a model that is in no folder are read from."""


_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def lock_path(recipe: Recipe) -> Path:
    """Where the recipe's lock lies: beside it, as `<recipe>.lock.json`."""
    return recipe.path.with_suffix(".lock.json")


def read_models(recipe: Recipe, open_files: OpenFiles, sources: Sources | None = None) -> Lock:
    """Read the facts of the recipe's models now. Raises UnreadableModel.

    `sources` replace the locations of target and drafter in the recipe.
    """
    found: dict[str, ModelFacts] = {}
    problems: dict[str, UnreadableModel] = {}
    for (key, written), source in zip(recipe.models.items(), sources or recipe.models.values(), strict=False):
        try:
            found[key] = _read(written.model, source or written, open_files)
        except UnreadableModel as error:
            problems[key] = error
    if len(problems) == 1:
        raise next(iter(problems.values()))
    if problems:
        whys = "; ".join(f"{key}: {error.message}" for key, error in problems.items())
        of_hub = any(isinstance(error, HubError) for error in problems.values())
        kind = HubError if of_hub else UnreadableModel
        raise kind(f"neither model can be read: {whys}", hint=next(iter(problems.values())).hint)
    return Lock(found["target.model"], found.get("speculation.model"))


def read_lock(path: Path) -> Lock | None:
    """The lock file's facts, None when there is no such file. Raises UsageError when it is something else."""
    if not path.is_file():
        return None
    try:
        data = documents.decode(documents.read_file(path))
        drafter = ModelFacts.from_dict(data["drafter"]) if data["drafter"] else None
        images, wheels = (_digests(key, data.get(key, {})) for key in ("images", "wheels"))
        return Lock(ModelFacts.from_dict(data["target"]), drafter, images, wheels)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        first = " ".join(str(error).split("\n")[:3])
        message = f"{path} is not a lock file: {type(error).__name__}: {first}"
        raise UsageError(message, hint="Make it anew: toolkit lock RECIPE") from error


def write_lock(recipe: Recipe, lock: Lock) -> Path:
    """Write the lock beside the recipe; its path. A folder has its name alone there, however the recipe leads to it."""
    target, drafter = _by_name(lock.target, recipe.target), lock.drafter
    if drafter and recipe.drafter:
        drafter = _by_name(drafter, recipe.drafter)
    text = json.dumps(replace(lock, target=target, drafter=drafter).to_dict(), indent=1, sort_keys=True)
    path = lock_path(recipe)
    write_whole(path, text + "\n")
    return path


def _by_name(facts: ModelFacts, source: ModelSource) -> ModelFacts:
    return replace(facts, model=source.folder.name) if source.folder else facts


def pinned(recipe: Recipe, lock: Lock | None) -> Recipe:
    """The recipe at the lock's revisions, with time-outs sized by the weights; what the recipe says itself stands."""
    known = [facts for facts in ((lock.target, lock.drafter) if lock else ()) if facts]
    size = sum(facts.weight_bytes or 0 for facts in known) or None
    timeout = recipe.platform.health_check_timeout or _within_limits(_start_seconds(recipe, size or 0))
    sized = replace(
        recipe,
        platform=recipe.platform.edit(health_check_timeout=timeout),
        download_timeout=_within_limits(_DOWNLOAD_SECONDS + download_seconds(size or 0)),
        weight_bytes=size,
    )
    if lock is None:
        return sized
    speculation, drafter = recipe.speculation, lock.drafter
    if speculation and speculation.drafter and drafter:
        speculation = speculation.edit(revision=_revision(speculation.drafter, drafter))
    facts_of = zip(recipe.models.items(), (lock.target, drafter), strict=False)
    models = [(key, source, facts) for (key, source), facts in facts_of if facts]
    return replace(
        sized,
        target=recipe.target.edit(revision=_revision(recipe.target, lock.target)),
        speculation=speculation,
        model_bytes={source.model: facts.weight_bytes for _, source, facts in models if facts.weight_bytes},
        staged_files={source.model: facts.files for _, source, facts in models if _knows(source, facts)},
        other_files={(key, source.model): _others(source, facts, recipe) for key, source, facts in models},
        image_digests=lock.images,
        wheel_digests=lock.wheels,
        target_type=str(lock.target.config.get("model_type", "")),
    )


def pins(facts: ModelFacts, source: ModelSource) -> bool:
    """Whether a lock's facts are of that model at its revision: a branch or tag means what it did when it was read."""
    if facts.model != source.model:
        return False
    if source.revision in (None, facts.revision):
        return True
    return not source.commit and is_commit(facts.revision) and facts.wanted in ("", source.revision)


def download_seconds(weight_bytes: int) -> float:
    """Seconds that it takes to fetch that much from S3 or the hub. An estimate."""
    return weight_bytes / _DOWNLOAD_RATE


def load_seconds(recipe: Recipe, weight_bytes: int) -> float:
    """Seconds that a container takes to load that much, and to fetch it first where it does so itself. An estimate."""
    fetched = download_seconds(weight_bytes) if recipe.platform.weights == "hub" else 0.0
    return fetched + weight_bytes / _LOAD_RATE


def _start_seconds(recipe: Recipe, weight_bytes: int) -> float:
    """All that there is for an engine that compiles as it starts, which may be too little."""
    if recipe.engine_rules.compilation and not recipe.engine.compile_ahead:
        return _LONGEST_SECONDS
    return _START_SECONDS + load_seconds(recipe, weight_bytes)


def _within_limits(seconds: float) -> int:
    return min(_LONGEST_SECONDS, max(_SHORTEST_SECONDS, round(seconds)))


def _digests(key: str, found: Mapping[str, str]) -> dict[str, str]:
    """A lock's digests under a key. Raises ValueError when one is something else."""
    if wrong := [name for name, digest in found.items() if not _DIGEST.fullmatch(digest)]:
        raise ValueError(f"{key}: {wrong[0]} has no digest `sha256:…`")
    return dict(found)


def _revision(source: ModelSource, facts: ModelFacts) -> str | None:
    return facts.revision if _knows(source, facts) else source.revision


def _knows(source: ModelSource, facts: ModelFacts) -> bool:
    return source.kind == "hub" and bool(facts.revision) and pins(facts, source)


def _read(written: str, source: ModelSource, open_files: OpenFiles) -> ModelFacts:
    if source.folder:
        return read_folder(source.folder)
    files = open_files(source)
    facts = read_model(files, written)
    names = sorted(files.sizes())
    staged = staged_names(names, code=True)
    facts = replace(facts, others=tuple(name for name in names if name not in ABOUT and not is_read(name, code=False)))
    return replace(facts, wanted=source.revision or "main", files=staged) if source.kind == "hub" else facts


def _others(source: ModelSource, facts: ModelFacts, recipe: Recipe) -> tuple[str, ...]:
    """The model's files that its engine does not read, as far as the lock knows them."""
    others = facts.others if pins(facts, source) else ()
    return tuple(name for name in others if not is_read(name, code=recipe.runs_model_code))
