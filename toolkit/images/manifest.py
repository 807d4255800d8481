"""What an image consists of, as registries list it: in OCI's words, and in Docker's schema 2, which SageMaker wants."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.errors import BuildError

SCHEMA_2 = "application/vnd.docker.distribution.manifest.v2+json"
OCI = "application/vnd.oci.image.manifest.v1+json"
INDEXES = ("application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.image.index.v1+json")
ACCEPTED = (SCHEMA_2, OCI, *INDEXES)
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"

_SCHEMA_2_WORDS = {
    CONFIG: CONFIG,
    LAYER: LAYER,
    "application/vnd.docker.image.rootfs.diff.tar": "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.oci.image.config.v1+json": CONFIG,
    "application/vnd.oci.image.layer.v1.tar+gzip": LAYER,
    "application/vnd.oci.image.layer.v1.tar": "application/vnd.docker.image.rootfs.diff.tar",
}
_PLATFORM = "linux/amd64"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Blob:
    """A part of an image: its layer or configuration, by digest."""

    media_type: str
    digest: str
    size: int

    def as_json(self) -> dict[str, Any]:
        """The descriptor, as it stands in a manifest."""
        return {"mediaType": self.media_type, "size": self.size, "digest": self.digest}


@dataclass(frozen=True)
class Manifest:
    """A manifest as a registry gave it, or as it will be put: `body` is what the digest is of."""

    media_type: str
    body: bytes

    @property
    def digest(self) -> str:
        """The digest by which the image can be pulled."""
        return digest_of(self.body)


@dataclass(frozen=True)
class Parts:
    """What a manifest of one image lists."""

    config: Blob
    layers: tuple[Blob, ...]


def digest_of(content: bytes) -> str:
    """The name that registries give to bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def encode(document: Any) -> bytes:
    """JSON that is the same for the same document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def for_our_platform(index: Manifest, image: str) -> str:
    """Digest of the linux/amd64 image in a list. Raises BuildError if there is none."""
    entries = _decode(index, image).get("manifests", [])
    try:
        platforms = [f"{entry['platform']['os']}/{entry['platform']['architecture']}" for entry in entries]
        if _PLATFORM in platforms:
            return _checked(entries[platforms.index(_PLATFORM)]["digest"])
    except (KeyError, TypeError, ValueError) as error:
        raise BuildError(f"{image}: its list of platforms cannot be read: {error!r}") from error
    known = sorted({platform for platform in platforms if "unknown" not in platform})
    raise _wrong_platform(image, ", ".join(known) or "none")


def check_platform(config: dict[str, Any], image: str) -> None:
    """Raises BuildError for an image that SageMaker's GPU instances cannot run."""
    platform = f"{config.get('os')}/{config.get('architecture')}"
    if platform != _PLATFORM:
        raise _wrong_platform(image, platform)


def parts(manifest: Manifest, image: str) -> Parts:
    """Configuration and layers. Raises BuildError for an unsupported manifest."""
    document = _decode(manifest, image)
    if manifest.media_type not in (SCHEMA_2, OCI) or "config" not in document:
        hint = "Build and push it again with a current version of Docker."
        raise BuildError(f"{image} is of type {manifest.media_type}, not an image that can be read", hint=hint)
    try:
        return Parts(_blob(document["config"]), tuple(_blob(layer) for layer in document["layers"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BuildError(f"{image}: its manifest cannot be read: {error!r}") from error


def schema_2(image: Parts, name: str) -> Manifest:
    """The manifest as Docker schema 2. Raises BuildError for layers that it does not support, such as zstd."""
    layers = [_in_docker_words(layer, name).as_json() for layer in image.layers]
    config = _in_docker_words(image.config, name).as_json()
    return Manifest(SCHEMA_2, encode({"schemaVersion": 2, "mediaType": SCHEMA_2, "config": config, "layers": layers}))


def read_config(body: bytes, image: str, layers: Sequence[Blob]) -> dict[str, Any]:
    """An image's configuration. Raises BuildError when it does not fit the layers."""
    try:
        config = json.loads(body)
        count = len(config["rootfs"]["diff_ids"])
    except (ValueError, KeyError, TypeError) as error:
        raise BuildError(f"{image}: its configuration cannot be read: {error!r}") from error
    if count != len(layers):
        raise BuildError(f"{image}: its configuration has {count} layers, its manifest {len(layers)}")
    check_platform(config, image)
    return dict(config)


def _decode(manifest: Manifest, image: str) -> dict[str, Any]:
    try:
        document = json.loads(manifest.body)
    except ValueError as error:
        raise BuildError(f"{image}: its manifest is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BuildError(f"{image}: its manifest is not a JSON object")
    return document


def _blob(entry: dict[str, Any]) -> Blob:
    return Blob(str(entry["mediaType"]), _checked(entry["digest"]), int(entry["size"]))


def _checked(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is not a sha256 digest")
    return digest


def _in_docker_words(blob: Blob, image: str) -> Blob:
    if word := _SCHEMA_2_WORDS.get(blob.media_type):
        return Blob(word, blob.digest, blob.size)
    message = f"{image} has a layer of type {blob.media_type}, which Docker's schema 2 does not support"
    raise BuildError(message, hint="SageMaker takes only schema 2: push the image again with gzip layers.")


def _wrong_platform(image: str, platforms: str) -> BuildError:
    hint = "Name a base image that is built for it; its digest must be that of the image or of the whole list."
    return BuildError(f"{image} is for {platforms}, and SageMaker's GPU instances need {_PLATFORM}", hint=hint)
