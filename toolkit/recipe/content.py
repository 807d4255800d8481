"""The content of what a recipe names: a model's folder, a Dockerfile fragment, and digests of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from toolkit.errors import UnreadableModel, UsageError, reason
from toolkit.recipe.folder import is_read, model_files
from toolkit.recipe.schema import ContainerSection

CARD = "README.md"
"""A model's card. Nothing reads it to serve the model, so its words may change without a new deployment."""

TRAINED_BY = "training-job.txt"
"""In the folder of a head that was trained: the platform and the name of its job. No part of the model, either."""

ABOUT = (CARD, TRAINED_BY)

PART_BYTES = 8 * 1024**2
"""Files of this size or more go to S3 in parts of it, as boto3 and AWS's CLI send them unless told otherwise."""

# S3 takes no more parts of one object; s3transfer doubles their size until that suffices.
_MOST_PARTS = 10_000
_PIECE_BYTES = 1024**2


@dataclass(frozen=True)
class WeightsFile:
    """One file of a model folder: path within it, size in bytes, and the ContentHash of it."""

    path: str
    size: int
    sha256: str


def digest(data: Any) -> str:
    """SHA-256 of JSON data, in hexadecimal; key order does not matter."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def part_bytes(size: int) -> int:
    """Size of the parts in which S3 gets a file."""
    part = PART_BYTES
    while size > part * _MOST_PARTS:
        part *= 2
    return part


class ContentHash:
    """SHA-256 of a file of `size` bytes as S3 computes it, so that nobody has to read the file there to compare.

    Of a file that goes there in parts it is the SHA-256 of their SHA-256 digests (S3's composite checksum), of a
    smaller one that of the file.
    """

    def __init__(self, size: int) -> None:
        self._in_parts = size >= PART_BYTES
        self._part = self._room = part_bytes(size)
        self._current = hashlib.sha256()
        self._digests: list[bytes] = []

    def update(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            piece, rest = rest[: self._room], rest[self._room :]
            self._current.update(piece)
            self._room -= len(piece)
            if not self._room:
                self._end_part()

    def hexdigest(self) -> str:
        """The digest, once all bytes were taken."""
        if not self._in_parts:
            return self._current.hexdigest()
        last = [self._current.digest()] if self._room < self._part else []
        return hashlib.sha256(b"".join([*self._digests, *last])).hexdigest()

    def _end_part(self) -> None:
        self._digests.append(self._current.digest())
        self._current, self._room = hashlib.sha256(), self._part


def manifest(folder: Path) -> tuple[WeightsFile, ...]:
    """Every file of the folder but hidden ones and what is about it, sorted by path. Reads all of it: about 1 s per GB.

    Raises UnreadableModel for what cannot be read, what is not a file of the folder, and what changes meanwhile.
    """
    return _describe_all(folder, _contents(folder))


def model_manifest(folder: Path, *, code: bool) -> tuple[WeightsFile, ...]:
    """The same of what an engine reads of a model's folder, with `code` its Python too."""
    return _describe_all(folder, (path for path in model_files(folder) if is_read(path.name, code=code)))


def left_out(folder: Path, *, code: bool) -> tuple[str, ...]:
    """The other files of a model's folder but those about it, by their paths. Raises UnreadableModel."""
    others = (path for path in _contents(folder) if not is_read(path.name, code=code))
    return tuple(path.relative_to(folder).as_posix() for path in others)


def _contents(folder: Path) -> Iterator[Path]:
    return (path for path in model_files(folder) if path.parent != folder or path.name not in ABOUT)


def manifest_digest(files: tuple[WeightsFile, ...]) -> str:
    """A digest of names and contents: equal exactly when the folders are."""
    return digest([(file.path, file.sha256) for file in files])


def fragment(section: ContainerSection) -> str:
    """The recipe's own instructions for the end of the Dockerfile, if any. Raises UsageError."""
    if not section.dockerfile:
        return ""
    try:
        return Path(section.dockerfile).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "Correct `container.dockerfile`; a relative path counts from the recipe's folder."
        raise UsageError(
            f"the Dockerfile fragment {section.dockerfile} cannot be read: {reason(error)}", hint=hint
        ) from error


def _describe_all(folder: Path, files: Iterable[Path]) -> tuple[WeightsFile, ...]:
    try:
        return tuple(_describe(path, folder) for path in files)
    except OSError as error:
        hint = "Check that it is there, and that you may read it."
        raise UnreadableModel(f"{error.filename} cannot be read: {error.strerror}", hint=hint) from error


def _describe(path: Path, folder: Path) -> WeightsFile:
    found = path.stat()
    sha256 = _sha256(path, found.st_size, found.st_mtime_ns)
    return WeightsFile(path.relative_to(folder).as_posix(), found.st_size, sha256)


@cache
def _sha256(path: Path, size: int, changed: int) -> str:
    """Once for each state of a file: a plan asks for the same weights many times."""
    content = ContentHash(size)
    with path.open("rb") as stream:
        for piece in iter(partial(stream.read, _PIECE_BYTES), b""):
            content.update(piece)
    after = path.stat()
    if (after.st_size, after.st_mtime_ns) != (size, changed):
        raise UnreadableModel(f"{path} changed while it was read", hint="Wait until it is complete, and try again.")
    return content.hexdigest()
