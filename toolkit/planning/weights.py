"""The content of a model folder: what staging uploads, and the name it gets from it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from toolkit.errors import UnreadableModel
from toolkit.planning.resources import digest


@dataclass(frozen=True)
class WeightsFile:
    """One file of a model folder: path within it, size in bytes, SHA-256 in hexadecimal."""

    path: str
    size: int
    sha256: str


def manifest(folder: Path) -> tuple[WeightsFile, ...]:
    """Every file of the folder but hidden ones, sorted by path. Reads all of it: about 1 s per GB."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_hidden(path, folder))
    try:
        return tuple(_describe(path, folder) for path in paths)
    except OSError as error:
        raise UnreadableModel(f"{error.filename} cannot be read: {error.strerror}") from error


def manifest_digest(files: tuple[WeightsFile, ...]) -> str:
    """A digest of names and contents: equal exactly when the folders are."""
    return digest([(file.path, file.sha256) for file in files])


def _describe(path: Path, folder: Path) -> WeightsFile:
    found = path.stat()
    sha256 = _sha256(path, found.st_size, found.st_mtime_ns)
    return WeightsFile(path.relative_to(folder).as_posix(), found.st_size, sha256)


@cache
def _sha256(path: Path, size: int, changed: int) -> str:
    """Once for each state of a file: a plan asks for the same weights many times."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)
