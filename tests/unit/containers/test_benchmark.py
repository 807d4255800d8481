"""The benchmark in the cluster, as a process, against an endpoint on loopback whose times are known."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "containers" / "benchmark"
sys.path.insert(0, str(FOLDER))
import benchmark  # noqa: E402

CHUNKS, TOKENS, STEP_SECONDS = 4, 10, 0.005


class Endpoint(ThreadingHTTPServer):
    """Answers each request with four chunks of ten tokens in all, and counts draft tokens as vLLM does."""

    daemon_threads = True
    speculates = True
    refuses = ""
    models = json.dumps({"data": [{"id": "tiny"}]})

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: Endpoint

    def do_GET(self) -> None:
        steps = len(self.server.requests)
        counted = {"drafts": steps * 4, "draft_tokens": steps * 28, "accepted_tokens": steps * 6}
        metrics = [
            f'vllm:spec_decode_num_{name}_total{{engine="0",model_name="tiny"}} {float(value)}'
            for name, value in counted.items()
        ]
        bodies = {
            "/ping": "",
            "/v1/models": self.server.models,
            "/metrics": "\n".join(metrics if self.server.speculates else ["# none"]),
        }
        self._answer(200, bodies[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.refuses and self.server.refuses in body["messages"][0]["content"]:
            self._answer(400, "no such words here")
            return
        self.server.requests.append(body)
        self.send_response(200)
        self.end_headers()
        for _ in range(CHUNKS):
            time.sleep(STEP_SECONDS)
            self._event({"choices": [{"delta": {"content": "word"}}]})
        self._event({"choices": [], "usage": {"prompt_tokens": 64, "completion_tokens": TOKENS}})
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:
        """Not to stderr."""

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def speculative() -> Iterator[Endpoint]:
    yield from served()


@pytest.fixture
def baseline() -> Iterator[Endpoint]:
    yield from served()


def served() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield endpoint
        endpoint.shutdown()


def run(**arms: str) -> tuple[int, list[dict[str, Any]]]:
    """The program's exit code, and its lines."""
    options = [word for variant, url in arms.items() for word in ("--arm", f"{variant}={url}")]
    ended = subprocess.run([sys.executable, FOLDER / "benchmark.py", *options], capture_output=True, text=True)
    assert ended.stderr == ""
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()]


def test_every_prompt_on_both_arms_as_metrics(speculative: Endpoint, baseline: Endpoint) -> None:
    baseline.speculates = False
    code, lines = run(SD=speculative.url, Base=baseline.url)
    assert code == 0
    assert [(line["TestCase"], line["Variant"]) for line in lines] == [
        (case, variant) for case in benchmark.PROMPTS for variant in ("SD", "Base")
    ]
    first, second = lines[:2]
    assert (first["InputTokens"], first["OutputTokens"], first["Endpoint"]) == (64, TOKENS, "tiny")
    assert first["AcceptanceLength"] == 1 + 6 / 4
    assert first["AcceptanceRate"] == pytest.approx(6 / 28, abs=1e-6)
    assert "AcceptanceLength" not in second
    (directive,) = first["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("toolkit/benchmark", [["Variant", "TestCase"]])
    assert {metric["Name"] for metric in directive["Metrics"]} == first.keys() - {
        "_aws",
        "Variant",
        "TestCase",
        "Endpoint",
    }


def test_vllm_v0_counts_no_drafts() -> None:
    assert benchmark.acceptance({"drafted": 0, "accepted": 0}, {"drafted": 70, "accepted": 35}) == {
        "AcceptanceRate": 0.5
    }


def test_times_are_the_endpoints_own(speculative: Endpoint) -> None:
    answer = benchmark.ask(benchmark.Arm("SD", speculative.url), "tiny", "hello")
    # Lower bounds are certain; the upper ones only tell that the first chunk is not the last.
    assert STEP_SECONDS <= answer.ttft < answer.end_to_end
    assert answer.end_to_end >= CHUNKS * STEP_SECONDS
    assert answer.inter_token == pytest.approx((answer.end_to_end - answer.ttft) / (TOKENS - 1))


def test_the_studys_settings(speculative: Endpoint) -> None:
    arm = benchmark.Arm("SD", speculative.url)
    benchmark.measure(arm, "tiny", "hello")
    assert len(speculative.requests) == 8
    settings = {key: speculative.requests[0][key] for key in ("max_tokens", "temperature", "stream")}
    assert settings == {"max_tokens": 600, "temperature": 0, "stream": True}


@pytest.mark.parametrize("text", benchmark.PROMPTS.values())
def test_prompts_are_alike_in_length(text: str) -> None:
    assert len(benchmark.prompt(text).split()) == len(benchmark.INSTRUCTION.split()) + benchmark.PROMPT_WORDS


def test_the_studys_prompts() -> None:
    assert list(benchmark.PROMPTS) == ["counting", "shakespeare", "a", "hello-world", "cat", "json", "python", "list"]
    _, _, *lines = benchmark.prompt("the cat sat on the mat.").splitlines()
    assert lines[:2] == ["the cat sat on the mat."] * 2


def test_a_prompt_that_fails_is_told_and_the_others_are_measured(speculative: Endpoint) -> None:
    speculative.refuses = "the cat"
    code, lines = run(SD=speculative.url)
    assert code == 1
    assert [line["TestCase"] for line in lines if "error" in line] == ["cat"]
    assert "400: no such words here" in next(line["error"] for line in lines if "error" in line)


def test_nothing_is_measured_before_both_arms_are_healthy(
    speculative: Endpoint, unused_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [benchmark.Arm("SD", speculative.url), benchmark.Arm("Base", unused_url)]
    assert benchmark.run(arms, start_seconds=0) == 1
    assert speculative.requests == []
    assert f"{unused_url} was not healthy within 0 s: ConnectionRefusedError" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["<html>Log in</html>", "{}", '{"data": []}', "[]"])
def test_what_names_no_model_is_told(speculative: Endpoint, capsys: pytest.CaptureFixture[str], text: str) -> None:
    speculative.models = text
    assert benchmark.run([benchmark.Arm("SD", speculative.url)], start_seconds=0) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error.endswith(f"its /v1/models names no model: {text}")


def test_how_long_an_endpoint_may_take_is_said_to_it(unused_url: str) -> None:
    code = benchmark.main(["--arm", f"SD={unused_url}", "--start-seconds", "0"])
    assert code == 1


@pytest.fixture
def unused_url() -> str:
    with Endpoint() as endpoint:
        return endpoint.url
