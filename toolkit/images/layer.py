"""Write a layer of an image: files as tar.gz, reproducibly.

The tar is the same on every machine (`diff_id`). Its packed form, and so the image's digest, is the same wherever zlib
packs alike, which different builds of zlib need not.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from toolkit.errors import BuildError
from toolkit.images.manifest import LAYER, Blob
from toolkit.images.spec import ContextFile

_BUFFER_BYTES = 1024**2
# A layer says the modes of the folders it names, and these are not 755 in any base.
_MODES = {"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700}
# Links in most bases: a folder of that name in a layer would take the link's place, and what it leads to would be lost.
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "run"}


@dataclass(frozen=True)
class Layer:
    """A written layer: the packed blob and the file that holds it, and the digest of what is in it."""

    path: Path
    blob: Blob
    diff_id: str


def write_layer(files: Mapping[str, ContextFile], path: Path, *, level: int = 6) -> Layer:
    """Write files, by their absolute paths in the image, as a layer; `level` is gzip's. Raises BuildError."""
    entries = list(_entries(files))
    try:
        with path.open("wb", buffering=0) as out:
            packed = _Hashing(out)
            with gzip.GzipFile("", "wb", level, cast(IO[bytes], packed), mtime=0) as zipped:
                plain = _Hashing(zipped)
                with tarfile.open(fileobj=cast(IO[bytes], plain), mode="w|", bufsize=_BUFFER_BYTES) as archive:
                    for name, file in entries:
                        _add(archive, name, file)
    except OSError as error:
        raise _failure(error) from error
    return Layer(path, Blob(LAYER, packed.digest, packed.size), plain.digest)


def _entries(files: Mapping[str, ContextFile]) -> Iterator[tuple[str, ContextFile | None]]:
    """Files, and before them the folders they lie in, sorted. Raises BuildError for a path that cannot be."""
    names = {_relative(path): file for path, file in files.items()}
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents} - {"."}
    for name in sorted(folders | names.keys()):
        if name in folders and name in names:
            raise BuildError(f"/{name} is both a file and a folder")
        yield name, names.get(name)


def _relative(path: str) -> str:
    pure = PurePosixPath(path)
    is_whiteout = any(part.startswith(".wh.") for part in pure.parts)
    is_plain = path.startswith("/") and path == str(pure) and not path.startswith("//") and ".." not in pure.parts
    if not is_plain or len(pure.parts) < 2 or is_whiteout:
        message = f"{path!r} is not a path for a file in an image"
        raise BuildError(message, hint="Write an absolute path, such as /opt/toolkit/serve.")
    for link, folder in _LINKS.items():
        if path.startswith(f"/{link}/"):
            hint = f"/{link} is a link to /{folder} in most images, and our layer would replace it."
            raise BuildError(f"cannot put {path} into a layer", hint=f"Write /{folder}/…: {hint}")
    return path.lstrip("/")


def _add(archive: tarfile.TarFile, name: str, file: ContextFile | None) -> None:
    entry = tarfile.TarInfo(name)  # of nobody: uid and gid 0, no names, time 0
    if file is None:
        entry.type, entry.mode = tarfile.DIRTYPE, _MODES.get(name, 0o755)
        archive.addfile(entry)
        return
    entry.mode = file.mode
    with io.BytesIO(file.content or b"") if file.source is None else file.source.open("rb") as stream:
        entry.size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        archive.addfile(entry, stream)


def _failure(error: OSError) -> BuildError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Make room, or set TMPDIR to a folder of a disk that has it; nothing was kept or pushed."
        return BuildError(f"the disk is full where the layer is written: {error}", hint=hint)
    return BuildError(f"the layer cannot be written: {error}")


class _Hashing:
    """A writer that hashes and counts the bytes."""

    def __init__(self, out: io.FileIO | gzip.GzipFile) -> None:
        self._out = out
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self.size += len(data)
        rest = memoryview(data)
        while rest:  # a file takes what the disk still has room for, and fails at the next byte
            rest = rest[self._out.write(rest) :]
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""
