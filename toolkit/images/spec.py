"""An image to build, as data, and what a builder makes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from toolkit.errors import BuildError

UNKNOWN_PYTHON = "3.12"
"""For which packages are taken where neither the recipe nor the catalogue says a base's Python."""

OTHER_BUILDERS = "or build with docker, buildah or codebuild, which run commands"
"""The end of a hint, where a package cannot be had as a wheel."""


@contextmanager
def on_disk(doing: str) -> Iterator[None]:
    """What is written while the block runs: a disk that does not take it is a BuildError, `cannot` do it."""
    try:
        yield
    except OSError as error:
        hint = "Make room, or set TMPDIR to a folder of a disk that has it."
        raise BuildError(f"cannot {doing}: {error}", hint=hint) from error


@dataclass(frozen=True)
class ContextFile:
    """A file of our layer: `content`, or `source` on this machine for a large one."""

    mode: int = 0o644
    content: bytes | None = None
    source: Path | None = None


def sha256(file: ContextFile) -> str:
    """Digest of a file's content, in hexadecimal."""
    if file.source is None:
        return hashlib.sha256(file.content or b"").hexdigest()
    with file.source.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class ImageSpec:
    """A base image, and what our layer puts on it.

    Fields:
        base: reference, with its digest where that is known.
        dockerfile: the whole text, for builders that read one; the other fields say the same for one that does not.
        files: by their absolute paths in the image.
        wheels: exact pins, with their hashes where those are known, installed without what they depend on into
            /opt/toolkit/site-packages.
        python: version of the base's Python, `3.12`, for the wheels.
        needs_run: the Dockerfile has instructions of the user's own, which only a builder with a container can follow.
        tag: digest of all of it.
    """

    base: str
    dockerfile: str
    files: Mapping[str, ContextFile]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    entrypoint: tuple[str, ...]
    user: str | None
    wheels: tuple[str, ...]
    python: str
    needs_run: bool
    tag: str


class Builder(Protocol):
    """One way to build. `name` is the word for it on the command line."""

    @property
    def name(self) -> str:
        """`append`, `docker`, `buildah` or `codebuild`."""

    def build(self, spec: ImageSpec, destination: str, log: Callable[[str], None]) -> str:
        """Build, push to `destination` (registry/repository:tag), and give the pushed manifest's digest.

        The manifest is Docker schema 2: SageMaker refuses OCI. Raises BuildError.
        """
