"""What an endpoint's containers tell of themselves: vLLM's Prometheus page, of all pods, through the API server."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from toolkit.endpoint.metrics import EngineMetrics, Metrics, Percentiles
from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.kinds import address
from toolkit.platforms.kubernetes.pods import Document, is_ready
from toolkit.platforms.kubernetes.rollout import pods
from toolkit.platforms.kubernetes.rules.pod import PORT

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# The instrumentator of vLLM's server: handler, method and the class of the status, such as 2xx.
_REQUESTS = "http_requests_total"
_ASKED = re.compile(r"^/(invocations|v1/.*)$")

Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]


def read_metrics(cluster: Cluster, namespace: str, deployment: Document, minutes: int) -> Metrics:
    """Counted since each container's start: a page has no history. Raises ApiException."""
    pages = []
    for pod in pods(cluster, namespace, deployment):
        if is_ready(pod):
            place = f"{address('v1', 'pods', namespace, pod['metadata']['name'])}:{PORT}/proxy/metrics"
            pages.append(cluster.open("GET", place).data.decode())
    samples = parse(line for page in pages for line in page.splitlines())
    notes = [f"Counted since the start of {len(pages)} containers, not over {minutes} minutes: Prometheus keeps those"]
    asked = [(found, value) for found, value in samples[_REQUESTS] if _ASKED.match(found.get("handler", ""))]
    return Metrics(
        deployment["metadata"]["name"],
        minutes,
        invocations=round(sum(value for _, value in asked)),
        client_errors=round(sum(value for found, value in asked if found.get("status", "").startswith("4"))),
        server_errors=round(sum(value for found, value in asked if found.get("status", "").startswith("5"))),
        model_latency=_percentiles(samples, "vllm:e2e_request_latency_seconds"),
        engine=_engine(samples),
        notes=tuple(notes),
    )


def parse(lines: Iterable[str]) -> Samples:
    """Samples by metric, with their labels; comments and what is no number are left out."""
    found: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    for line in lines:
        if match := _SAMPLE.match(line):
            found[match[1]].append((dict(_LABEL.findall(match[2] or "")), float(match[3])))
    return found


def quantile(share: float, buckets: Mapping[float, float]) -> float | None:
    """As Prometheus' histogram_quantile: linear within the bucket. `buckets` are cumulative counts by upper bound."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0
    if not total:
        return None
    below, lower = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= share * total:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (share * total - below) / (buckets[bound] - below)
        below, lower = buckets[bound], bound
    return lower


def _engine(samples: Samples) -> EngineMetrics:
    steps, accepted = (_sum(samples, f"vllm:spec_decode_num_{name}_total") for name in ("drafts", "accepted_tokens"))
    drafted = _sum(samples, "vllm:spec_decode_num_draft_tokens_total")
    return EngineMetrics(
        ttft=_percentiles(samples, "vllm:time_to_first_token_seconds"),
        itl=_percentiles(samples, "vllm:inter_token_latency_seconds"),
        acceptance_length=1 + accepted / steps if steps else None,
        acceptance_rate=accepted / drafted if drafted else None,
    )


def _percentiles(samples: Samples, metric: str) -> Percentiles | None:
    buckets: dict[float, float] = defaultdict(float)
    for found, value in samples.get(f"{metric}_bucket", ()):
        buckets[float(found["le"])] += value
    p50, p99 = quantile(0.5, buckets), quantile(0.99, buckets)
    return None if p50 is None or p99 is None else Percentiles(p50, p99)


def _sum(samples: Samples, metric: str) -> float:
    return sum(value for _, value in samples.get(metric, ()))
