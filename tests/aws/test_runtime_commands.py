"""`toolkit logs`, `metrics` and `watch` of an endpoint on AWS that is none of ours."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from standin import StandIn
from standin_user import User

from toolkit.cli.main import run
from toolkit.endpoint.platform import read_log
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.platform import SageMakerPlatform

LOG = ("container starts", "INFO: application startup complete")


@pytest.fixture(autouse=True)
def user(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> User:
    """Somebody whose endpoint `chat` is in service."""
    for name, value in standin.environment().items():
        monkeypatch.setenv(name, value)
    user = User(standin)
    standin.script("chat", ["Creating", "InService"], logs=LOG)
    user.deploy("chat")
    return user


def write_log(user: User, text: str, seconds_ago: float = 0) -> None:
    """One more line of the endpoint's container."""
    group = "/aws/sagemaker/Endpoints/chat"
    (stream,) = user.logs.describe_log_streams(logGroupName=group)["logStreams"]
    event: Any = {"timestamp": int((time.time() - seconds_ago) * 1000), "message": text}
    user.logs.put_log_events(logGroupName=group, logStreamName=stream["logStreamName"], logEvents=[event])


def toolkit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run([*arguments, "--platform", "sagemaker"])
    return code, capsys.readouterr().out


def test_the_log_of_an_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert toolkit(capsys, "logs", "chat") == (0, "".join(f"{line}\n" for line in LOG))
    code, out = toolkit(capsys, "logs", "chat", "--json")
    assert (code, json.loads(out)) == (0, {"endpoint": "chat", "lines": list(LOG)})


def test_the_log_of_the_last_seconds(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(user, "an hour ago", seconds_ago=3600)
    assert "an hour ago" in toolkit(capsys, "logs", "chat")[1]
    assert toolkit(capsys, "logs", "chat", "--since", "10m")[1].splitlines() == list(LOG)


def test_the_lines_that_are_looked_for(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(user, "Traceback: CUDA out of memory")
    assert toolkit(capsys, "logs", "chat", "--grep", "OUT OF") == (0, "Traceback: CUDA out of memory\n")


def test_following_reads_each_line_once(standin: StandIn, user: User) -> None:
    platform = SageMakerPlatform(Clients(standin.session()))
    lines = read_log(platform, "chat", follow=True, sleep=lambda _: write_log(user, "POST /invocations 200"))
    assert [line.text for line in islice(lines, 4)] == [*LOG, *["POST /invocations 200"] * 2]


def test_a_document_has_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["logs", "chat", "--follow", "--json"])
    ended = capsys.readouterr()
    assert (code, json.loads(ended.out)["error"]) == (2, "UsageError")


def test_metrics(standin: StandIn, user: User, capsys: pytest.CaptureFixture[str]) -> None:
    dimensions = [{"Name": "EndpointName", "Value": "chat"}, {"Name": "VariantName", "Value": "only"}]
    for _ in range(3):
        data = {"MetricName": "Invocations", "Value": 1.0, "Dimensions": dimensions, "Timestamp": datetime.now(UTC)}
        standin.publish([data])

    code, out = toolkit(capsys, "metrics", "chat", "--minutes", "5")
    assert code == 0
    assert out.splitlines()[0].split() == ["last", "5", "minutes", "chat"]
    assert "3, 0 with a 4xx and 0 with a 5xx error" in out
    assert "detailed observability" in out

    code, out = toolkit(capsys, "metrics", "chat", "--json")
    document = json.loads(out)
    assert (code, document["endpoint"], document["minutes"], document["invocations"]) == (0, "chat", 60, 3)
    assert document["engine"]["acceptance_length"] is None


def test_metrics_of_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert toolkit(capsys, "metrics", "nobody")[0] == 3


RECIPE = """\
name: chat
target: {model: Qwen/Qwen3-8B}
speculation: {method: eagle3, model: RedHatAI/Qwen3-8B-speculator.eagle3, num_speculative_tokens: 4}
engine: {name: vllm, version: 0.29.0}
platform: {name: sagemaker, instance_types: [ml.g6e.2xlarge]}
evidence:
  - {workload: chat, num_speculative_tokens: 4, acceptance_length: 2.5, hardware: L40S, engine: vLLM 0.29.0,
     date: "2026-11-01", source: a benchmark}
"""


@pytest.mark.parametrize(("accepted", "length", "code"), [(24.0, 1.96, 1), (25.0, 2.0, 0)])
def test_watch_compares_live_acceptance_with_the_evidence(
    user: User, capsys: pytest.CaptureFixture[str], tmp_path: Path, accepted: float, length: float, code: int
) -> None:
    cloudwatch: Any = user.session.client("cloudwatch")
    for name, value in (("AcceptedTokens", accepted), ("DraftedTokens", 100.0)):
        data = {"MetricName": name, "Value": value, "Timestamp": datetime.now(UTC)}
        cloudwatch.put_metric_data(Namespace="toolkit/chat", MetricData=[data])
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)

    ended, out = toolkit(capsys, "watch", str(recipe), "--json")

    document = json.loads(out)
    assert (ended, document["ok"], document["floor"]) == (code, code == 0, 2.0)
    assert document["acceptance_length"] == pytest.approx(length)
