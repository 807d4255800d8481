"""An engine's metrics, from the Prometheus pages of its containers. A page counts since the container's start."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from toolkit.endpoint.generation import Acceptance
from toolkit.endpoint.metrics import EngineMetrics, Metrics, Percentiles
from toolkit.engines import registry as engine_registry
from toolkit.errors import PlatformError
from toolkit.recipe.recipe import EngineRules
from toolkit.recipe.rules import MetricNames

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

# The instrumentator of the engine's server: handler, method and the class of the status, such as 2xx.
_REQUESTS = "http_requests_total"
_LARGEST_COUNT = 2**63
_ASKED = re.compile(r"^/(invocations|v1/.*)$")

Samples = Mapping[str, Sequence["Sample"]]


def metrics_of_pages(endpoint: str, minutes: int, pages: Mapping[str, bytes]) -> Metrics:
    """What the pages of an endpoint's containers, by source, count together. Raises PlatformError."""
    if not pages:
        hint = f"See how it is: toolkit status {endpoint}"
        raise PlatformError(f"no container of {endpoint} is ready, and only containers keep counts", hint=hint)
    samples: dict[str, list[Sample]] = defaultdict(list)
    for source, page in pages.items():
        for sample in parse(page, source):
            samples[sample.name].append(sample)
    names = _names(samples)
    asked = [sample for sample in samples[_REQUESTS] if _ASKED.match(sample.labels.get("handler", ""))]
    containers = "1 container" if len(pages) == 1 else f"{len(pages)} containers"
    return Metrics(
        endpoint,
        minutes,
        invocations=_count(asked, ""),
        client_errors=_count(asked, "4"),
        server_errors=_count(asked, "5"),
        model_latency=_percentiles(samples, names.request_latency),
        engine=_engine(samples, names),
        notes=(f"Counted since the start of {containers}, not over {minutes} minutes; for those use Prometheus",),
    )


def acceptance_of_page(page: bytes, source: str) -> Acceptance | None:
    """The acceptance of all drafts since a container's start; None if it counts none. Raises PlatformError."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for sample in parse(page, source):
        samples[sample.name].append(sample)
    names = _names(samples)
    if names.drafts not in samples:
        return None
    positions: dict[int, float] = defaultdict(float)
    for sample in samples[names.accepted_by_position]:
        with suppress(ValueError):  # a count without its position
            positions[int(sample.labels.get("position", ""))] += sample.value
    at_least = [_sum(samples, names.drafts), *(positions[position] for position in sorted(positions)), 0]
    return Acceptance(tuple(round(more - less) for more, less in pairwise(at_least)))


def counts_drafts(page: bytes, source: str) -> bool:
    """Whether it is the page of an engine that would count its drafts on it. Raises PlatformError."""
    known = {names.running_requests for names in _known_names()}
    return any(sample.name in known for sample in parse(page, source))


def parse(page: bytes, source: str) -> list[Sample]:
    """The counts of a page in Prometheus' text format, without NaN and infinities. Raises PlatformError."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(page.decode()))
    except ValueError as error:
        hint = "Something else than its engine may answer there, such as a proxy's page."
        raise PlatformError(f"/metrics of {source} is not in Prometheus' text format: {error}", hint=hint) from error
    return [sample for family in families for sample in family.samples if 0 <= sample.value < _LARGEST_COUNT]


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


def _names(samples: Samples) -> MetricNames:
    """Those of the engine whose page it is; the default's for an empty one."""
    known = _known_names()
    return next((names for names in known if names.running_requests in samples), known[0])


def _known_names() -> list[MetricNames]:
    """Those of each engine that has metrics, the default's first."""
    rules: list[EngineRules] = [engine_registry.engine_rules(name) for name in engine_registry.engines()]
    return [engine.metrics.names for engine in rules if engine.metrics]


def _engine(samples: Samples, names: MetricNames) -> EngineMetrics:
    steps, accepted = _sum(samples, names.drafts), _sum(samples, names.accepted_tokens)
    drafted = _sum(samples, names.drafted_tokens)
    return EngineMetrics(
        ttft=_percentiles(samples, names.time_to_first_token),
        itl=_percentiles(samples, names.inter_token_latency),
        acceptance_length=1 + accepted / steps if steps else None,
        acceptance_rate=accepted / drafted if drafted else None,
    )


def _percentiles(samples: Samples, metric: str) -> Percentiles | None:
    buckets: dict[float, float] = defaultdict(float)
    for sample in samples.get(f"{metric}_bucket", ()):
        with suppress(ValueError):  # a bucket without a bound
            buckets[float(sample.labels.get("le", ""))] += sample.value
    p50, p99 = quantile(0.5, buckets), quantile(0.99, buckets)
    return None if p50 is None or p99 is None else Percentiles(p50, p99)


def _sum(samples: Samples, metric: str) -> float:
    return sum(sample.value for sample in samples.get(metric, ()))


def _count(asked: Sequence[Sample], status: str) -> int:
    """The requests whose status begins like that."""
    return round(sum(sample.value for sample in asked if sample.labels.get("status", "").startswith(status)))
