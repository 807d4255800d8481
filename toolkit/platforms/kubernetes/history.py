"""Read a Deployment's history: the ReplicaSets that its controller keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes.client import ApiException

from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.kinds import path, selector
from toolkit.platforms.kubernetes.rules.rollback import HISTORY, version

REVISION = "deployment.kubernetes.io/revision"
_OF_CONTROLLERS = ("replicas",)  # an autoscaler may set it


def history(cluster: Cluster, namespace: str, deployment: Mapping[str, Any]) -> dict[str, Any]:
    """`History`, the newest version first, and `Manifest`: the Deployment as it would be applied again."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    head = {key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata}
    applied = {key: value for key, value in spec.items() if key not in _OF_CONTROLLERS}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": head, "spec": applied}
    return {HISTORY: _versions(cluster, namespace, deployment), "Manifest": manifest}


def _versions(cluster: Cluster, namespace: str, deployment: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    wanted = {"labelSelector": selector(deployment["spec"]["selector"]["matchLabels"])}
    try:
        found = cluster.items(path("ReplicaSet", namespace), wanted)
    except ApiException as error:
        if error.status == 403:  # who may deploy need not be one who may list them
            return None
        raise
    uid = deployment["metadata"]["uid"]
    mine = [item for item in found if uid in {owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()}]
    return [version(item) for item in sorted(mine, key=_revision, reverse=True)]


def _revision(replica_set: Mapping[str, Any]) -> int:
    """Counted by the deployment controller; 0 before it has seen the ReplicaSet."""
    text = (replica_set["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isdecimal() else 0
