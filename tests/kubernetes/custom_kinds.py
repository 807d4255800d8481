"""Kinds that a cluster has only where their operators are installed."""

from __future__ import annotations

from typing import Any

import yaml
from kubernetes.client import ApiException
from real_server import ASSETS
from waiting import until

from toolkit.platforms.kubernetes.cluster import Cluster, SuppressStatus, path
from toolkit.platforms.kubernetes.rules.kinds import KINDS_BY_NAME

# Of these the server has no schema of its own.
CUSTOM = ("ScaledObject", "PodMonitor", "PrometheusRule", "LeaderWorkerSet", "InferencePool", "HTTPRoute")
_FOLDER = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def define(cluster: Cluster, kind: str) -> None:
    """It is served."""
    wanted = _definition(kind)
    if cluster.find(f"{_FOLDER}/{wanted['metadata']['name']}") is None:
        cluster.call("POST", _FOLDER, wanted)
        until(lambda: _is_served(cluster, kind))


def undefine(cluster: Cluster, kind: str) -> None:
    """It is served no more, and what there was of it is gone."""
    with SuppressStatus(404):
        cluster.call("DELETE", f"{_FOLDER}/{_definition(kind)['metadata']['name']}")
    until(lambda: not _is_served(cluster, kind))


def _definition(kind: str) -> Any:
    """The operator's own, where the folder of the control plane has it as `crds/PLURAL.GROUP.yaml`. Else one whose
    objects may hold anything."""
    api = KINDS_BY_NAME[kind].api
    group, _, version = api.version.partition("/")
    if (genuine := ASSETS / "crds" / f"{api.plural}.{group}.yaml").exists():
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


def _is_served(cluster: Cluster, kind: str) -> bool:
    try:
        cluster.items(path(kind, cluster.namespace), {})
    except ApiException:
        return False
    return True
