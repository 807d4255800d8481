"""Base images of the shapes that users have, made of the stand-in for AWS's and of a few files on top of it.

| shape | what it is like |
|---|---|
| `aws` | one virtual environment, first on PATH; Docker's schema 2 |
| `vllm` | Python on the usual PATH without a virtual environment, another entrypoint and folder to work in |
| `ngc` | forty layers in OCI's words, files that upper ones take away, a user, ports, volumes, odd variables |
| `busybox` | Alpine's: one program is the shell and `env`, with the C library that Python here needs |
| `nested` | a list of images in a list, and an entry of it without a platform |
| `no-passwd` | neither users nor groups are named |
| `deepest` | as many layers as a container may have, one is ours |
| `plain` | a layer that is not packed |

The others can be no image of ours by `append`, or not as they are; the tests say why.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from backports import zstd
from small_images import OCI_CONFIG, OCI_LAYER, push_blob
from standin_base import ENVIRONMENT, VENV, python, tar_of_layer
from system_packages import install

from toolkit.images.manifest import CONFIG, LAYER, OCI, SCHEMA_2, ZSTD_LAYER, Manifest, encode
from toolkit.images.registry import Registry

Files = Mapping[str, bytes | str]
"""A file's content, or what the link points to, by path."""

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
SITE_PACKAGES = f"opt/venv/lib/python{PYTHON}/site-packages"
MOST_LAYERS = 125

_PLAIN_LAYER = "application/vnd.docker.image.rootfs.diff.tar"
_INDEX = "application/vnd.oci.image.index.v1+json"
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BUSYBOX = "bin/busybox"
_ODD = ["QUOTED=a \"b\" 'c' $HOME", "LINES=one\ntwo", "EMPTY=", "NVIDIA_REQUIRE_CUDA=cuda>=9.0 brand=tesla,driver>=470"]


@dataclass(frozen=True)
class Shape:
    """Layers on the stand-in's, `packed` in one way; `alone`: in its place."""

    layers: Sequence[Files] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    layer_type: str = LAYER
    alone: bool = False
    in_lists: bool = False


def package(name: str, version: str) -> Files:
    """An installed package, by its metadata."""
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    return {f"{SITE_PACKAGES}/{name}-{version}.dist-info/METADATA": text.encode()}


def _without_venv() -> Files:
    """The stand-in's packages where the machine's own Python finds them."""
    site = f"{python().parents[1]}/lib/python{PYTHON}/site-packages".lstrip("/")
    entries = {path: content for path, content in _content(tar_of_layer()).items() if path.startswith(SITE_PACKAGES)}
    moved = {path.replace(SITE_PACKAGES, site): content for path, content in entries.items()}
    return {"opt/.wh.venv": b"", "usr/local/bin/python3": str(python()), **moved}


def _busybox() -> Files:
    install("busybox")
    program = next(path for path in map(Path, ("/bin/busybox", "/usr/bin/busybox")) if path.exists())
    return {
        f"usr/{_BUSYBOX}": program.read_bytes(),
        "usr/bin/env": f"/{_BUSYBOX}",
        "usr/bin/sh": f"/{_BUSYBOX}",
        "usr/bin/.wh.lscpu": b"",
    }


def _ngc() -> Shape:
    forty = [{f"opt/nvidia/{number}/LICENSE": b"terms", f"opt/nvidia/{number}/x": b"x"} for number in range(38)]
    taken_away = {"opt/nvidia/0/.wh..wh..opq": b"", "opt/nvidia/.wh.1": b"", "opt/nvidia/entry.sh": b"#!/bin/sh\n"}
    settings = {
        "Env": [*(f"{name}={value}" for name, value in ENVIRONMENT.items()), *_ODD],
        "Entrypoint": ["/opt/nvidia/entry.sh"],
        "Cmd": ["--help"],
        "User": "triton-server:triton",
        "ExposedPorts": {"8000/tcp": {}, "8001/tcp": {}},
        "Volumes": {"/workspace": {}},
        "Healthcheck": {"Test": ["CMD", "false"]},
        "WorkingDir": "/workspace",
    }
    return Shape([*forty, taken_away], settings, OCI_LAYER)


def _layers(count: int) -> list[Files]:
    return [{f"opt/many/{number}": b""} for number in range(count - 1)]


RUNNABLE: Mapping[str, Callable[[], Shape]] = {
    "aws": Shape,
    "vllm": lambda: Shape(
        [_without_venv()],
        {"Env": [f"PATH={_USUAL_PATH}"], "Entrypoint": ["vllm", "serve"], "WorkingDir": "/vllm-workspace"},
    ),
    "ngc": _ngc,
    "busybox": lambda: Shape([_busybox()]),
    "nested": lambda: Shape(layer_type=OCI_LAYER, in_lists=True),
    "no-passwd": lambda: Shape([{"etc/.wh.passwd": b""}]),
    "deepest": lambda: Shape(_layers(MOST_LAYERS - 1)),
    "plain": lambda: Shape(layer_type=_PLAIN_LAYER),
}
"""Bases on which `append` builds an image that runs."""

OTHERS: Mapping[str, Callable[[], Shape]] = {
    "alpine": lambda: Shape(
        [
            {
                "bin/busybox": b"",
                "lib/ld-musl-x86_64.so.1": b"",
                "usr/bin/env": f"/{_BUSYBOX}",
                "usr/bin/python3": f"python{PYTHON}",
                f"usr/bin/python{PYTHON}": b"",
            }
        ],
        {"Env": [f"PATH={_USUAL_PATH}"]},
        alone=True,
    ),
    "distroless": lambda: Shape([{"usr/bin/.wh.env": b"", "usr/bin/.wh.sh": b""}]),
    "127 layers": lambda: Shape(_layers(127)),
    "zstd": lambda: Shape([package("there", "2.0")], layer_type=ZSTD_LAYER),
    "onbuild": lambda: Shape(settings={"OnBuild": ["RUN echo triggered > /opt/triggered", "ENV TRIGGERED=yes"]}),
    "encrypted": lambda: Shape(layer_type=f"{OCI_LAYER}+encrypted"),
    "packages": lambda: Shape([package("there", "2.0")]),
}
"""Bases of which something is found."""


def push_shape(name: str, registry: Registry, repository: str) -> str:
    """Push the base; the reference, by digest."""
    shape = {**RUNNABLE, **OTHERS}[name]()
    tars = [*(() if shape.alone else (tar_of_layer(),)), *map(tar_of, shape.layers)]
    blobs = [push_blob(registry, repository, shape.layer_type, _packed(content, shape.layer_type)) for content in tars]
    names = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in tars]
    usual = {"Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()], "Entrypoint": [f"{VENV}/bin/python3"]}
    rootfs = {"type": "layers", "diff_ids": names}
    settings = {**usual, **shape.settings}
    config = {"architecture": "amd64", "os": "linux", "config": settings, "rootfs": rootfs}
    is_oci = "oci" in shape.layer_type
    media_type = OCI if is_oci else SCHEMA_2
    body = push_blob(registry, repository, OCI_CONFIG if is_oci else CONFIG, encode(config))
    listed = {"schemaVersion": 2, "mediaType": media_type, "config": body.as_json()}
    manifest = Manifest(media_type, encode({**listed, "layers": [blob.as_json() for blob in blobs]}))
    registry.put_manifest(repository, "1", manifest)
    for tag in ("inner", "outer") if shape.in_lists else ():
        manifest = _list_of(manifest, with_platform=tag == "inner")
        registry.put_manifest(repository, tag, manifest)
    return f"{registry.host}/{repository}@{manifest.digest}"


def _list_of(image: Manifest, *, with_platform: bool) -> Manifest:
    entry = {"mediaType": image.media_type, "digest": image.digest, "size": len(image.body)}
    platform = {"platform": {"os": "linux", "architecture": "amd64"}} if with_platform else {}
    return Manifest(_INDEX, encode({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [{**entry, **platform}]}))


@cache
def _packed(content: bytes, layer_type: str) -> bytes:
    if layer_type == ZSTD_LAYER:
        return zstd.compress(content, 1)
    return content if layer_type == _PLAIN_LAYER else gzip.compress(content, 1, mtime=0)


def tar_of(files: Files) -> bytes:
    """A layer: a file is its content, or what the link points to."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.mode = 0o755
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _content(tar: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return {
            entry.name: stream.read()
            for entry in archive
            if entry.isfile() and (stream := archive.extractfile(entry)) is not None
        }
