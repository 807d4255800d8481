"""An endpoint's metrics from CloudWatch; names, units and dimensions as in SageMaker's developer guide of 2026."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from toolkit import registry
from toolkit.endpoint.metrics import EngineMetrics, Metrics, Percentiles
from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.promql import read_engine_metrics
from toolkit.platforms.sagemaker.rules.metrics import ACCEPTED, DRAFTED

if TYPE_CHECKING:
    from types_boto3_cloudwatch.type_defs import MetricDataQueryTypeDef

_MICROSECONDS = 1e6
_NO_ENGINE_METRICS = (
    "The engine's own metrics are not in CloudWatch: the endpoint's configuration must have detailed observability "
    "(MetricsConfig.EnableDetailedObservability), and they take some minutes to come."
)
_NO_DRAFTS = (
    "CloudWatch counts no draft tokens, or does not collect these counters (unverified). "
    "To measure acceptance, run: toolkit prove"
)


@dataclass(frozen=True)
class _Metric:
    """One statistic of a metric."""

    name: str
    statistic: str
    namespace: str = "AWS/SageMaker"


_INVOCATIONS = {
    "invocations": _Metric("Invocations", "Sum"),
    "client_errors": _Metric("Invocation4XXErrors", "Sum"),
    "server_errors": _Metric("Invocation5XXErrors", "Sum"),
    "model_p50": _Metric("ModelLatency", "p50"),
    "model_p99": _Metric("ModelLatency", "p99"),
    "overhead": _Metric("OverheadLatency", "Average"),
}
_OF_VARIANTS = {
    **_INVOCATIONS,
    "concurrent": _Metric("ConcurrentRequestsPerModel", "Maximum"),
    "gpu": _Metric("GPUUtilization", "Average", "/aws/sagemaker/Endpoints"),
}
_OF_COMPONENTS = {
    **_INVOCATIONS,
    "concurrent": _Metric("ConcurrentRequestsPerCopy", "Maximum"),
    "gpu": _Metric("GPUUtilizationNormalized", "Average", "/aws/sagemaker/InferenceComponents"),
}


def read_metrics(
    clients: Clients,
    endpoint: str,
    variants: Sequence[str],
    minutes: int,
    clock: Callable[[], float] = time.time,
) -> Metrics:
    """The last `minutes` of an endpoint with these variants, or of an `endpoint/component`. Raises PlatformError."""
    now = clock()
    with aws_errors(f"reading the metrics of {endpoint}"):
        values = _values(clients, endpoint, variants, minutes * 60, now)
    worst = {key: max(found) for key, found in values.items() if found}
    engine, notes = _engine(clients, endpoint, minutes * 60, now)
    if engine.acceptance_rate is None and (drafted := sum(values["drafted"])):  # which the log's metric filters count
        engine = replace(engine, acceptance_rate=sum(values["accepted"]) / drafted)
    return Metrics(
        endpoint,
        minutes,
        invocations=int(sum(values["invocations"])),
        client_errors=int(sum(values["client_errors"])),
        server_errors=int(sum(values["server_errors"])),
        model_latency=_model_latency(worst),
        overhead_latency=worst["overhead"] / _MICROSECONDS if "overhead" in worst else None,
        concurrent_requests=int(worst["concurrent"]) if "concurrent" in worst else None,
        gpu_utilization=worst.get("gpu"),
        engine=engine,
        notes=notes,
    )


def _values(
    clients: Clients, endpoint: str, variants: Sequence[str], seconds: int, now: float
) -> Mapping[str, list[float]]:
    """What there is of each metric: one value per variant, or two where CloudWatch cuts the time in two."""
    name, _, component = endpoint.partition("/")
    wanted = _OF_COMPONENTS if component else _OF_VARIANTS
    scopes = [{"EndpointName": name, "VariantName": variant} for variant in variants]
    if component:
        scopes = [{"InferenceComponentName": component}]
    queries = [
        _query(f"{key}_{number}", metric, scope, seconds)
        for number, scope in enumerate(scopes)
        for key, metric in wanted.items()
    ]
    for key, metric in (("accepted", ACCEPTED), ("drafted", DRAFTED)):
        queries.append(_query(f"{key}_0", _Metric(metric, "Sum", f"toolkit/{component or name}"), {}, seconds))
    start, end = (datetime.fromtimestamp(moment, UTC) for moment in (now - seconds, now))
    values: dict[str, list[float]] = defaultdict(list)
    get = clients.cloudwatch.get_paginator("get_metric_data")
    for page in get.paginate(MetricDataQueries=queries, StartTime=start, EndTime=end):
        for result in page["MetricDataResults"]:
            values[result["Id"].rpartition("_")[0]] += result["Values"]
    return values


def _query(name: str, metric: _Metric, scope: Mapping[str, str], seconds: int) -> MetricDataQueryTypeDef:
    return {
        "Id": name,
        "MetricStat": {
            "Metric": {
                "Namespace": metric.namespace,
                "MetricName": metric.name,
                "Dimensions": [{"Name": dimension, "Value": value} for dimension, value in scope.items()],
            },
            "Period": seconds,
            "Stat": metric.statistic,
        },
    }


def _model_latency(worst: Mapping[str, float]) -> Percentiles | None:
    if "model_p50" not in worst or "model_p99" not in worst:
        return None
    return Percentiles(worst["model_p50"] / _MICROSECONDS, worst["model_p99"] / _MICROSECONDS)


def _engine(clients: Clients, endpoint: str, seconds: int, now: float) -> tuple[EngineMetrics, tuple[str, ...]]:
    """The engine's own metrics, and why there are none: they are an extra, whose lack is no failure."""
    try:
        names = registry.engine_rules(registry.default_engine()).metrics.names  # all of our engines have them
        engine = read_engine_metrics(clients, endpoint, seconds, now, names)
    except PlatformError as error:
        return EngineMetrics(), (f"Cannot read the engine's own metrics: {error.message}",)
    if engine == EngineMetrics():
        return engine, (_NO_ENGINE_METRICS,)
    return engine, () if engine.acceptance_length else (_NO_DRAFTS,)
