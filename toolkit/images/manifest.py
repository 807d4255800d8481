"""What an image consists of, as registries list it: in OCI's words, and in Docker's schema 2, which SageMaker wants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypeVar

from pydantic import AliasPath, Field, StringConstraints

from toolkit import documents
from toolkit.errors import BuildError
from toolkit.open_object import OpenObject

T = TypeVar("T")

SCHEMA_2 = "application/vnd.docker.distribution.manifest.v2+json"
OCI = "application/vnd.oci.image.manifest.v1+json"
INDEXES = ("application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.image.index.v1+json")
OTHER_CONTENT = (
    "Try again. If it stays: a proxy may change what passes, or the registry has lost it; copy the image anew."
)
NO_REGISTRY = "Check that the name is a registry's, and that no proxy or login page answers in its place."
ACCEPTED = (SCHEMA_2, OCI, *INDEXES)
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
ZSTD_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"

_SCHEMA_2_WORDS = {
    CONFIG: CONFIG,
    LAYER: LAYER,
    "application/vnd.docker.image.rootfs.diff.tar": "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.oci.image.config.v1+json": CONFIG,
    "application/vnd.oci.image.layer.v1.tar+gzip": LAYER,
    "application/vnd.oci.image.layer.v1.tar": "application/vnd.docker.image.rootfs.diff.tar",
}
_OCI_WORDS = {
    CONFIG: "application/vnd.oci.image.config.v1+json",
    LAYER: "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar": "application/vnd.oci.image.layer.v1.tar",
}
_ANY_DOCUMENT = ("application/json", "application/octet-stream", "text/plain")
_PLATFORM = "linux/amd64"
# Images of hundreds of layers do not start, and none is as large as a TiB.
_MOST_LAYERS = 1000
_MOST_BYTES = 2**40
_Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Blob:
    """A part of an image, its layer or configuration, as a manifest points to it."""

    media_type: Annotated[str, Field(alias="mediaType", max_length=255)]
    digest: _Digest
    size: Annotated[int, Field(ge=0, lt=_MOST_BYTES, strict=True)]

    def as_json(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "size": self.size, "digest": self.digest}


@dataclass(frozen=True)
class Parts:
    """What the manifest of one image lists, in OCI's words or Docker's."""

    config: Blob
    layers: Annotated[tuple[Blob, ...], Field(max_length=_MOST_LAYERS)]


@dataclass(frozen=True)
class _Platform:
    os: str
    architecture: str

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


@dataclass(frozen=True)
class _Entry:
    """An image of several: the one for a platform. One that names none may be a list itself."""

    digest: _Digest
    platform: _Platform | None = None


@dataclass(frozen=True)
class _Index:
    """A list of images, one for each platform."""

    manifests: Annotated[tuple[_Entry, ...], Field(max_length=_MOST_LAYERS)] = ()


class _Files(OpenObject):
    diff_ids: list[_Digest]


class _Settings(OpenObject, total=False):
    Env: list[str] | None
    Labels: dict[str, str] | None
    Entrypoint: list[str] | None
    Cmd: list[str] | None
    User: str | None
    OnBuild: list[str] | None


class ImageConfig(OpenObject):
    """An image's configuration: what we read or change of it; the rest is kept as it is."""

    os: str
    architecture: str
    rootfs: _Files
    config: NotRequired[_Settings | None]
    history: NotRequired[list[dict[str, Any]] | None]
    created: NotRequired[str | None]


@dataclass(frozen=True)
class Manifest:
    """A manifest as a registry gave it, or as it will be put: `body` is what the digest is of."""

    media_type: str
    body: bytes

    @property
    def digest(self) -> str:
        return digest_of(self.body)


@dataclass(frozen=True)
class _Kind:
    """What a manifest says that it is."""

    media_type: Annotated[str, Field(alias="mediaType", max_length=255)] = ""


def media_type_of(content_type: str, body: bytes) -> str:
    """What a manifest is, by the header it came with, or by itself where that only says that it is some document."""
    word = content_type.partition(";")[0].strip().lower()
    if word and word not in _ANY_DOCUMENT:
        return word
    try:
        return documents.parse(_Kind, body).media_type or word
    except documents.Unfit:
        return word


def digest_of(content: bytes) -> str:
    """The name that registries give to bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def at(first: str, *path: str | int) -> Any:
    """Of a document: the field that lies at this path, the first key outermost."""
    return Field(validation_alias=AliasPath(first, *path))


def parsed(model: type[T], content: bytes, what: str) -> T:
    """The document as `model`. Raises BuildError, which names it by `what`."""
    try:
        return documents.parse(model, content)
    except documents.Unfit as error:
        raise BuildError(f"{what} cannot be read: {error}", hint=OTHER_CONTENT) from error


def encode(document: Any) -> bytes:
    """JSON that is the same for the same document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def for_our_platform(index: Manifest, image: str) -> str:
    """Digest of the linux/amd64 image in a list, else of the first that names no platform. Raises BuildError."""
    entries = parsed(_Index, index.body, f"{image}: its list of platforms").manifests
    digests = {str(entry.platform or ""): entry.digest for entry in reversed(entries)}
    if found := digests.get(_PLATFORM) or digests.get(""):
        return found
    known = sorted(platform for platform in digests if "unknown" not in platform)
    raise _wrong_platform(image, ", ".join(known) or "none")


def parts(manifest: Manifest, image: str) -> Parts:
    """Configuration and layers. Raises BuildError for an unsupported manifest."""
    if manifest.media_type not in (SCHEMA_2, OCI):
        hint = "Build and push it again with a current version of Docker."
        raise BuildError(f"{image} is of type {manifest.media_type}, not an image that can be read", hint=hint)
    return parsed(Parts, manifest.body, f"{image}: its manifest")


def schema_2(image: Parts, name: str) -> Manifest:
    """The manifest as Docker schema 2. Raises BuildError for layers that it does not support, such as zstd."""
    layers = [_in_docker_words(layer, name).as_json() for layer in image.layers]
    config = _in_docker_words(image.config, name).as_json()
    return Manifest(SCHEMA_2, encode({"schemaVersion": 2, "mediaType": SCHEMA_2, "config": config, "layers": layers}))


def as_it_is_packed(image: Parts, name: str) -> Manifest:
    """The manifest as Docker schema 2, or in OCI's words where a layer is packed with zstd: for who runs both."""
    if all(layer.media_type != ZSTD_LAYER for layer in image.layers):
        return schema_2(image, name)
    config, *layers = (
        Blob(_OCI_WORDS.get(one.media_type, one.media_type), one.digest, one.size).as_json()
        for one in (image.config, *image.layers)
    )
    return Manifest(OCI, encode({"schemaVersion": 2, "mediaType": OCI, "config": config, "layers": layers}))


def read_config(body: bytes, image: str, layers: Sequence[Blob]) -> ImageConfig:
    """An image's configuration. Raises BuildError when it does not fit the layers, or SageMaker's GPU instances."""
    config = parsed(ImageConfig, body, f"{image}: its configuration")
    count = len(config["rootfs"]["diff_ids"])
    if count != len(layers):
        message = f"{image}: its configuration has {count} layers, its manifest {len(layers)}"
        raise BuildError(message, hint="Build and push it again.")
    if (platform := f"{config['os']}/{config['architecture']}") != _PLATFORM:
        raise _wrong_platform(image, platform)
    return config


def _in_docker_words(blob: Blob, image: str) -> Blob:
    if word := _SCHEMA_2_WORDS.get(blob.media_type):
        return Blob(word, blob.digest, blob.size)
    message = f"{image} has a layer of type {blob.media_type}, which Docker's schema 2 does not support"
    raise BuildError(message, hint="SageMaker takes only schema 2: push the image again with gzip layers.")


def _wrong_platform(image: str, platforms: str) -> BuildError:
    hint = "Name a base image that is built for it; its digest must be that of the image or of the whole list."
    return BuildError(f"{image} is for {platforms}, and SageMaker's GPU instances need {_PLATFORM}", hint=hint)
