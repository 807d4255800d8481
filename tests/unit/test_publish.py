"""`toolkit prove --publish` of an endpoint: its figures go to the platform, and no report is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from fakes import answer_events, event_stream
from streaming_server import Answer, Part, streaming

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.metrics import Figure
from toolkit.errors import PlatformError, UsageError
from toolkit.measure.report import BenchReport
from toolkit.platforms.kubernetes.platform import KubernetesPlatform

ANSWER = Answer((Part(0.0, event_stream(answer_events([7, 8, 9], histogram=[0, 1]))),))


@dataclass
class Monitoring:
    """A platform with one endpoint, whose monitoring `refuses` figures."""

    url: str
    refuses: bool = False
    published: list[tuple[str, int]] = field(default_factory=list)

    def pause_between_arms(self, endpoint: str) -> float:
        return 0.0

    def openai_access(self, endpoint: str) -> OpenAIAccess:
        return OpenAIAccess(self.url, str)

    def invoke(self, endpoint: str, body: Any) -> dict[str, Any]:
        raise PlatformError("it gives no scores")

    def captured_traffic(self, endpoint: str) -> str | None:
        return None

    def read_objects(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        raise UsageError("there is no S3")

    def publish(self, name: str, figures: Sequence[Figure]) -> str:
        if figures and self.refuses:
            raise PlatformError("not authorized to perform cloudwatch:PutMetricData")
        self.published.append((name, len(figures)))
        return "the monitoring"


def measured(platform: Any) -> BenchReport:
    endpoint = Endpoint("hub", platform, destroyer=lambda name: pytest.fail(name))
    return toolkit.bench(endpoint, requests=2, concurrency=(1,), publish=True, progress=Silent())


def test_figures_are_published_under_the_endpoints_name() -> None:
    with streaming(ANSWER) as server:
        platform = Monitoring(server.url)
        measured(platform)

    (before, (name, figures)) = platform.published
    assert (before, name) == (("hub", 0), "hub")
    assert figures > 5


def test_a_report_whose_figures_are_refused_is_not_lost() -> None:
    with streaming(ANSWER) as server:
        report = measured(Monitoring(server.url, refuses=True))

    assert report.arms
    assert report.notes[-1] == "the figures were not published: not authorized to perform cloudwatch:PutMetricData"


def test_a_platform_without_monitoring_says_so_before_it_measures() -> None:
    with pytest.raises(UsageError, match="cannot be published from a cluster"):
        measured(object.__new__(KubernetesPlatform))
