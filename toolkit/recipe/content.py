"""The content of what a recipe names: a model's folder, a Dockerfile fragment, and digests of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from toolkit.errors import UnreadableModel, UsageError
from toolkit.recipe.schema import ContainerSection


@dataclass(frozen=True)
class WeightsFile:
    """One file of a model folder: path within it, size in bytes, SHA-256 in hexadecimal."""

    path: str
    size: int
    sha256: str


def digest(data: Any) -> str:
    """SHA-256 of JSON data, in hexadecimal; key order does not matter."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


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


def fragment(section: ContainerSection) -> str:
    """The recipe's own instructions for the end of the Dockerfile, if any. Raises UsageError."""
    if not section.dockerfile:
        return ""
    try:
        return Path(section.dockerfile).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "Correct `container.dockerfile`; a relative path counts from the recipe's folder."
        raise UsageError(f"the Dockerfile fragment {section.dockerfile} cannot be read: {error}", hint=hint) from error


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
