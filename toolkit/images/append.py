"""Build without Docker: push our files as layers on top of a base image, through the registry API.

A layer's tar is the same on every machine (`diff_id`). Its packed form, and so the image's digest, is the same wherever
zlib packs alike, which different builds of zlib need not.
"""

from __future__ import annotations

import copy
import errno
import gzip
import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from toolkit.errors import BuildError
from toolkit.images.copy import Connect, Image, Part, find_image, parts_of, send
from toolkit.images.manifest import CONFIG, LAYER, Blob, ImageConfig, Manifest, Parts, digest_of, encode, schema_2
from toolkit.images.publish import publish
from toolkit.images.reference import parse
from toolkit.images.registry import Registry
from toolkit.images.spec import ContextFile, ImageSpec
from toolkit.images.wheels import fetch_wheels

# A constant time, so that the same image always has the same digest.
_CREATED = "1970-01-01T00:00:00Z"
# gzip's levels: weights hardly shrink, and take many times as long at its usual one.
_WEIGHTS_LEVEL = 1
_LEVEL = 6
_PIECE_BYTES = 1024**2


@dataclass(frozen=True)
class AppendBuilder:
    """Adds a layer to a base image through the registry API, in seconds, wherever Python runs.

    `connect` gives a registry by its host; `folder` is where the layer is written, the usual temporary one when None.
    """

    connect: Connect
    folder: Path | None = None
    name: str = "append"

    def build(self, spec: ImageSpec, destination: str, log: Callable[[str], None]) -> str:
        source, target = parse(spec.base), parse(destination)
        with ExitStack() as stack:
            origin = stack.enter_context(self.connect(source.registry))
            same = target.registry == source.registry
            registry = origin if same else stack.enter_context(self.connect(target.registry))
            image = stack.enter_context(composed(spec, origin, log, self.folder))
            base_layers = parts_of(image.base.parts.layers, origin, source, registry)
            send(registry, target.repository, [*image.own, *base_layers], str(target), log)
            return publish(registry, target, image.manifest)


@dataclass(frozen=True)
class Composed:
    """An image that was put together: its manifest, and those of its parts that its base has not."""

    base: Image
    manifest: Manifest
    own: Sequence[Part]


@contextmanager
def composed(
    spec: ImageSpec,
    origin: Registry,
    log: Callable[[str], None],
    parent: Path | None = None,
    manifest_of: Callable[[Parts, str], Manifest] = schema_2,
) -> Iterator[Composed]:
    """The image on its base, which `origin` has, until the block ends; layers of the base are never packed anew.

    `manifest_of` makes the manifest of the parts: what SageMaker takes, if nothing else is said. Raises BuildError.
    """
    if spec.needs_run:
        message = "builder `append` only adds files, and cannot run the instructions of this Dockerfile"
        raise BuildError(message, hint="Use a builder that can: docker, buildah or codebuild.")
    base = find_image(origin, parse(spec.base))
    manifest_of(base.parts, base.name)  # before minutes are spent on an unsuitable base image
    with _working_folder(parent) as folder:
        layers = _write_layers(spec, Path(folder), log)
        body = encode(_config(base, spec, layers))
        config = Blob(CONFIG, digest_of(body), len(body))
        own = [Part(layer.blob, partial(_read, layer.path)) for layer in layers]
        own.append(Part(config, lambda start: iter([body[start:]])))
        listed = (*base.parts.layers, *(layer.blob for layer in layers))
        yield Composed(base, manifest_of(Parts(config, listed), base.name), own)


def _working_folder(parent: Path | None) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="toolkit-image-", dir=parent)
    except OSError as error:
        message = f"cannot create a temporary folder for the layer: {error}"
        raise BuildError(message, hint="Set TMPDIR to a writable folder.") from error


def _write_layers(spec: ImageSpec, folder: Path, log: Callable[[str], None]) -> list[Layer]:
    """Large files first and by themselves: they seldom change, so the next image finds their layer there already."""
    large = {path: file for path, file in spec.files.items() if file.source is not None}
    small = {path: file for path, file in spec.files.items() if file.source is None}
    small |= fetch_wheels(spec.wheels, spec.python, folder)
    layers = []
    for name, files, level in (("large", large, _WEIGHTS_LEVEL), ("small", small, _LEVEL)):
        if files:
            layers.append(write_layer(files, folder / f"{name}.tar.gz", level=level))
            log(f"layer of {len(files)} files: {layers[-1].blob.size / 1e6:.1f} MB")
    return layers


def _config(base: Image, spec: ImageSpec, layers: list[Layer]) -> ImageConfig:
    """The base's configuration with our layers and settings, as a Dockerfile would leave it."""
    config = copy.deepcopy(base.config)
    settings = config["config"] = config.get("config") or {}
    settings["Env"] = _environment(settings.get("Env") or [], spec.env)
    settings["Labels"] = {**(settings.get("Labels") or {}), **spec.labels}
    if spec.entrypoint:
        settings["Entrypoint"] = list(spec.entrypoint)
        settings.pop("Cmd", None)  # the base's arguments were for the base's entrypoint
    if spec.user is not None:
        settings["User"] = spec.user
    # A history must have an entry for every layer.
    unknown = [{"created": _CREATED, "created_by": "base"} for _ in base.parts.layers]
    entry = {"created": _CREATED, "created_by": "toolkit build, append"}
    config["history"] = [*(config.get("history") or unknown), *(entry for _ in layers)]
    config["rootfs"]["diff_ids"] += [layer.diff_id for layer in layers]
    config["created"] = _CREATED
    return config


def _environment(base: list[str], own: Mapping[str, str]) -> list[str]:
    variables = dict(variable.partition("=")[::2] for variable in base)
    return [f"{name}={value}" for name, value in {**variables, **dict(sorted(own.items()))}.items()]


def _read(path: Path, start: int) -> Iterator[bytes]:
    with path.open("rb") as stream:
        stream.seek(start)
        while piece := stream.read(_PIECE_BYTES):
            yield piece


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
    return BuildError(f"the layer cannot be written: {error}", hint="Set TMPDIR to a folder of a disk that works.")


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
