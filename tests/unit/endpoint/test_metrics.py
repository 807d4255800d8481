"""Metrics as they are shown."""

from __future__ import annotations

import pytest

from toolkit.endpoint.metrics import EngineMetrics, Metrics, Percentiles
from toolkit.endpoint.prometheus import metrics_of_pages
from toolkit.errors import PlatformError

FULL = Metrics(
    endpoint="chat",
    minutes=60,
    invocations=120,
    client_errors=3,
    server_errors=1,
    model_latency=Percentiles(1.2, 4.5),
    overhead_latency=0.004,
    concurrent_requests=8,
    gpu_utilization=71.4,
    engine=EngineMetrics(Percentiles(0.05, 0.2), Percentiles(0.008, 0.02), 412.0, 3.25, 0.45),
)


def test_all_that_is_known() -> None:
    assert repr(FULL).splitlines() == [
        "<Metrics chat: 60 minutes>",
        "  requests             120, 3 with a 4xx and 1 with a 5xx error",
        "  model latency        1.200 s median, 4.500 s at the 99th percentile",
        "  overhead             0.004 s",
        "  concurrent requests  at most 8",
        "  GPU utilization      71 %",
        "  TTFT                 0.050 s median, 0.200 s at the 99th percentile",
        "  ITL                  0.008 s median, 0.020 s at the 99th percentile",
        "  output tokens/s      412.0",
        "  acceptance length    3.25 tokens per target step",
        "  acceptance rate      45% of draft tokens",
    ]


def test_what_nobody_published_is_left_out_and_said_why() -> None:
    metrics = Metrics("chat", 5, notes=("detailed observability is <off>",))
    assert repr(metrics).splitlines() == [
        "<Metrics chat: 5 minutes>",
        "  requests             0, 0 with a 4xx and 0 with a 5xx error",
        "  detailed observability is <off>",
    ]
    assert "&lt;off&gt;" in metrics._repr_html_()


def test_as_a_document() -> None:
    document = FULL.to_dict()
    assert document["engine"]["ttft"] == {"p50": 0.05, "p99": 0.2}
    assert document["engine"]["acceptance_length"] == 3.25
    assert Metrics("chat", 5).to_dict()["model_latency"] is None


def test_without_a_container_there_are_none() -> None:
    with pytest.raises(PlatformError, match="no container of chat is ready") as caught:
        metrics_of_pages("chat", 5, {})
    assert caught.value.hint == "See how it is: toolkit status chat"


def test_health_checks_are_no_requests() -> None:
    page = b"""# TYPE http_requests_total counter
http_requests_total{handler="/invocations",status="2xx"} 8.0
http_requests_total{handler="/v1/chat/completions",status="4xx"} 2.0
http_requests_total{handler="/ping",status="2xx"} 900.0
"""
    metrics = metrics_of_pages("chat", 5, {"a pod": page})
    assert (metrics.invocations, metrics.client_errors) == (10, 2)
