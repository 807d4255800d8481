"""The files of a model folder. Only files that lie in it count: a link may not bring anything else of this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from toolkit.errors import UnreadableModel

OTHER_WEIGHTS = (".bin", ".pt", ".gguf")
"""Formats of weights besides safetensors that engines read."""

# Weights, configurations and templates, and what tokenizers call their vocabularies (Transformers' VOCAB_FILES_NAMES).
_READ = (".safetensors", *OTHER_WEIGHTS, ".json", ".jinja", ".model", ".tiktoken", ".vocab", ".spm", ".codes")
_READ_NAMES = ("merges.txt", "vocab.txt", "dict.txt")
_CODE = ".py"

_COPY = "Put a copy of the file there: cp --dereference"


def is_read(name: str, *, code: bool) -> bool:
    """Whether an engine reads a file of that name to serve its model; with `code`, the model's Python too.

    Whatever else a publisher puts beside them stays where it is: some programs would run it, or install what it lists.
    """
    return name.endswith(_READ) or name in _READ_NAMES or (code and name.endswith(_CODE))


def model_files(folder: Path) -> Iterator[Path]:
    """Every file of the folder and its sub-folders but hidden ones, sorted by path.

    A link counts as the file that it points to. That has to lie in the folder, or in the cache that the hub's client
    made the folder in, whose snapshots are links to its blobs. Raises UnreadableModel for any other link, and for what
    is not a file: a socket, a pipe, a device.
    """
    allowed = [folder.resolve(), *_blobs(folder.resolve())]
    try:
        yield from sorted(_checked(folder, allowed))
    except OSError as error:
        hint = "Check that it is there, and that you may read it."
        raise UnreadableModel(f"{error.filename} cannot be read: {error.strerror}", hint=hint) from error


def _checked(folder: Path, allowed: list[Path]) -> Iterator[Path]:
    pending = [folder]
    while pending:
        for path in pending.pop().iterdir():
            if path.name.startswith("."):
                continue
            if path.is_dir() and not path.is_symlink():
                pending.append(path)
                continue
            if path.is_symlink():
                _require_inside(path, allowed)
            _require_file(path)
            yield path


def _require_inside(link: Path, allowed: list[Path]) -> None:
    try:
        target = Path(os.path.realpath(link, strict=True))
    except OSError as error:
        raise UnreadableModel(f"{link} is a link to nothing: {error.strerror}", hint="Remove it.") from error
    if not any(target.is_relative_to(folder) for folder in allowed):
        raise UnreadableModel(f"{link} is a link to {target}, which is outside the model's folder", hint=_COPY)


def _require_file(path: Path) -> None:
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        what = "a link to a folder" if stat.S_ISDIR(mode) else "a socket, a pipe or a device"
        raise UnreadableModel(f"{path} is {what}, not a file of a model", hint="Remove it, or put files there.")


def _blobs(folder: Path) -> list[Path]:
    """Where the links of the hub's cache point to: the blobs of the repository, and those that repositories share.

    They are not resolved: a `blobs` that is itself a link leads out.
    """
    for above in (folder, *folder.parents):
        if above.name == "snapshots" and above.parent.name.startswith("models--"):
            return [above.parent / "blobs", above.parent.parent / "blobs"]
    return []
