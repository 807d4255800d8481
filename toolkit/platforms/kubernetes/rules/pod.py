"""The pod that runs an engine, to serve or to compile, and what it mounts. Pure but for reading the container's files.

The engine's public image runs as it is: the toolkit's programs come from a ConfigMap, weights from the hub, compiled
code for Trainium from a bucket.
"""

from __future__ import annotations

import math
from typing import Any

from toolkit.engines.arguments import environment
from toolkit.planning import artifacts
from toolkit.planning.names import ARTIFACTS_PREFIX, content_name
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.image import base_image, programs
from toolkit.platforms.kubernetes.rules.devices import (
    claims,
    container_resources,
    on_trainium,
    placement,
    shared_memory,
)
from toolkit.platforms.kubernetes.rules.metadata import Component, manifest, pod_labels, section, shared
from toolkit.platforms.kubernetes.rules.security import (
    PORT,
    TEMPORARY,
    container_security,
    pod_security,
    runs_as_root,
)
from toolkit.recipe.resolve import Recipe

CONTAINER = "engine"
AT_START_SECONDS = 570 * 30
"""How long an engine that compiles while it starts may take: 4 h 45 min, as in aws-neuron-eks-samples."""

_PROGRAMS, _CACHE, _ARTIFACTS = "/opt/toolkit", "/cache", "/artifacts"
_PROBE_SECONDS = 10
_START_SECONDS = 3600
# On top of the container's start: the node, its volumes, an image of ten gigabytes or more. An estimate.
_PULL_SECONDS = 1800
# The pod gets no new requests any more once its address is out of all nodes' tables, which takes seconds; then
# serve_middleware.py drains for 25 s, and the engine ends its processes.
_PRE_STOP_SECONDS, _GRACE_SECONDS = 10, 70


def start_seconds(recipe: Recipe) -> int:
    """How long a container may take until it has answered its first request."""
    if recipe.engine.rules.compiles(recipe) and not recipe.engine.compile_ahead:
        return AT_START_SECONDS
    return recipe.platform.health_check_timeout or _START_SECONDS


def rollout_seconds(recipe: Recipe) -> int:
    """How long a pod may take until it is ready."""
    return start_seconds(recipe) + _PULL_SECONDS


def config_map(recipe: Recipe) -> Resource:
    """The programs of the container. A change makes another one, and with it other pods."""
    data = {name: (file.content or b"").decode() for name, file in programs(recipe.engine.name).items()}
    return manifest(recipe, "ConfigMap", content_name(recipe.name, data), immutable=True, data=data)


def volumes(recipe: Recipe) -> list[Resource]:
    """The bucket's part with compiled code as a volume (Mountpoint for Amazon S3); none for other recipes.

    Every endpoint of the namespace shares it, and finds its own by its key.
    """
    if not artifacts.compiles_ahead(recipe):
        return []
    settings = section(recipe)
    # Mountpoint's credentials: the pod's own where it has a role, else those of the CSI driver.
    source = {"authenticationSource": "pod"} if settings.service_account_role else {}
    attributes = {"bucketName": settings.artifacts_bucket, **source}
    claim = content_name("artifacts", {"namespace": settings.namespace, **attributes})
    name, capacity = f"toolkit-{claim}", {"storage": "1Gi"}  # which has to be given, and is ignored
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        **common,
        "capacity": capacity,
        "claimRef": {"namespace": settings.namespace, "name": claim},
        "persistentVolumeReclaimPolicy": "Retain",
        "mountOptions": ["allow-delete", "allow-overwrite", f"prefix {ARTIFACTS_PREFIX}"],
        "csi": {"driver": "s3.csi.aws.com", "volumeHandle": name, "volumeAttributes": attributes},
    }
    bound = {**common, "resources": {"requests": capacity}, "volumeName": name}
    return [
        shared(recipe, "PersistentVolume", name, spec=volume),
        shared(recipe, "PersistentVolumeClaim", claim, spec=bound),
    ]


def pod_template(recipe: Recipe, component: Component) -> dict[str, Any]:
    """The pod that serves, or that compiles: the same but for its program, and for who may write to the bucket."""
    serves = component == "server"
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT), "prometheus.io/path": "/metrics"}
    container = {
        "name": CONTAINER,
        "image": base_image(recipe, Account("", "")),
        "command": ["python3", f"{_PROGRAMS}/{'serve' if serves else 'compile'}"],
        "env": _environment(recipe),
        "resources": container_resources(recipe, compiles=not serves),
        "volumeMounts": _mounts(recipe, read_only=serves),
        "securityContext": container_security(),
        # Neuron's compiler writes into the folder that it runs in.
        **({"workingDir": TEMPORARY["tmp"]} if on_trainium(recipe) else {}),
        **(_serving(recipe) if serves else {}),
    }
    spec = {
        "serviceAccountName": recipe.name,
        "automountServiceAccountToken": False,  # a role's token (IRSA) is mounted all the same
        "enableServiceLinks": False,  # variables such as <NAME>_PORT, which an engine may take for its own
        "securityContext": pod_security(root=runs_as_root(recipe)),
        **placement(recipe),
        **claims(recipe),
        "containers": [container],
        "volumes": _volumes(recipe, read_only=serves),
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        **({} if serves else {"restartPolicy": "Never"}),
    }
    # A pod gets a role (IRSA) when it is made, so that another role wants other pods.
    role = section(recipe).service_account_role
    annotations = {**(scraped if serves else {}), **({"toolkit/role": role} if role else {})}
    about = {"annotations": annotations} if annotations else {}
    return {"metadata": {"labels": pod_labels(recipe, component), **about}, "spec": spec}


def _environment(recipe: Recipe) -> list[dict[str, Any]]:
    """As the entrypoint reads it. Weights and caches go to the pod's disk; the hub's token stays in its Secret."""
    home = {"HOME": _CACHE, "HF_HOME": f"{_CACHE}/huggingface"}
    ours = {**home, **recipe.engine.rules.cache_variables(_CACHE)}
    compiled = artifacts.variables(recipe, f"{_ARTIFACTS}/{artifacts.key(recipe)}")
    # Kubernetes reads $(NAME) in a value, and $$ as $.
    plain = {name: value.replace("$", "$$") for name, value in {**ours, **environment(recipe), **compiled}.items()}
    found: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in sorted(plain.items())]
    if recipe.platform.hub_token_secret:
        reference = {"secretKeyRef": {"name": recipe.platform.hub_token_secret, "key": "token"}}
        found.append({"name": "HF_TOKEN", "valueFrom": reference})
    return found


def _mounts(recipe: Recipe, *, read_only: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "programs", "mountPath": _PROGRAMS, "readOnly": True},
        {"name": "cache", "mountPath": _CACHE},
        *({"name": name, "mountPath": path} for name, path in TEMPORARY.items()),
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
    ]
    if artifacts.compiles_ahead(recipe):
        found.append({"name": "artifacts", "mountPath": _ARTIFACTS, "readOnly": read_only})
    return found


def _volumes(recipe: Recipe, *, read_only: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "programs", "configMap": {"name": config_map(recipe).name}},
        {"name": "cache", "emptyDir": {}},
        *({"name": name, "emptyDir": {}} for name in TEMPORARY),
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory(recipe)}},
    ]
    if artifacts.compiles_ahead(recipe):
        claim = volumes(recipe)[-1].name
        found.append({"name": "artifacts", "persistentVolumeClaim": {"claimName": claim, "readOnly": read_only}})
    return found


def _serving(recipe: Recipe) -> dict[str, Any]:
    """Port, probes and end.

    /ping is 503 until a generation has worked, and again while the pod drains: no requests for it then. Whether it
    lives is asked only in between, by /health, which fails when the engine has died, and by serve_middleware.py also
    when it is stuck.
    """
    ping = {"httpGet": {"path": "/ping", "port": "http"}, "periodSeconds": _PROBE_SECONDS, "timeoutSeconds": 5}
    health = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 30, "timeoutSeconds": 10}
    return {
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {**ping, "failureThreshold": math.ceil(start_seconds(recipe) / _PROBE_SECONDS)},
        "readinessProbe": {**ping, "failureThreshold": 3},
        "livenessProbe": {**health, "failureThreshold": 6},
        "lifecycle": {"preStop": {"sleep": {"seconds": _PRE_STOP_SECONDS}}},
    }
