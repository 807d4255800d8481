"""Base images of a few bytes, made and pushed with our own code, and what an image in a registry holds."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.images.append import write_layer
from toolkit.images.manifest import CONFIG, LAYER, OCI, SCHEMA_2, Blob, Manifest, digest_of, encode, parts
from toolkit.images.registry import Registry
from toolkit.images.spec import ContextFile, ImageSpec
from toolkit.images.upload import Upload

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
OCI_ZSTD_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
SETTINGS = {
    "Env": ["PATH=/usr/bin:/bin", "LANG=C"],
    "Labels": {"maker": "base"},
    "Entrypoint": ["/usr/bin/start"],
    "Cmd": ["--port", "80"],
}


def push_blob(registry: Registry, repository: str, media_type: str, content: bytes) -> Blob:
    blob = Blob(media_type, digest_of(content), len(content))
    Upload(registry, repository, blob, lambda start: iter([content[start:]])).run()
    return blob


def push_base(
    registry: Registry,
    repository: str,
    tag: str = "1",
    *,
    media_type: str = SCHEMA_2,
    layer_type: str = "",
    architecture: str = "amd64",
    content: bytes = b"base",
    layers: int = 1,
    runs_python: bool = False,
    settings: Mapping[str, Any] = SETTINGS,
) -> Manifest:
    """An image of one file, /usr/bin/start; the layer that has it is there so many times.

    With `runs_python` it also has what our programs begin with.
    """
    is_oci = media_type == OCI
    names = ("start", *(("env", "python3") if runs_python else ()))
    with tempfile.TemporaryDirectory() as folder:
        layer = write_layer({f"/usr/bin/{name}": ContextFile(0o755, content) for name in names}, Path(folder) / "layer")
        packed = layer.path.read_bytes()
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id] * layers},
        "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "base"}] * layers,
    }
    listed = [push_blob(registry, repository, layer_type or (OCI_LAYER if is_oci else LAYER), packed)] * layers
    body = push_blob(registry, repository, OCI_CONFIG if is_oci else CONFIG, encode(config))
    document = {"schemaVersion": 2, "mediaType": media_type, "config": body.as_json()}
    manifest = Manifest(media_type, encode({**document, "layers": [layer.as_json() for layer in listed]}))
    registry.put_manifest(repository, tag, manifest)
    return manifest


def push_index(registry: Registry, repository: str, tag: str, images: Mapping[str, Manifest]) -> None:
    """A list of images by architecture."""
    entries = [
        {
            "mediaType": image.media_type,
            "digest": image.digest,
            "size": len(image.body),
            "platform": {"os": "linux", "architecture": architecture},
        }
        for architecture, image in images.items()
    ]
    body = encode({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries})
    registry.put_manifest(repository, tag, Manifest(OCI_INDEX, body))


def spec(base: str, **changes: Any) -> ImageSpec:
    """An image that puts one program on a base."""
    fields = {
        "base": base,
        "dockerfile": "FROM base\n",
        "files": {"/opt/toolkit/serve": ContextFile(0o755, b"#!/usr/bin/env python3\n")},
        "env": {},
        "labels": {},
        "entrypoint": ("/opt/toolkit/serve",),
        "user": None,
        "wheels": (),
        "python": "3.12",
        "needs_run": False,
        "tag": "0123456789abcdef",
    }
    return ImageSpec(**{**fields, **changes})


def config_of(registry: Registry, repository: str, digest: str) -> dict[str, Any]:
    manifest = registry.find_manifest(repository, digest)
    assert manifest is not None
    return dict(json.loads(registry.small_blob(repository, parts(manifest, repository).config)))


def layers_of(registry: Registry, repository: str, digest: str) -> list[dict[str, tarfile.TarInfo]]:
    """What each layer holds, by path."""
    manifest = registry.find_manifest(repository, digest)
    assert manifest is not None
    return [
        {entry.name: entry for entry in tarfile.open(fileobj=io.BytesIO(registry.small_blob(repository, layer)))}
        for layer in parts(manifest, repository).layers
    ]
