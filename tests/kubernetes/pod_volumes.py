"""A pod's volumes as folders of this machine, with the owners and permissions that a node gives them.

An object store is a folder with one for each bucket. Its driver is Mountpoint for Amazon S3's, v2.7.0 (`node.go`).
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from container import Mount

from toolkit.home import cache

Document = dict[str, Any]
Find = Callable[[str, str], Document]
"""An object of the pod's namespace (or of none) by plural and name. Raises LookupError."""

_MOUNTPOINTS_USER = 1000  # of the pod in which the driver runs mount-s3


@dataclass(frozen=True)
class Storage:
    """`buckets` has a folder for each; `warm` is what each emptyDir named `cache` begins with: a node does not fetch
    models from their hub.
    """

    buckets: Path
    warm: Path | None = None


def known_classes(folder: Path) -> Path:
    """A warm cache with what vLLM knows of its classes of models: else each pod looks at them anew."""
    known = cache() / "vllm" / "modelinfos"
    known.mkdir(parents=True, exist_ok=True)
    shutil.copytree(known, folder / "vllm" / "modelinfos", copy_function=shutil.copyfile)
    return folder


def mounts(spec: Mapping[str, Any], find: Find, storage: Storage, folder: Path) -> list[Mount]:
    """Of the pod's container. Raises LookupError for an object that is not there."""
    group = spec.get("securityContext", {}).get("fsGroup")
    (container,) = spec["containers"]
    volumes = {item["name"]: item for item in spec.get("volumes", ())}
    made = []
    for mount in container.get("volumeMounts", ()):
        volume = volumes[mount["name"]]
        source = folder / volume["name"]
        if not source.exists():
            _make(volume, find, storage, source, group)
        read_only = mount.get("readOnly", False) or "configMap" in volume
        made.append(Mount(source / mount.get("subPath", ""), mount["mountPath"], read_only))
    return made


def _make(volume: Document, find: Find, storage: Storage, source: Path, group: int | None) -> None:
    if "emptyDir" in volume:
        if storage.warm and volume["name"] == "cache":
            shutil.copytree(storage.warm, source)
        for path in (source, *source.rglob("*/")):
            path.mkdir(exist_ok=True)
            path.chmod(0o777 if group is None else 0o2777)
            os.chown(path, 0, group or 0)
    elif "configMap" in volume:
        held = find("configmaps", volume["configMap"]["name"])
        _write(source, {name: text.encode() for name, text in held["data"].items()}, group)
    elif "secret" in volume:
        held = find("secrets", volume["secret"]["secretName"])
        _write(source, {name: base64.b64decode(text) for name, text in held["data"].items()}, group)
    else:
        claim = find("persistentvolumeclaims", volume["persistentVolumeClaim"]["claimName"])
        if claim["status"]["phase"] != "Bound":
            raise LookupError(f'persistentvolumeclaim "{claim["metadata"]["name"]}" is not bound')
        _mount_bucket(find("persistentvolumes", claim["spec"]["volumeName"])["spec"], storage.buckets, source, group)


def _write(folder: Path, files: Mapping[str, bytes], group: int | None) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o644)
        os.chown(folder / name, 0, group or 0)


def _mount_bucket(volume: Document, buckets: Path, source: Path, group: int | None) -> None:
    """A copy of what lies below the prefix. Without `allow-other` root alone passes its first folder."""
    words = (option.replace("=", " ", 1).split() for option in volume.get("mountOptions", ()))
    options = {name: value for name, *rest in words for value in [" ".join(rest)]}
    if group is not None:
        of_group = {"gid": str(group), "allow-other": "", "dir-mode": "0770", "file-mode": "0660"}
        options = {**of_group, **options}
    bucket = buckets / volume["csi"]["volumeAttributes"]["bucketName"]
    if not bucket.is_dir():
        raise LookupError(f"rpc error: code = Internal desc = Could not mount {bucket.name!r}: no such bucket")
    below = bucket / options.get("prefix", "")
    shutil.copytree(below, source) if below.is_dir() else source.mkdir()
    owner = [int(options.get(name, _MOUNTPOINTS_USER)) for name in ("uid", "gid")]
    for path in (source, *source.rglob("*")):
        name, usual = ("dir-mode", "0755") if path.is_dir() else ("file-mode", "0644")
        path.chmod(int(options.get(name, usual), 8))
        os.chown(path, *owner)
    if "allow-other" not in options:
        os.chown(source, 0, 0)
        source.chmod(0o700)
