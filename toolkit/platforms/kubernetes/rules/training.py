"""The Job that trains a head on a cluster. It is applied once with kubectl, as the Job that compiles. Not run anywhere.

It works in the volume of `weights_claim`, where the models are: data by its name, and below `training/` the job's own
checkpoints and head, so that a pod that is moved to another node goes on.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from toolkit.errors import UsageError
from toolkit.planning.names import content_name
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.rules.adaptation import adapted
from toolkit.platforms.kubernetes.rules.devices import container_resources, shared_memory
from toolkit.platforms.kubernetes.rules.hardware import ec2_name, instance
from toolkit.platforms.kubernetes.rules.metadata import manifest, pod_labels
from toolkit.platforms.kubernetes.rules.metadata import section as cluster
from toolkit.platforms.kubernetes.rules.security import TEMPORARY, container_security, training_policy
from toolkit.recipe.resolve import Recipe
from toolkit.training.job import FILE, TrainingJob
from toolkit.training.plan import section, training_job, training_key

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
    here = _on_its_machine(recipe)
    data = {FILE: _job(recipe).model_dump_json(indent=2)}
    config = manifest(
        recipe, "ConfigMap", content_name(f"{recipe.name}-train", data), labels=_LABELS, immutable=True, data=data
    )
    ends = {
        "action": "FailJob",
        "onExitCodes": {"containerName": "train", "operator": "In", "values": [_USERS_INPUT]},
    }
    spec = {
        "backoffLimit": _ATTEMPTS,
        "activeDeadlineSeconds": round(section(recipe).max_hours * 3600),
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "podFailurePolicy": {"rules": [ends]},
        "template": {"metadata": {"labels": pod_labels(recipe, "train")}, "spec": _pod(here, config.name)},
    }
    job = manifest(recipe, "Job", content_name(f"{recipe.name}-train", spec), labels=_LABELS, spec=spec)
    return [config, training_policy(recipe), job]


_LABELS = {"app.kubernetes.io/component": "train"}


def _on_its_machine(recipe: Recipe) -> Recipe:
    """The recipe on the job's instance type, with all of its GPUs."""
    name = ec2_name(section(recipe).instance_type or recipe.platform.instance_types[0])
    found = instance(name)
    if found is None or not found.compute_capability:
        raise UsageError(f"{name} has no NVIDIA GPU", hint="Set `training.instance_type` to one that has.")
    args = {**recipe.engine.args, "tensor-parallel-size": found.accelerator_count}
    return replace(recipe, engine=replace(recipe.engine, args=args)).on(name)


def _pod(recipe: Recipe, config: str) -> dict[str, Any]:
    claim, training = cluster(recipe).weights_claim, section(recipe)
    if claim is None or training.image is None:
        lacks = "platform.kubernetes.weights_claim" if claim is None else "training.image"
        hint = "A claim holds models, data and the head; the image is made from containers/train: see docs/training.md."
        raise UsageError(f"a Job that trains needs `{lacks}`", hint=hint)
    if training.instance_count > 1:
        raise UsageError("a Job trains on one machine", hint="Set `instance_count: 1`, or train on SageMaker.")
    folders = {"cache": _CACHE, **TEMPORARY}
    container = {
        "name": "train",
        "image": training.image,
        "command": ["python3", "/opt/toolkit/train", _JOB],
        "env": _environment(recipe),
        "resources": container_resources(recipe, compiles=False),
        "volumeMounts": [
            {"name": "job", "mountPath": _JOB, "readOnly": True},
            {"name": "workspace", "mountPath": _WORKSPACE},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
            *({"name": name, "mountPath": path} for name, path in folders.items()),
        ],
        "securityContext": container_security(),
        "workingDir": TEMPORARY["tmp"],
    }
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **adapted(recipe),
        "containers": [container],
        "volumes": [
            {"name": "job", "configMap": {"name": config}},
            {"name": "workspace", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory(recipe)}},
            *({"name": name, "emptyDir": {}} for name in folders),
        ],
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
    }


def _environment(recipe: Recipe) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": "HOME", "value": _CACHE}, {"name": "HF_HOME", "value": _CACHE}]
    if secret := recipe.platform.hub_token_secret:
        found.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}})
    return found


def _job(recipe: Recipe) -> TrainingJob:
    """job.json with the pod's paths. Raises UsageError for data in S3, which pods do not read."""
    job, training = training_job(recipe), section(recipe)
    if in_s3 := next((item for item in (*training.data, recipe.target.written) if item.startswith("s3://")), None):
        hint = f"Copy it into the volume of weights_claim, and write its name: ./{PurePosixPath(in_s3).name}"
        raise UsageError(f"a Job that trains does not read {in_s3}", hint=hint)
    own = f"{_WORKSPACE}/training/{recipe.name}-{training_key(recipe)}"
    return job.model_copy(
        update={
            "target": job.target if recipe.target.kind == "hub" else f"{_WORKSPACE}/{recipe.target.name}",
            "start_from": _in_workspace(training.start_from) if training.start_from else None,
            "data": tuple(_in_workspace(item) for item in training.data),
            "checkpoints": f"{own}/checkpoints",
            "work": f"{own}/work",
            "head": f"{own}/head",
        }
    )


def _in_workspace(source: str) -> str:
    """A file or folder of this machine by its name in the claim; what is on the hub as it is."""
    return f"{_WORKSPACE}/{PurePosixPath(source).name}" if source.startswith("/") else source
