"""What `toolkit status` tells of the endpoints of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes.client import ApiException

from toolkit.endpoint.platform import Deployed
from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.documents import seconds
from toolkit.platforms.kubernetes.kinds import path, selector
from toolkit.platforms.kubernetes.rollout import status
from toolkit.platforms.kubernetes.rules.metadata import OURS

_TYPE = "node.kubernetes.io/instance-type"
_ANY = "pods"


def deployed(cluster: Cluster, namespace: str) -> list[Deployed]:
    """All that we made, by name; of the one namespace where we may not look into all. Raises ApiException."""
    query = {"labelSelector": selector(OURS)}
    try:
        found = cluster.items(path("Deployment", ""), query)
    except ApiException as error:
        if error.status != 403:
            raise
        found = cluster.items(path("Deployment", namespace), query)
    return sorted((_deployed(cluster, item) for item in found), key=lambda item: (item.name, item.region))


def _deployed(cluster: Cluster, deployment: Mapping[str, Any]) -> Deployed:
    metadata = deployment["metadata"]
    now = status(cluster, metadata["namespace"], deployment)
    nodes = deployment["spec"]["template"]["spec"].get("nodeSelector") or {}
    return Deployed(
        name=metadata["name"],
        platform="kubernetes",
        region=f"{cluster.context}/{metadata['namespace']}",
        status=now.status,
        config=now.config,
        created=seconds(metadata["creationTimestamp"]),
        instances=((nodes.get(_TYPE, _ANY), deployment["spec"].get("replicas", 1)),),
        price_per_hour=None,  # nodes are shared, and bill whether pods are on them or not
        failure_reason=now.failure_reason,
    )
