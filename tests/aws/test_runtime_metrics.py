"""Metrics from CloudWatch: classic ones by GetMetricData, the engine's by PromQL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

import boto3
import pytest
from botocore.stub import ANY, Stubber
from scripted_http import Reply, ScriptedServer, scripted

from toolkit.endpoint.metrics import EngineMetrics, Metrics, Percentiles
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.metrics import read_metrics

NOW = 1_800_000_000.0
NOTHING = Reply(parts=(b'{"status": "success", "data": {"resultType": "vector", "result": []}}',))
VALUES = {
    "invocations": 120.0,
    "client_errors": 3.0,
    "server_errors": 1.0,
    "model_p50": 1_200_000.0,
    "model_p99": 4_500_000.0,
    "overhead": 4_000.0,
    "concurrent": 8.0,
    "gpu": 71.0,
}


class LoopbackSession(boto3.Session):
    """CloudWatch is the test's own server."""

    def __init__(self, url: str) -> None:
        super().__init__("AKID", "secret", region_name="us-west-2")
        self._url = url

    def client(self, *arguments: Any, **options: Any) -> Any:
        session: Any = super()
        return session.client(*arguments, endpoint_url=self._url, **options)


def number(value: float) -> Reply:
    document = {"status": "success", "data": {"result": [{"metric": {}, "value": [NOW, str(value)]}]}}
    return Reply(parts=(json.dumps(document).encode(),))


@contextmanager
def cloudwatch(values: Mapping[str, list[float]], *replies: Reply) -> Iterator[tuple[Clients, ScriptedServer]]:
    """CloudWatch with these values (by the beginning of the query's id), and these answers to PromQL in their order."""
    with scripted(*(replies or (NOTHING,))) as server:
        clients = Clients(LoopbackSession(server.url))
        with Stubber(clients.cloudwatch) as stubbed:
            results = [{"Id": name, "Values": found} for name, found in values.items()]
            stubbed.add_response("get_metric_data", {"MetricDataResults": results}, EXPECTED)
            yield clients, server


EXPECTED = {"MetricDataQueries": ANY, "StartTime": ANY, "EndTime": ANY}


def of_one_variant(**changes: list[float]) -> dict[str, list[float]]:
    return {f"{key}_0": [value] for key, value in VALUES.items()} | {f"{key}_0": v for key, v in changes.items()}


def read(values: Mapping[str, list[float]], *replies: Reply, variants: tuple[str, ...] = ("AllTraffic",)) -> Metrics:
    with cloudwatch(values, *replies) as (clients, _):
        return read_metrics(clients, "chat", variants, 60, lambda: NOW)


def asked_of_cloudwatch(endpoint: str, *variants: str) -> dict[str, tuple[str, str, str, dict[str, str], int]]:
    """Id to namespace, metric, statistic, dimensions and period of each classic query."""
    queries: list[Any] = []
    with cloudwatch({}) as (clients, _):
        clients.cloudwatch.meta.events.register(
            "provide-client-params.cloudwatch.GetMetricData",
            lambda params, **_: queries.extend(params["MetricDataQueries"]),
        )
        read_metrics(clients, endpoint, variants, 60, lambda: NOW)
    asked = {query["Id"]: query["MetricStat"] for query in queries}
    return {
        name: (
            stat["Metric"]["Namespace"],
            stat["Metric"]["MetricName"],
            stat["Stat"],
            {item["Name"]: item["Value"] for item in stat["Metric"]["Dimensions"]},
            stat["Period"],
        )
        for name, stat in asked.items()
    }


def test_what_sagemaker_publishes_of_an_endpoint() -> None:
    metrics = read(of_one_variant())
    assert metrics == Metrics(
        endpoint="chat",
        minutes=60,
        invocations=120,
        client_errors=3,
        server_errors=1,
        model_latency=Percentiles(1.2, 4.5),
        overhead_latency=0.004,
        concurrent_requests=8,
        gpu_utilization=71.0,
        notes=metrics.notes,
    )


def test_an_endpoint_that_nobody_asked_has_no_latencies() -> None:
    metrics = read({})
    assert (metrics.invocations, metrics.model_latency, metrics.concurrent_requests) == (0, None, None)


def test_variants_add_up_and_the_worst_latency_counts() -> None:
    other = {f"{key}_1": [value / 2] for key, value in VALUES.items()}
    metrics = read(of_one_variant() | other, variants=("speculative", "baseline"))
    assert metrics.invocations == 180
    assert metrics.model_latency == Percentiles(1.2, 4.5)


def test_a_window_that_cloudwatch_cuts_in_two_adds_up() -> None:
    assert read(of_one_variant(invocations=[100.0, 20.0])).invocations == 120


def test_an_endpoint_is_asked_for_by_its_variants() -> None:
    asked = asked_of_cloudwatch("chat", "a", "b")
    dimensions = {"EndpointName": "chat", "VariantName": "a"}
    assert asked["invocations_0"] == ("AWS/SageMaker", "Invocations", "Sum", dimensions, 3600)
    assert asked["model_p99_0"] == ("AWS/SageMaker", "ModelLatency", "p99", dimensions, 3600)
    assert asked["gpu_0"] == ("/aws/sagemaker/Endpoints", "GPUUtilization", "Average", dimensions, 3600)
    assert asked["concurrent_1"][1:4] == ("ConcurrentRequestsPerModel", "Maximum", {**dimensions, "VariantName": "b"})


def test_a_component_is_asked_for_by_its_name() -> None:
    asked = asked_of_cloudwatch("chat/part", "a", "b")
    dimensions = {"InferenceComponentName": "part"}
    assert asked["invocations_0"] == ("AWS/SageMaker", "Invocations", "Sum", dimensions, 3600)
    assert asked["concurrent_0"][1:3] == ("ConcurrentRequestsPerCopy", "Maximum")
    assert asked["gpu_0"][:2] == ("/aws/sagemaker/InferenceComponents", "GPUUtilizationNormalized")
    assert asked["accepted_0"] == ("toolkit/part", "AcceptedTokens", "Sum", {}, 3600)
    assert not any(name.endswith("_1") for name in asked)


def test_what_the_engine_publishes() -> None:
    tokens, steps, accepted, drafted = number(7200), number(1000), number(2250), number(5000)
    ttft, itl = (number(0.05), number(0.2)), (number(0.008), number(0.02))
    metrics = read(of_one_variant(), tokens, steps, accepted, drafted, *ttft, *itl)
    assert metrics.engine == EngineMetrics(Percentiles(0.05, 0.2), Percentiles(0.008, 0.02), 2.0, 3.25, 0.45)
    assert metrics.notes == ()


def test_without_detailed_observability_one_learns_how_to_switch_it_on() -> None:
    (note,) = read(of_one_variant(), NOTHING).notes
    assert "MetricsConfig.EnableDetailedObservability" in note


def test_without_draft_tokens_one_learns_where_to_look() -> None:
    metrics = read(of_one_variant(), number(7200), NOTHING)
    assert metrics.engine.output_tokens_per_second == 2.0
    assert metrics.engine.acceptance_length is None
    assert "toolkit prove" in metrics.notes[0]


def test_the_acceptance_rate_is_also_counted_from_the_log() -> None:
    counted = of_one_variant(accepted=[450.0], drafted=[600.0, 400.0])
    assert read(counted, NOTHING).engine == EngineMetrics(acceptance_rate=0.45)
    steps, accepted, drafted = number(1000), number(3000), number(5000)
    assert read(counted, number(7200), steps, accepted, drafted).engine.acceptance_rate == 0.6, (
        "the engine's own counts"
    )


def test_percentiles_of_nothing_are_unknown() -> None:
    metrics = read(of_one_variant(), number(7200), number(1), number(1), number(1), number(float("nan")))
    assert metrics.engine.ttft is None


@pytest.mark.parametrize(
    "reply",
    [
        Reply(403, (b'{"message": "not authorized to perform: cloudwatch:GetMetricData"}',)),
        Reply(422, (b'{"status": "error", "error": "not authorized to perform: cloudwatch:GetMetricData"}',)),
        Reply(parts=(b"not authorized to perform: cloudwatch:GetMetricData",)),
        Reply(parts=(b'{"status": "not authorized to perform: cloudwatch:GetMetricData"}',)),
    ],
)
def test_when_promql_fails_the_rest_is_still_told(reply: Reply) -> None:
    metrics = read(of_one_variant(), reply)
    assert metrics.invocations == 120
    assert metrics.engine == EngineMetrics()
    assert metrics.notes[0].startswith("Cannot read the engine's own metrics: CloudWatch")


def test_promql_is_signed_and_asks_for_both_spellings_of_awss_guide() -> None:
    with cloudwatch(of_one_variant()) as (clients, server):
        read_metrics(clients, "chat/part", ("AllTraffic",), 60, lambda: NOW)
    first = server.requests[0]
    assert first.path == "/api/v1/query"
    assert "/us-west-2/monitoring/aws4_request" in first.headers["authorization"]
    assert "secret" not in first.headers["authorization"]
    forms = [parse_qs(request.body.decode()) for request in server.requests]
    assert {form["time"][0] for form in forms} == {"1800000000"}
    queries = [form["query"][0] for form in forms]
    labels = '"aws.sagemaker.endpoint.name"="chat","aws.sagemaker.inference_component.name"="part"'
    assert queries[1] == (
        f'sum(increase({{"vllm:spec_decode_num_drafts_total",{labels}}}[3600s])) or '
        f'sum(increase({{"vllm_spec_decode_num_drafts_total",{labels}}}[3600s]))'
    )
    assert queries[4] == (
        f'histogram_quantile(0.5, sum(rate({{"vllm:time_to_first_token_seconds",{labels}}}[3600s]))) or '
        "histogram_quantile(0.5, sum by (le) "
        f'(rate({{"vllm_time_to_first_token_seconds_bucket",{labels}}}[3600s])))'
    )
