"""An endpoint's metrics: read from CloudWatch, and what was measured put there."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import NoCredentialsError

from toolkit import documents
from toolkit.catalog import lookup
from toolkit.endpoint.metrics import EngineMetrics, Figure, Metrics, Percentiles
from toolkit.engines import registry as engine_registry
from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.rules.metrics import ACCEPTED, DRAFTED, namespace
from toolkit.recipe.rules import MetricNames

if TYPE_CHECKING:
    from types_boto3_cloudwatch.type_defs import DimensionTypeDef, MetricDataQueryTypeDef, MetricDatumTypeDef

_MICROSECONDS = 1e6
_NO_ENGINE_METRICS = (
    "The engine's own metrics are not in CloudWatch: the endpoint's configuration must have detailed observability "
    "(MetricsConfig.EnableDetailedObservability), and they take some minutes to come."
)
_NO_DRAFTS = (
    "CloudWatch counts no draft tokens, or does not collect these counters (unverified). "
    "To measure acceptance, run: toolkit prove"
)
# A PutMetricData request has 1,000 metrics and 1 MB at most.
_AT_ONCE = 500
_LONGEST_VALUE = 1024
_TIMEOUT_SECONDS = 30.0  # CloudWatch itself gives up after 20
_LONGEST_TEXT = 300


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
    worst = {key: max(measured) for key, measured in values.items() if measured}
    p50, p99 = worst.get("model_p50"), worst.get("model_p99")
    engine, notes = _engine(clients, endpoint, minutes * 60, now)
    if engine.acceptance_rate is None and (drafted := sum(values["drafted"])):  # which the log's metric filters count
        engine = replace(engine, acceptance_rate=sum(values["accepted"]) / drafted)
    return Metrics(
        endpoint,
        minutes,
        invocations=int(sum(values["invocations"])),
        client_errors=int(sum(values["client_errors"])),
        server_errors=int(sum(values["server_errors"])),
        model_latency=None if p50 is None or p99 is None else Percentiles(p50 / _MICROSECONDS, p99 / _MICROSECONDS),
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
        queries.append(_query(f"{key}_0", _Metric(metric, "Sum", namespace(component or name)), {}, seconds))
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


def _engine(clients: Clients, endpoint: str, seconds: int, now: float) -> tuple[EngineMetrics, tuple[str, ...]]:
    """The engine's own metrics, and why there are none: they are an extra, whose lack is no failure."""
    try:
        told = engine_registry.engine_rules(lookup.default_engine()).metrics
        assert told, "all of AWS's engines have metrics, with the same names"
        engine = read_engine_metrics(clients, endpoint, seconds, now, told.names)
    except PlatformError as error:
        return EngineMetrics(), (f"Cannot read the engine's own metrics: {error.message}",)
    if engine == EngineMetrics():
        return engine, (_NO_ENGINE_METRICS,)
    return engine, () if engine.acceptance_length else (_NO_DRAFTS,)


def publish(clients: Clients, name: str, figures: Sequence[Figure]) -> str:
    """Put the figures of an endpoint or component; where they are. Raises PlatformError."""
    place, rest = namespace(name), iter(figures)
    with aws_errors(f"publishing the figures of {name}"):
        while data := [_datum(figure) for figure in islice(rest, _AT_ONCE)]:
            clients.cloudwatch.put_metric_data(Namespace=place, MetricData=data)
    return f"CloudWatch's namespace {place}"


def _ascii(value: str) -> str:
    """The value of a dimension, which is printable ASCII, does not begin with a colon, and has 1,024 characters."""
    shown = "".join(character if " " <= character <= "~" else "?" for character in value)
    return shown.lstrip(":")[:_LONGEST_VALUE] or "?"


def _datum(figure: Figure) -> MetricDatumTypeDef:
    dimensions: list[DimensionTypeDef] = [
        {"Name": key, "Value": _ascii(value)} for key, value in figure.dimensions.items()
    ]
    return {"MetricName": figure.name, "Value": figure.value, "Unit": figure.unit, "Dimensions": dimensions}


def read_engine_metrics(clients: Clients, endpoint: str, seconds: int, now: float, names: MetricNames) -> EngineMetrics:
    """Of an endpoint, or `endpoint/component`, over the `seconds` before `now`. Raises PlatformError.

    Detailed observability brings them from the container's Prometheus page to CloudWatch, as OpenTelemetry metrics,
    which only PromQL reads: POST /api/v1/query on CloudWatch's host, signed as `monitoring`, allowed by
    cloudwatch:GetMetricData and cloudwatch:ListMetrics. From AWS's guides of 2026, unverified on a live account. Two
    pages of the SageMaker guide spell the metrics in two ways, so both are asked for. That the counters of speculative
    decoding are among them is written nowhere, but the whole page is said to be collected.
    """
    name, _, component = endpoint.partition("/")
    labels = f'"aws.sagemaker.endpoint.name"="{name}"'
    if component:
        labels += f',"aws.sagemaker.inference_component.name"="{component}"'
    window = f"[{seconds}s]"

    def count(metric: str) -> float:
        forms = (f'sum(increase({{"{spelt}",{labels}}}{window}))' for spelt in (metric, _with_underscores(metric)))
        return _value(clients, " or ".join(forms), now) or 0.0

    def percentile(metric: str, share: float) -> float | None:
        one = f'sum(rate({{"{metric}",{labels}}}{window}))'
        other = f'sum by (le) (rate({{"{_with_underscores(metric)}_bucket",{labels}}}{window}))'
        return _value(clients, f"histogram_quantile({share}, {one}) or histogram_quantile({share}, {other})", now)

    def percentiles(metric: str) -> Percentiles | None:
        p50, p99 = percentile(metric, 0.5), percentile(metric, 0.99)
        return None if p50 is None or p99 is None else Percentiles(p50, p99)

    tokens, steps = count(names.generated_tokens), count(names.drafts)
    accepted, drafted = count(names.accepted_tokens), count(names.drafted_tokens)
    return EngineMetrics(
        ttft=percentiles(names.time_to_first_token),
        itl=percentiles(names.inter_token_latency),
        output_tokens_per_second=tokens / seconds if tokens else None,
        acceptance_length=1 + accepted / steps if steps else None,
        acceptance_rate=accepted / drafted if drafted else None,
    )


def _with_underscores(metric: str) -> str:
    return metric.replace(":", "_", 1)


def _value(clients: Clients, expression: str, now: float) -> float | None:
    """The one number that an expression has at a moment, None when it has none."""
    content = _answer(clients, urlencode({"query": expression, "time": f"{now:.0f}"}))
    try:
        result = documents.parse(_Answer, content).data.result
    except documents.Unfit as error:
        raise PlatformError(f"CloudWatch's answer to a PromQL query is not one of Prometheus: {error}") from error
    return result[0].value[1] if result and math.isfinite(result[0].value[1]) else None


@dataclass(frozen=True)
class _Sample:
    """A time, and a number that Prometheus writes as text."""

    value: tuple[float, float]


@dataclass(frozen=True)
class _Data:
    result: list[_Sample]


@dataclass(frozen=True)
class _Answer:
    """What Prometheus answers to a query for one moment."""

    data: _Data


def _answer(clients: Clients, form: str) -> bytes:
    import httpx  # which nothing else here needs

    meta = clients.cloudwatch.meta
    url = f"{meta.endpoint_url}/api/v1/query"
    request = AWSRequest("POST", url, {"Content-Type": "application/x-www-form-urlencoded"}, form)
    with aws_errors("signing a PromQL query"):
        credentials = clients.session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        SigV4Auth(credentials.get_frozen_credentials(), "monitoring", meta.region_name).add_auth(request)
    try:
        with httpx.Client(timeout=_TIMEOUT_SECONDS, trust_env=not documents.is_loopback(url)) as client:
            answer = documents.request(client, "POST", url, content=form, headers=dict(request.headers))
        return answer.raise_for_status().content
    except httpx.HTTPStatusError as error:
        text = error.response.text[:_LONGEST_TEXT]
        raise PlatformError(f"CloudWatch answered {error.response.status_code} to a PromQL query: {text}") from error
    except (httpx.HTTPError, httpx.InvalidURL, documents.Unfit) as error:
        raise PlatformError(f"CloudWatch does not answer a PromQL query: {error}") from error
