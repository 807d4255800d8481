"""What pods mount: programs, models, compiled code, caches and folders to write to.

Models and compiled code come from buckets through Mountpoint for Amazon S3 (its CSI driver, static provisioning), or
from a claim that exists. Pure but for reading local models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from toolkit.engines.arguments import CHANNELS_DIR, DRAFTER_CHANNEL, MODEL_DIR, fetched_by_container
from toolkit.planning.artifacts import compiles_ahead
from toolkit.planning.names import ARTIFACTS_PREFIX, content_name
from toolkit.planning.resources import Resource
from toolkit.platforms.image import programs
from toolkit.platforms.kubernetes.keys import PodUser, cluster
from toolkit.platforms.kubernetes.rules.devices import shared_memory
from toolkit.platforms.kubernetes.rules.metadata import manifest, shared
from toolkit.platforms.kubernetes.rules.security import TEMPORARY
from toolkit.recipe.content import WeightsFile, manifest_digest, model_manifest
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource

PROGRAMS, CACHE, ARTIFACTS = "/opt/toolkit", "/cache", "/artifacts"
HUB_CACHE = f"{CACHE}/huggingface"
NODE_FOLDER = "/var/lib/toolkit/huggingface"
"""The folder of a node that its pods share with `weights_cache: node`."""

_DRAFTER_DIR = f"{CHANNELS_DIR}/{DRAFTER_CHANNEL}"
OUR_FOLDERS = (PROGRAMS, CACHE, ARTIFACTS, *TEMPORARY.values(), "/dev/shm", MODEL_DIR, _DRAFTER_DIR)  # noqa: S108
OUR_VOLUMES = ("programs", "cache", "artifacts", *TEMPORARY, "shared-memory", "hub", "model", "drafter")
"""Where the engine's container has mounts of the toolkit's, and the names of its pod's volumes."""

_WEIGHTS_PREFIX = "weights/"
_STAGED_PREFIX = "staged/"
WEIGHTS_ANNOTATION = "toolkit/weights"
"""On a volume: the address of the model that was uploaded for it."""

_DIGEST_CHARACTERS = 12
_CAPACITY = {"storage": "1Gi"}  # which has to be given, and is ignored
# Without `allow-other` the driver mounts for root alone (aws-s3-csi-driver, node.go), and pods on GPUs are nobody's.
_MODEL_OPTIONS = ("read-only", "allow-other")
_ROLES = {"target.model": ("model", MODEL_DIR), "speculation.model": ("drafter", _DRAFTER_DIR)}


class Mount(NamedTuple):
    """A volume of a pod, and where the engine's container has it."""

    volume: dict[str, Any]
    mount: dict[str, Any]


class BucketFolder(NamedTuple):
    """A model in a bucket, below `prefix`. `source` is uploaded by the user; None for one that is there already."""

    bucket: str
    prefix: str
    source: ModelSource | None

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


def config_map(recipe: Recipe) -> Resource:
    """The programs of the container. A change makes another one, and with it other pods."""
    data = {name: (file.content or b"").decode() for name, file in programs(recipe.engine.name).items()}
    return manifest(recipe, "ConfigMap", content_name(recipe.name, data), immutable=True, data=data)


def volumes(recipe: Recipe) -> list[Resource]:
    """PersistentVolumes and claims of buckets: of compiled code, and of models."""
    compiled_code = _artifacts(recipe) if compiles_ahead(recipe) else ()
    models = (_model(recipe, role, folder) for role, folder in bucket_folders(recipe).items())
    return [*compiled_code, *chain.from_iterable(models)]


def uploads(recipe: Recipe) -> Iterator[Resource]:
    """The models that go to the bucket first, each named as the volume that is made of it."""
    for role, folder in bucket_folders(recipe).items():
        if folder.source:
            request = {
                "Bucket": folder.bucket,
                "Prefix": folder.prefix,
                **_origin(recipe, folder.source, folder.prefix),
            }
            yield Resource("Weights", _model(recipe, role, folder)[0].name, request)


def _origin(recipe: Recipe, source: ModelSource, prefix: str) -> dict[str, Any]:
    if source.folder:
        return {"Source": str(source.folder), "Files": [asdict(file) for file in _files(recipe, source.folder)]}
    code = {"Code": True} if recipe.runs_model_code else {}
    return {"Hub": source.model, "Revision": source.revision or "main", "Mark": f"{_STAGED_PREFIX}{prefix}", **code}


def _files(recipe: Recipe, folder: Path) -> Sequence[WeightsFile]:
    return model_manifest(folder, code=recipe.runs_model_code)


def volume_name(claim: str) -> str:
    return f"toolkit-{claim}"


def mounts(recipe: Recipe, *, read_only: bool) -> list[Mount]:
    """All of the engine's pod; `read_only` is whether it only loads what was compiled."""
    mounted = [
        Mount(
            {"name": "programs", "configMap": {"name": config_map(recipe).name}},
            {"name": "programs", "mountPath": PROGRAMS, "readOnly": True},
        ),
        _empty("cache", CACHE),
        *(_empty(name, path) for name, path in TEMPORARY.items()),
        _empty("shared-memory", "/dev/shm", medium="Memory", sizeLimit=shared_memory(recipe)),  # noqa: S108
    ]
    if compiles_ahead(recipe):
        mounted.append(_mount_claim("artifacts", ARTIFACTS, _artifacts(recipe)[-1].name, read_only=read_only))
    if cluster(recipe).weights_cache == "node":
        host = {"path": NODE_FOLDER, "type": "DirectoryOrCreate"}
        mounted.append(Mount({"name": "hub", "hostPath": host}, {"name": "hub", "mountPath": HUB_CACHE}))
    return [*mounted, *_models(recipe), *_extra(recipe)]


def bucket_folders(recipe: Recipe) -> dict[str, BucketFolder]:
    """Models that pods mount from a bucket, by their role: `model` and `drafter`."""
    folders = {}
    for key, source in recipe.models.items():
        bucket, role = cluster(recipe).weights_bucket, _ROLES[key][0]
        if source.kind == "s3":
            name, _, prefix = source.model.removeprefix("s3://").partition("/")
            folders[role] = BucketFolder(name, f"{prefix.rstrip('/')}/", None)
        elif bucket and not fetched_by_container(recipe, source):
            folders[role] = BucketFolder(bucket, f"{_WEIGHTS_PREFIX}{_staged_name(recipe, source)}/", source)
    return folders


def claim_folders(recipe: Recipe) -> dict[str, str]:
    """Folders of `weights_claim` that pods mount, by the model's role."""
    if cluster(recipe).weights_claim is None:
        return {}
    return {
        _ROLES[key][0]: source.model if source.kind == "hub" else source.name
        for key, source in recipe.models.items()
        if source.kind != "s3"
    }


def _staged_name(recipe: Recipe, source: ModelSource) -> str:
    if source.folder:
        return f"{source.name}-{manifest_digest(tuple(_files(recipe, source.folder)))[:_DIGEST_CHARACTERS]}"
    return f"{source.model}/{source.commit[:_DIGEST_CHARACTERS] if source.commit else source.revision or 'main'}"


def _models(recipe: Recipe) -> Iterator[Mount]:
    paths = dict(_ROLES.values())
    for role, folder in bucket_folders(recipe).items():
        yield _mount_claim(role, paths[role], _model(recipe, role, folder)[-1].name, read_only=True)
    claim = cluster(recipe).weights_claim
    for role, path in claim_folders(recipe).items():
        assert claim
        yield _mount_claim(role, paths[role], claim, read_only=True, subPath=path)


def _extra(recipe: Recipe) -> Iterator[Mount]:
    for item in cluster(recipe).pod.volumes:
        source: dict[str, Any] = {"persistentVolumeClaim": {"claimName": item.claim, "readOnly": item.read_only}}
        if item.config_map:
            source = {"configMap": {"name": item.config_map}}
        elif item.secret:
            source = {"secret": {"secretName": item.secret}}
        mount = {"name": item.name, "mountPath": item.mount_path, "readOnly": item.read_only}
        yield Mount({"name": item.name, **source}, mount)


def _empty(name: str, path: str, **settings: str) -> Mount:
    return Mount({"name": name, "emptyDir": settings}, {"name": name, "mountPath": path})


def _mount_claim(name: str, path: str, claim: str, *, read_only: bool, **more: str) -> Mount:
    source = {"claimName": claim, "readOnly": read_only}
    mount = {"name": name, "mountPath": path, "readOnly": read_only, **more}
    return Mount({"name": name, "persistentVolumeClaim": source}, mount)


def _artifacts(recipe: Recipe) -> Sequence[Resource]:
    """The bucket's part with compiled code. Every endpoint of the namespace shares it, and finds its own by its key.

    Pods on Trainium are root, whose the mount is; for another user its files are that user's, else none could write.
    """
    attributes, owner = _attributes(recipe, str(cluster(recipe).artifacts_bucket)), _owner(recipe)
    content = {"namespace": cluster(recipe).namespace, **attributes, **({"owner": owner} if owner else {})}
    claim = content_name("artifacts", content)
    options = ["allow-delete", "allow-overwrite", *owner, f"prefix {ARTIFACTS_PREFIX}"]
    volume, bound = _specs(recipe, claim, attributes, "ReadWriteMany", options)
    name = volume["csi"]["volumeHandle"]
    return shared(recipe, "PersistentVolume", name, spec=volume), shared(
        recipe, "PersistentVolumeClaim", claim, spec=bound
    )


def _owner(recipe: Recipe) -> list[str]:
    """Options of Mountpoint for a user whom the recipe names."""
    user = cluster(recipe).pod.security_context or PodUser()
    wanted = {"uid": user.run_as_user, "gid": user.run_as_group}
    named = [f"{option}={number}" for option, number in wanted.items() if number is not None]
    return ["allow-other", *named] if named else []


def _model(recipe: Recipe, role: str, folder: BucketFolder) -> Sequence[Resource]:
    """The endpoint's own: another model is another volume, and the old one is kept as long as old pods are."""
    attributes, options = _attributes(recipe, folder.bucket), [*_MODEL_OPTIONS, f"prefix {folder.prefix}"]
    content = {"namespace": cluster(recipe).namespace, **attributes, "prefix": folder.prefix}
    claim = content_name(f"{recipe.name}-{role}", content)
    volume, bound = _specs(recipe, claim, attributes, "ReadOnlyMany", options)
    name = volume["csi"]["volumeHandle"]
    uploaded = {"annotations": {WEIGHTS_ANNOTATION: str(folder)}} if folder.source else {}
    return manifest(recipe, "PersistentVolume", name, spec=volume, **uploaded), manifest(
        recipe, "PersistentVolumeClaim", claim, spec=bound
    )


def _attributes(recipe: Recipe, bucket: str) -> dict[str, str]:
    """Mountpoint's credentials are the pod's own where it has a role, else those of the CSI driver."""
    source = {"authenticationSource": "pod"} if cluster(recipe).service_account_role else {}
    return {"bucketName": bucket, **source}


def _specs(
    recipe: Recipe, claim: str, attributes: Mapping[str, str], access: str, options: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    name, common = volume_name(claim), {"accessModes": [access], "storageClassName": ""}
    volume = {
        **common,
        "capacity": _CAPACITY,
        "claimRef": {"namespace": cluster(recipe).namespace, "name": claim},
        "persistentVolumeReclaimPolicy": "Retain",
        "mountOptions": list(options),
        "csi": {"driver": "s3.csi.aws.com", "volumeHandle": name, "volumeAttributes": dict(attributes)},
    }
    return volume, {**common, "resources": {"requests": _CAPACITY}, "volumeName": name}
