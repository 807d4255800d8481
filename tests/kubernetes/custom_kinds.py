"""Kinds that a cluster has only where their operators are installed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import ApiException
from real_server import ASSETS

from toolkit.platforms.kubernetes.cluster import Cluster, SuppressStatus, path
from toolkit.platforms.kubernetes.rules.kinds import KINDS_BY_NAME

# Of these the server has no schema of its own.
CUSTOM = ("ScaledObject", "PodMonitor", "PrometheusRule", "LeaderWorkerSet", "InferencePool", "HTTPRoute")
_FOLDER = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PATIENCE_SECONDS = 30.0


def define(cluster: Cluster, kind: str) -> None:
    """It is served."""
    wanted = _definition(kind)
    if cluster.find(f"{_FOLDER}/{wanted['metadata']['name']}") is None:
        cluster.call("POST", _FOLDER, wanted)
        _until(cluster, kind, is_served=True)


def undefine(cluster: Cluster, kind: str) -> None:
    """It is served no more, and what there was of it is gone."""
    with SuppressStatus(404):
        cluster.call("DELETE", f"{_FOLDER}/{_definition(kind)['metadata']['name']}")
    _until(cluster, kind, is_served=False)


def _definition(kind: str) -> Any:
    """The operator's own, where the folder of the control plane has it as `crds/PLURAL.GROUP.yaml`. Else one whose
    objects may hold anything."""
    api = KINDS_BY_NAME[kind].api
    group, _, version = api.version.partition("/")
    if (genuine := Path(ASSETS, "crds", f"{api.plural}.{group}.yaml")).exists():
        return yaml.safe_load(genuine.read_text())
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": api.plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    replicas = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    versions = [{**served, "subresources": {"status": {}, "scale": replicas}}]
    # The server asks for it in groups below k8s.io.
    annotations = {"api-approved.kubernetes.io": "unapproved, of a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{api.plural}.{group}", "annotations": annotations},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": versions},
    }


def _until(cluster: Cluster, kind: str, *, is_served: bool) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            cluster.items(path(kind, cluster.namespace), {})
            now = True
        except ApiException:
            now = False
        if now == is_served:
            return
        time.sleep(0.05)
    raise TimeoutError(f"{kind} is {'not' if is_served else 'still'} served")
