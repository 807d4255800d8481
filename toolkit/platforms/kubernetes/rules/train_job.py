"""The Job that trains a head on a cluster, and the pods that hand the head over. Tried against a stand-in only.

It works in the volume of `weights_claim`, where the models are: data by its name, and below `training/` the job's own
checkpoints and head, so that a pod that is moved to another node goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from toolkit.errors import UsageError
from toolkit.planning.names import content_name
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.keys import ClusterTraining, cluster
from toolkit.platforms.kubernetes.rules.devices import container_resources, ec2_name, node_type, shared_memory
from toolkit.platforms.kubernetes.rules.jobs import PYTHON
from toolkit.platforms.kubernetes.rules.metadata import COMPONENT, TRAINING, manifest, pod_labels
from toolkit.platforms.kubernetes.rules.pod import adapt_pod, hub_token
from toolkit.platforms.kubernetes.rules.security import PORT, TEMPORARY, bare_pod, container_security, training_policy
from toolkit.recipe.recipe import Recipe
from toolkit.training.job import FILE, TrainingJob
from toolkit.training.plan import job_name, section, training_job

CONTAINER = "train"

_FOLDER = "toolkit/folder"
_HAND_OVER_SECONDS = 1800
_JOB, _WORKSPACE, _CACHE = "/job", "/workspace", "/cache"
_KEPT_SECONDS = 7 * 24 * 3600
# Nodes are taken away; each attempt goes on from the last checkpoint.
_ATTEMPTS = 10
# A checkpoint of a large head takes a while to write.
_GRACE_SECONDS = 300
_USERS_INPUT = 2


def train_job(recipe: Recipe) -> list[Resource]:
    """job.json, network and the Job; none where the recipe trains no head. Raises UsageError for what it lacks."""
    if recipe.training is None:
        return []
    here, name = _on_its_machine(recipe), job_name(recipe)
    data = {FILE: _job(recipe).model_dump_json(indent=2)}
    config = manifest(
        recipe, "ConfigMap", content_name(f"{recipe.name}-train", data), labels=TRAINING, immutable=True, data=data
    )
    ends = {
        "action": "FailJob",
        "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [_USERS_INPUT]},
    }
    spec = {
        "backoffLimit": _ATTEMPTS,
        "activeDeadlineSeconds": round(section(recipe).max_hours * 3600),
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "podFailurePolicy": {"rules": [ends]},
        "template": {"metadata": {"labels": pod_labels(recipe, "train")}, "spec": _pod(here, config.name)},
    }
    annotations = {_FOLDER: _folder(recipe)}
    job = manifest(recipe, "Job", name, labels=TRAINING, annotations=annotations, spec=spec)
    return [config, training_policy(recipe), job]


def notes(recipe: Recipe) -> Iterator[str]:
    claim, training = cluster(recipe).weights_claim, section(recipe)
    yield f"The job works in claim {claim}, folder {_folder(recipe)}; checkpoints and hidden states stay there"
    yield f"It is stopped after {training.max_hours:g} h, with a checkpoint from which the same command goes on"


def reading_pod(job: Mapping[str, Any]) -> dict[str, Any]:
    """A pod that serves the files of the head that a Job made, for half an hour at most."""
    command = ["python3", "-m", "http.server", str(PORT), "--directory", f"{_WORKSPACE}/{_head(job)}"]
    pod = _hand_over(job, "read", command, read_only=True)
    container = pod["spec"]["containers"][0]
    container["readinessProbe"] = {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1}
    return pod


def placing_pod(job: Mapping[str, Any], name: str, method: str) -> dict[str, Any]:
    """A pod that copies the head that a Job made to the folder of the claim from which endpoints read it.

    Of heads that are compared it is that of `method`, which is empty for a single one.
    """
    copy = 'rm -rf "$2.new" && cp -r "$1" "$2.new" && rm -rf "$2" && mv "$2.new" "$2"'
    command = ["sh", "-c", copy, "sh", str(PurePosixPath(_WORKSPACE, _head(job), method)), f"{_WORKSPACE}/{name}"]
    return _hand_over(job, "place", command, read_only=False)


def _hand_over(job: Mapping[str, Any], what: str, command: Sequence[str], *, read_only: bool) -> dict[str, Any]:
    """A small pod with the volume of a Job, as the Job's user."""
    metadata, pod = job["metadata"], job["spec"]["template"]["spec"]
    labels = {**metadata["labels"], COMPONENT: "head"}
    volume = next(item for item in pod["volumes"] if item["name"] == "workspace")
    container = {
        "name": what,
        "image": PYTHON,
        "command": list(command),
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "workspace", "mountPath": _WORKSPACE, "readOnly": read_only}],
        "securityContext": container_security(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{metadata['name']}-{what}", "namespace": metadata["namespace"], "labels": labels},
        "spec": bare_pod(
            container, [volume], activeDeadlineSeconds=_HAND_OVER_SECONDS, securityContext=pod["securityContext"]
        ),
    }


def _head(job: Mapping[str, Any]) -> str:
    return f"{job['metadata']['annotations'][_FOLDER]}/head"


def _folder(recipe: Recipe) -> str:
    return f"training/{job_name(recipe)}"


def instance_type(recipe: Recipe) -> str:
    """What the recipe says that its job runs on."""
    return section(recipe).instance_type or recipe.platform.types[0]


def _on_its_machine(recipe: Recipe) -> Recipe:
    """The recipe on one node of the job's instance type, with all of its GPUs."""
    name = ec2_name(instance_type(recipe))
    hardware = node_type(name)
    if hardware is None or not hardware.compute_capability:
        raise UsageError(f"{name} has no NVIDIA GPU", hint="Set `training.instance_type` to one that has.")
    engine = recipe.engine.edit(args={"tensor-parallel-size": hardware.accelerator_count})
    platform = recipe.platform.edit(kubernetes=cluster(recipe).edit(nodes=1))
    return replace(recipe, engine=engine, platform=platform).on(name)


def _pod(recipe: Recipe, config: str) -> dict[str, Any]:
    claim, training = cluster(recipe).weights_claim, ClusterTraining.of(section(recipe))
    if claim is None or training.image is None:
        lacks = "platform.kubernetes.weights_claim" if claim is None else "training.image"
        hint = "A claim holds models, data and the head; the image is made from containers/train: see docs/training.md."
        raise UsageError(f"a Job that trains needs `{lacks}`", hint=hint)
    folders = {"cache": _CACHE, **TEMPORARY}
    container = {
        "name": CONTAINER,
        "image": training.image,
        "command": ["python3", "/opt/toolkit/train", _JOB],
        "env": [*({"name": name, "value": _CACHE} for name in ("HOME", "HF_HOME")), *hub_token(recipe)],
        "resources": container_resources(recipe, compiles=False),
        "volumeMounts": [
            {"name": "job", "mountPath": _JOB, "readOnly": True},
            {"name": "workspace", "mountPath": _WORKSPACE},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
            *({"name": name, "mountPath": path} for name, path in folders.items()),
        ],
        "securityContext": container_security(),
        "workingDir": TEMPORARY["tmp"],
        # The Job's status then says why it failed.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    volumes: list[dict[str, Any]] = [
        {"name": "job", "configMap": {"name": config}},
        {"name": "workspace", "persistentVolumeClaim": {"claimName": claim}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory(recipe)}},
        *({"name": name, "emptyDir": {}} for name in folders),
    ]
    pod = bare_pod(container, volumes, **adapt_pod(recipe))
    return {**pod, "terminationGracePeriodSeconds": _GRACE_SECONDS}


def _job(recipe: Recipe) -> TrainingJob:
    """job.json with the pod's paths. Raises UsageError for data in S3, which pods do not read."""
    job, training = training_job(recipe), section(recipe)
    if in_s3 := next((item for item in (*training.sources, recipe.target.model) if item.startswith("s3://")), None):
        hint = f"Copy it into the volume of weights_claim, and write its name: ./{PurePosixPath(in_s3).name}"
        raise UsageError(f"a Job that trains does not read {in_s3}", hint=hint)
    own = f"{_WORKSPACE}/{_folder(recipe)}"
    return job.model_copy(
        update={
            "target": job.target if recipe.target.kind == "hub" else f"{_WORKSPACE}/{recipe.target.name}",
            "start_from": _in_workspace(training.start_from) if training.start_from else None,
            "data": tuple(_in_workspace(item) for item in training.sources),
            "checkpoints": f"{own}/checkpoints",
            "work": f"{own}/work",
            "head": f"{own}/head",
        }
    )


def _in_workspace(source: str) -> str:
    """A file or folder of this machine by its name in the claim; what is on the hub as it is."""
    return f"{_WORKSPACE}/{PurePosixPath(source).name}" if source.startswith("/") else source
