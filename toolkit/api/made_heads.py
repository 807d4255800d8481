"""Heads that a job trained: fetch them, check them, put them where the recipe names them, and say so in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, TypeVar

from toolkit import documents
from toolkit.api.context import read_lock_of
from toolkit.apply.progress import Progress
from toolkit.checks.run import check
from toolkit.errors import PlatformError, RecipeError, ToolkitError, UsageError
from toolkit.files import write_whole
from toolkit.planning.plan import Action
from toolkit.recipe.content import ABOUT, CARD, TRAINED_BY, manifest, manifest_digest
from toolkit.recipe.edit import with_section, with_speculation, without_key
from toolkit.recipe.facts import Lock
from toolkit.recipe.lock import write_lock
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import from_folder
from toolkit.recipe.trained import with_method

if TYPE_CHECKING:
    from toolkit.platforms.rules import TrainingPlatform

_T = TypeVar("_T")

REPORT = "report.json"
"""In the head's folder: what was measured while it was trained."""


@dataclass(frozen=True)
class MadeHead:
    """A head that the job made, fetched to `folder`: what was measured, and its card; the recipe has its method."""

    recipe: Recipe
    folder: Path
    metrics: Mapping[str, Any]
    card: str


@contextmanager
def fetched_heads(
    recipe: Recipe, job: Action, platform: TrainingPlatform, progress: Progress, *, beside: bool
) -> Iterator[Path]:
    """What the job made, `beside` where it is to be put, for as long as the context is open."""
    assert recipe.drafter
    with _scratch(recipe.drafter.folder if beside else None) as folder:
        with progress.stage("fetch the heads" if recipe.compared else "fetch the head"):
            platform.fetch_head(job.request, folder)
        yield folder


def read_made(recipe: Recipe, fetched: Path) -> list[MadeHead]:
    """The head, or those that are compared."""
    heads = {fetched / method: with_method(recipe, method) for method in recipe.compared} or {fetched: recipe}
    return [
        MadeHead(
            own,
            folder,
            _told(folder / REPORT, "report", partial(documents.parse, dict[str, Any]), {}),
            _told(folder / CARD, "model card", partial(bytes.decode, errors="replace"), ""),
        )
        for folder, own in heads.items()
    ]


def require_free(recipe: Recipe, platform: TrainingPlatform) -> None:
    """Raise UsageError if there is something already where the head shall be put."""
    assert recipe.drafter
    folder = recipe.drafter.folder
    if folder is None:
        is_free = not platform.head_at(str(recipe.drafter))
    else:
        is_free = not folder.exists() or not any(folder.iterdir())
    if not is_free:
        raise _occupied(recipe)


def _occupied(recipe: Recipe) -> UsageError:
    hint = "Name another place in `speculation.model`, or replace what is there: add --overwrite."
    return UsageError(f"{recipe.drafter} is not empty, and does not hold the head of this command", hint=hint)


def deliver(made: MadeHead, job: Action, platform: TrainingPlatform, overwrite: bool, progress: Progress) -> None:
    """Put a head where the recipe names it, after its checks."""
    recipe, fetched = made.recipe, made.folder
    assert recipe.drafter
    destination = recipe.drafter.folder
    with progress.stage("check the head"):
        _require_fit(recipe, fetched)
    (fetched / TRAINED_BY).write_text(f"{recipe.platform.name} {job.name}\n", encoding="ascii")
    if destination is None:
        _deliver_elsewhere(recipe, fetched, platform, overwrite, progress)
    elif not destination.exists() or manifest_digest(manifest(destination)) != manifest_digest(manifest(fetched)):
        if not overwrite:
            require_free(recipe, platform)
        platform.publish_head(job.request, destination.name, recipe.method if recipe.compared else "")
        _replace(destination, fetched)
    elif not (destination / TRAINED_BY).exists():  # an earlier version of the toolkit put the head there
        shutil.copyfile(fetched / TRAINED_BY, destination / TRAINED_BY)


def _deliver_elsewhere(
    recipe: Recipe, fetched: Path, platform: TrainingPlatform, overwrite: bool, progress: Progress
) -> None:
    """To an address that is no folder here, such as in S3. What lies there of the same head is completed."""
    address = str(recipe.drafter)
    own = {file.path: file.sha256 for file in manifest(fetched)}
    there = platform.head_at(address)
    if not overwrite and any(own.get(name) != sha256 for name, sha256 in there.items() if name not in ABOUT):
        raise _occupied(recipe)
    with progress.stage(f"copy the head to {address}"):
        if not {*own, TRAINED_BY} <= there.keys() or any(there[name] != sha256 for name, sha256 in own.items()):
            platform.put_head(fetched, address, progress)
        _lock_head(recipe, fetched)


def name_in_recipe(written: Recipe, trained: Recipe, progress: Progress) -> None:
    """Have the file of a recipe that served without the head, or with another method, say that the head drafts now."""
    assert written.training
    assert trained.speculation is not None
    if written.training.head is None:
        if written.method != trained.method:
            text = with_speculation(written.path.read_text(encoding="utf-8"), {"method": trained.method})
            write_whole(written.path, text)
            progress.say(f"{written.path} drafts with method {trained.method} now, in place of {written.method}")
        return
    assert trained.drafter is not None
    tokens, folder = trained.speculation.num_speculative_tokens, trained.drafter.folder
    model = from_folder(written.path.parent, folder) if folder else str(trained.drafter)
    values: dict[str, int | str] = {"method": trained.method, "model": model, "num_speculative_tokens": tokens}
    text = written.path.read_text(encoding="utf-8")
    write_whole(written.path, without_key(with_section(text, "speculation", values), "training", "head"))
    progress.say(f"{written.path} drafts with {model} now, in place of {written.method}")


def _lock_head(recipe: Recipe, head: Path) -> None:
    """Write what the checks need to know of a head in S3 into the recipe's lock, which is made for a target here."""
    locked = read_lock_of(recipe)
    if locked is None and recipe.target.folder:
        locked = Lock(read_folder(recipe.target.folder))
    if locked is None:
        return
    facts = replace(read_folder(head), model=str(recipe.drafter), source="its training job")
    write_lock(recipe, replace(locked, drafter=facts))


def _require_fit(recipe: Recipe, head: Path) -> None:
    """Raise RecipeError if the head has an error for this recipe: it is then put nowhere."""
    assert recipe.speculation
    trained = recipe.speculation.edit(model=str(head), revision=None)
    report = check(replace(recipe, speculation=trained, training=None))
    if report.errors:
        raise RecipeError(f"{recipe.path} (the trained head)", report.errors)


@contextmanager
def _scratch(destination: Path | None) -> Iterator[Path]:
    """A new folder on the destination's disk, so that moving it there is one step; it is removed in the end."""
    try:
        parent = destination.parent if destination else None
        if parent:
            parent.mkdir(parents=True, exist_ok=True)
        folder = Path(mkdtemp(prefix=".head-", dir=parent))
    except OSError as error:
        hint = "Make room or set its permissions; the same command goes on with the head that was trained."
        raise PlatformError(
            f"{destination or error.filename or 'a temporary folder'} cannot be written: {error.strerror}", hint=hint
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _replace(destination: Path, head: Path) -> None:
    """Put the head's folder at the destination; whatever fails, what was there stays."""
    before = destination.with_name(f".{destination.name}.{os.getpid()}")
    head.chmod(0o755)  # a temporary folder is its owner's alone
    try:
        if destination.exists():
            destination.replace(before)
        head.replace(destination)
    except OSError as error:
        if before.exists() and not destination.exists():
            before.replace(destination)
        message = f"{destination} could not be replaced: {error.strerror}"
        raise PlatformError(message, hint="It was not changed. See who may write there, and run it again.") from error
    shutil.rmtree(before, ignore_errors=True)


def _told(file: Path, what: str, read: Callable[[bytes], _T], without: _T) -> _T:
    """What a file in the head's folder says; `without` where there is none."""
    try:
        return read(documents.read_file(file))
    except FileNotFoundError:
        return without
    except documents.Unfit as error:
        raise ToolkitError(f"{file.name} of the trained head is not a {what}: {error}") from error
