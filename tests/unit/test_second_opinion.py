"""`toolkit bench --also aws`: the platform's own benchmark beside what was measured, and no report is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from fakes import answer_events, event_stream
from streaming_server import Answer, Part, streaming

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.cli.report_text import report_text
from toolkit.endpoint.access import OpenAIAccess
from toolkit.errors import PlatformError, UsageError
from toolkit.measure.opinion import opinion
from toolkit.measure.report import BenchReport
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.local.platform import LocalPlatform

ANSWER = Answer((Part(0.0, event_stream(answer_events([7, 8, 9], histogram=[0, 1]))),))
PLAIN = Answer((Part(0.0, event_stream(answer_events([7, 8, 9]))),))
PROFILES = {
    "hub": {
        "request_count": {"avg": 100.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 90.0},
        "time_to_first_token": {"unit": "ms", "p50": 40.0},
        "request_latency": {"unit": "s", "p50": 1.5},
    },
    "hub-baseline": {"output_token_throughput": {"unit": "tokens/sec", "avg": 60.0}},
}


class Hosted:
    """A platform that has a benchmark of its own, which may fail for an endpoint."""

    def __init__(self, url: str, baseline_url: str = "", failing: str = "") -> None:
        self.urls, self.failing = {"hub": url, "hub-baseline": baseline_url or url}, failing
        self.asked: list[tuple[str, Mapping[str, Any] | None, str]] = []

    def pause_between_arms(self, endpoint: str) -> float:
        return 0.0

    def openai_access(self, endpoint: str) -> OpenAIAccess:
        return OpenAIAccess(self.urls[endpoint], str)

    def invoke(self, endpoint: str, body: Any) -> dict[str, Any]:
        raise PlatformError("it gives no scores")

    def read_objects(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        raise UsageError("there is no S3")

    def captured_traffic(self, endpoint: str) -> str | None:
        return None

    def benchmark(self, endpoint: str, settings: Any, progress: object, role: str = "") -> Any:
        self.asked.append((endpoint, settings, role))
        if settings and endpoint == self.failing:
            raise PlatformError("the job failed", hint="Look at its role.")
        return PROFILES[endpoint]


def hub(platform: Any, name: str = "hub", target: str = "org/target@abc") -> Endpoint:
    baseline = "hub-baseline" if name == "hub" else None
    speculative = name == "hub"
    return Endpoint(name, platform, baseline, speculative, target=target, destroyer=lambda name: pytest.fail(name))


def measured(platform: Any, **options: Any) -> BenchReport:
    return toolkit.bench(hub(platform), requests=2, concurrency=(4, 2), also="aws", progress=Silent(), **options)


def test_both_arms_are_asked_with_the_same_settings_and_stand_in_one_table() -> None:
    with streaming(ANSWER) as server, streaming(PLAIN) as baseline:
        platform = Hosted(server.url, baseline.url)
        report = measured(platform, also_role="arn:aws:iam::123456789012:role/other")

    before, asked = platform.asked[:2], platform.asked[2:]
    assert [settings for _, settings, _ in before] == [None, None]
    assert [(name, role) for name, _, role in asked] == [
        ("hub-baseline", "arn:aws:iam::123456789012:role/other"),
        ("hub", "arn:aws:iam::123456789012:role/other"),
    ]
    assert [settings["tokenizer"] for _, settings, _ in asked if settings] == ["org/target"] * 2
    assert {settings["concurrency"] for _, settings, _ in asked if settings} == {2}
    text = report_text(report, 200)
    assert "A second opinion, at 2 at a time" in text
    assert "synthetic  speculative  aws      100       90     40.0             1500.0" in text
    assert "speculative gives 1.50 times the baseline's tokens per second; measured here:" in text
    assert "Why they differ: AWS asks with synthetic text" in text
    assert "A second opinion" in report._repr_html_()
    assert report.to_dict()["opinions"][1]["output_tokens_per_second"] == 90.0


def test_a_job_that_fails_loses_no_report() -> None:
    with streaming(ANSWER) as server, streaming(PLAIN) as baseline:
        report = measured(Hosted(server.url, baseline.url, failing="hub-baseline"))

    assert report.arms
    assert [told.arm for told in report.opinions] == ["speculative"]
    assert report.notes[-1] == "no second opinion on baseline: the job failed\n  Look at its role."
    assert "times the baseline's tokens per second" not in report_text(report, 200)


@pytest.mark.parametrize("platform", [KubernetesPlatform, LocalPlatform])
def test_a_platform_without_it_says_so_before_it_measures(platform: Any) -> None:
    with pytest.raises(UsageError, match="AWS does not benchmark hub-baseline") as caught:
        measured(object.__new__(platform))
    assert caught.value.hint == "Leave out --also."


def test_what_has_no_tokenizer_on_the_hub_and_urls_are_refused() -> None:
    platform = Hosted("http://127.0.0.1:9")
    with pytest.raises(UsageError, match="needs a tokenizer of the hub; the target is 's3://mine/target/'"):
        toolkit.bench(hub(platform, target="s3://mine/target/"), also="aws", progress=Silent())
    with pytest.raises(UsageError, match="it is a URL"):
        toolkit.bench("http://127.0.0.1:9/v1", also="aws", progress=Silent())


def test_a_unit_that_is_not_known_is_no_figure() -> None:
    told = opinion(
        "hub", {"concurrency": 1}, {"time_to_first_token": {"unit": "fortnights", "p50": 1.0}, "request_latency": 3}
    )
    assert (told.ttft, told.e2e, told.requests) == (None, None, None)


@pytest.mark.parametrize(
    "options", [["--also", "aws", "--what-if-acceptance", "2"], ["--also-role", "arn"], ["--also", "gcp"]]
)
def test_options_that_do_not_go_together(options: list[str]) -> None:
    assert run(["bench", "hub", *options]) == 2
