"""Build without Docker: push our files as layers on top of a base image, through the registry API."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from toolkit.errors import BuildError
from toolkit.images.copy import Connect, Image, Part, find_image, parts_of, send
from toolkit.images.layer import Layer, write_layer
from toolkit.images.manifest import CONFIG, Blob, ImageConfig, Manifest, Parts, digest_of, encode, schema_2
from toolkit.images.publish import publish
from toolkit.images.reference import parse
from toolkit.images.registry import Registry
from toolkit.images.spec import ImageSpec
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
