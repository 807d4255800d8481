"""An endpoint's metrics: the engine's Prometheus page of all pods, read through the API server."""

from __future__ import annotations

from toolkit.endpoint.metrics import Metrics
from toolkit.endpoint.prometheus import metrics_of_pages
from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.kinds import path
from toolkit.platforms.kubernetes.pods import Document, is_ready
from toolkit.platforms.kubernetes.rollout import pods
from toolkit.platforms.kubernetes.rules.security import PORT


def read_metrics(cluster: Cluster, namespace: str, deployment: Document, minutes: int) -> Metrics:
    """Counted since each container's start. Raises ApiException, PlatformError."""
    ready = [pod["metadata"]["name"] for pod in pods(cluster, namespace, deployment) if is_ready(pod)]
    pages = {f"pod {pod}": cluster.read("GET", f"{path('Pod', namespace, pod)}:{PORT}/proxy/metrics") for pod in ready}
    return metrics_of_pages(deployment["metadata"]["name"], minutes, pages)
