"""The engine's own metrics, which detailed observability brings from the container's Prometheus page to CloudWatch.

They are OpenTelemetry metrics, which only PromQL reads: POST /api/v1/query on CloudWatch's host, signed as
`monitoring`, allowed by cloudwatch:GetMetricData and cloudwatch:ListMetrics. From AWS's guides of 2026, unverified on
a live account. Two pages of the SageMaker guide spell the metrics in two ways, so both are asked for. That the counters
of speculative decoding are among them is written nowhere, but the whole page is said to be collected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from urllib.parse import urlencode

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import NoCredentialsError

from toolkit import documents
from toolkit.endpoint.access import is_loopback
from toolkit.endpoint.metrics import EngineMetrics, Percentiles
from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.recipe.rules import MetricNames

_TIMEOUT_SECONDS = 30.0  # CloudWatch itself gives up after 20
_LONGEST_TEXT = 300


def read_engine_metrics(clients: Clients, endpoint: str, seconds: int, now: float, names: MetricNames) -> EngineMetrics:
    """Of an endpoint, or `endpoint/component`, over the `seconds` before `now`. Raises PlatformError."""
    name, _, component = endpoint.partition("/")
    labels = f'"aws.sagemaker.endpoint.name"="{name}"'
    if component:
        labels += f',"aws.sagemaker.inference_component.name"="{component}"'
    window = f"[{seconds}s]"

    def count(metric: str) -> float:
        forms = (f'sum(increase({{"{spelt}",{labels}}}{window}))' for spelt in (metric, _underscored(metric)))
        return _value(clients, " or ".join(forms), now) or 0.0

    def percentile(metric: str, share: float) -> float | None:
        one = f'sum(rate({{"{metric}",{labels}}}{window}))'
        other = f'sum by (le) (rate({{"{_underscored(metric)}_bucket",{labels}}}{window}))'
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


def _underscored(metric: str) -> str:
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
        with httpx.Client(timeout=_TIMEOUT_SECONDS, trust_env=not is_loopback(url)) as client:
            answer = documents.request(client, "POST", url, content=form, headers=dict(request.headers))
        return answer.raise_for_status().content
    except httpx.HTTPStatusError as error:
        text = error.response.text[:_LONGEST_TEXT]
        raise PlatformError(f"CloudWatch answered {error.response.status_code} to a PromQL query: {text}") from error
    except (httpx.HTTPError, httpx.InvalidURL, documents.Unfit) as error:
        raise PlatformError(f"CloudWatch does not answer a PromQL query: {error}") from error
