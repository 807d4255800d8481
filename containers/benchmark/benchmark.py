#!/usr/bin/env python3
"""Measures endpoints from inside their cluster: the same prompts and settings for each arm, one JSON line per both.

Prompts and settings are those of the study on Trainium (AWS ML blog, 2026-04-15; aws-neuron-eks-samples,
qwen-llmperf-pod): its eight texts, repeated below llmperf's instruction up to about 64 tokens, 600 output tokens, 8
requests per prompt, 4 at a time, temperature 0, medians. Otherwise than there, llmperf's random order of lines is left
out, the time between tokens is from the first one on, and by tokens, as with speculation a chunk holds several; and one
arm is measured at a time, so that they do not share the host's CPUs meanwhile.

A line is in CloudWatch's embedded metric format: where the cluster's log collector passes lines on to CloudWatch Logs
as they are, CloudWatch makes metrics of them, in a namespace of the toolkit's and with the study's dimensions. Not
tried there. Standard library only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from typing import Any
from urllib.parse import urlsplit

NAMESPACE = "toolkit/benchmark"
DIMENSIONS = ["Variant", "TestCase"]
UNITS = {
    "TTFT": "Seconds",
    "InterTokenLatency": "Seconds",
    "EndToEndLatency": "Seconds",
    "InputTokens": "Count",
    "OutputTokens": "Count",
    "RequestOutputThroughput": "Count/Second",
    "AcceptanceLength": "Count",
    "AcceptanceRate": "None",
}

REQUESTS = 8
CONCURRENCY = 4
OUTPUT_TOKENS = 600
REQUEST_SECONDS = 1200
START_SECONDS = 3600
POLL_SECONDS = 5
LONGEST_LINE = 1024**2
LONGEST_PAGE = 64 * 1024**2
MOST_TOKENS = 10**9
_SHOWN = 500

# About 64 tokens with the instruction, at 0.75 words each. `usage` in the answer says how many it were.
PROMPT_WORDS = 32
INSTRUCTION = (
    f"Randomly stream lines from the following text with {OUTPUT_TOKENS} output tokens. Don't generate eos tokens:"
)
PROMPTS = {
    "counting": "counting numbers from 1",
    "shakespeare": (
        "Shall I compare thee to a summer's day?\nThou art more lovely and more temperate:\n"
        "Rough winds do shake the darling buds of May,\nAnd summer's lease hath all too short a date:"
    ),
    "a": "a",
    "hello-world": "hello world",
    "cat": "the cat sat on the mat.",
    "json": "Output valid JSON with fixed keys",
    "python": "Write a simple Python function skeleton",
    "list": "List numbers from one to twenty",
}

COUNTERS = {
    "drafts": "vllm:spec_decode_num_drafts_total",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
}


class BenchmarkError(Exception):
    """An arm cannot be measured."""


@dataclass(frozen=True)
class Arm:
    """An endpoint: what the metrics call it, and its address."""

    variant: str
    url: str


@dataclass(frozen=True)
class Answer:
    """One request's times in seconds, and its tokens."""

    ttft: float
    end_to_end: float
    input_tokens: int
    output_tokens: int

    @property
    def inter_token(self) -> float:
        """Mean time between tokens."""
        return (self.end_to_end - self.ttft) / max(1, self.output_tokens - 1)


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0, or 1 where something could not be measured."""
    parser = argparse.ArgumentParser(description="Measure endpoints with the same prompts.")
    parser.add_argument("--arm", action="append", required=True, metavar="VARIANT=URL", type=_arm)
    parser.add_argument(
        "--start-seconds", type=float, default=START_SECONDS, help="how long endpoints may take to be healthy"
    )
    given = parser.parse_args(arguments)
    return run(given.arm, given.start_seconds)


def run(arms: Sequence[Arm], start_seconds: float = START_SECONDS) -> int:
    """Measures every prompt on every arm once all are healthy; a line for each."""
    code = 0
    try:
        models = {arm: served_model(arm, start_seconds) for arm in arms}
    except BenchmarkError as error:
        _write({"error": str(error)})
        return 1
    for case, text in PROMPTS.items():
        for arm, model in models.items():
            try:
                _write(record(arm, model, case, measure(arm, model, prompt(text))))
            except BenchmarkError as error:
                code = 1
                _write({"Variant": arm.variant, "TestCase": case, "error": str(error)})
    return code


def prompt(text: str) -> str:
    """The text's lines over and over, up to the number of words that all prompts have."""
    lines, left = [], PROMPT_WORDS
    for line in cycle(text.splitlines()):
        words = line.split()[:left]
        lines.append(" ".join(words))
        left -= len(words)
        if not left:
            break
    return "\n".join([f"{INSTRUCTION}\n", *lines])


def served_model(arm: Arm, start_seconds: float) -> str:
    """The model's name, once the endpoint is healthy. Raises BenchmarkError when it is not in that time."""
    until = time.monotonic() + start_seconds
    while True:
        text = ""
        try:
            if _get(arm, "/ping")[0] == http.HTTPStatus.OK:
                text = _get(arm, "/v1/models")[1]
                return str(json.loads(text)["data"][0]["id"])
            seen = "its /ping is not 200"
        except (ValueError, LookupError, TypeError, RecursionError):
            seen = f"its /v1/models names no model: {text[:_SHOWN]}"
        except (OSError, http.client.HTTPException) as error:
            seen = f"{type(error).__name__}: {error}"
        if time.monotonic() >= until:
            raise BenchmarkError(f"{arm.url} was not healthy within {start_seconds:.0f} s: {seen}")
        time.sleep(POLL_SECONDS)


def measure(arm: Arm, model: str, text: str) -> dict[str, float]:
    """Medians over the requests, and how many draft tokens were accepted. Raises BenchmarkError."""
    before = counters(arm)
    try:
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            answers = list(pool.map(lambda _: ask(arm, model, text), range(REQUESTS)))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BenchmarkError(f"{type(error).__name__}: {error}") from error
    return {
        "TTFT": median(answer.ttft for answer in answers),
        "InterTokenLatency": median(answer.inter_token for answer in answers),
        "EndToEndLatency": median(answer.end_to_end for answer in answers),
        "InputTokens": median(answer.input_tokens for answer in answers),
        "OutputTokens": median(answer.output_tokens for answer in answers),
        "RequestOutputThroughput": median(answer.output_tokens / answer.end_to_end for answer in answers),
        **acceptance(before, counters(arm)),
    }


def ask(arm: Arm, model: str, text: str) -> Answer:
    """One streamed request."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": OUTPUT_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = _connection(arm)
    try:
        started = time.monotonic()
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise BenchmarkError(f"{response.status}: {response.read(_SHOWN).decode(errors='replace')}")
        first = last = 0.0
        usage: dict[str, Any] = {}
        for chunk in events(response):
            usage = chunk.get("usage") or usage
            if any(_text(choice.get("delta")) for choice in chunk["choices"]):
                last = time.monotonic()
                first = first or last
    finally:
        connection.close()
    if not first:
        raise BenchmarkError("the answer has no text")
    return Answer(first - started, last - started, _tokens(usage, "prompt"), _tokens(usage, "completion"))


def _tokens(usage: dict[str, Any], of: str) -> int:
    count = usage.get(f"{of}_tokens")
    if not isinstance(count, int) or not 0 < count < MOST_TOKENS:
        raise BenchmarkError(f"the answer does not say how many {of} tokens it has")
    return count


def events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The JSON documents of a stream of server-sent events. Raises BenchmarkError for what is not a part of a chat."""
    while line := response.readline(LONGEST_LINE):
        name, _, data = line.partition(b":")
        if name == b"data" and data.strip() != b"[DONE]":
            yield _chunk(data)


def _chunk(data: bytes) -> dict[str, Any]:
    try:
        chunk = json.loads(data)
        if isinstance(chunk.get("usage") or {}, dict) and all(isinstance(item, dict) for item in chunk["choices"]):
            return dict(chunk)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    raise BenchmarkError(f"the answer has a part that is not one of a chat: {data[:_SHOWN]!r}")


def counters(arm: Arm) -> dict[str, float]:
    """What the engine has counted of speculation since its start; empty where it counts nothing.

    The Service picks a pod: with several of them this is not what this run has done.
    """
    try:
        status, text = _get(arm, "/metrics")
    except (OSError, http.client.HTTPException):
        return {}
    if status != http.HTTPStatus.OK:
        return {}
    found = {
        name: re.findall(rf"^{series}(?:{{.*}})? (\d+(?:\.\d+)?(?:e\+\d\d)?)$", text, re.M)
        for name, series in COUNTERS.items()
    }
    return {name: sum(map(float, values)) for name, values in found.items() if values}


def acceptance(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Tokens per target step, bonus token included, and the share of draft tokens; what is not counted is left out."""
    grown = {name: after[name] - before[name] for name in COUNTERS if name in before and name in after}
    accepted, found = grown.get("accepted", 0.0), {}
    if grown.get("drafts"):  # which vLLM V0 does not count
        found["AcceptanceLength"] = 1 + accepted / grown["drafts"]
    if grown.get("drafted"):
        found["AcceptanceRate"] = accepted / grown["drafted"]
    return found


def record(arm: Arm, model: str, case: str, values: Mapping[str, float]) -> dict[str, Any]:
    """The line: values, and what tells CloudWatch that they are metrics."""
    metrics = [{"Name": name, "Unit": UNITS[name]} for name in values]
    directive = {"Namespace": NAMESPACE, "Dimensions": [DIMENSIONS], "Metrics": metrics}
    about = {"Variant": arm.variant, "TestCase": case, "Endpoint": model}
    head = {"_aws": {"Timestamp": round(time.time() * 1000), "CloudWatchMetrics": [directive]}}
    return {**head, **about, **{name: round(value, 6) for name, value in values.items()}}


def _arm(text: str) -> Arm:
    variant, _, url = text.partition("=")
    return Arm(variant, url.rstrip("/"))


def _text(delta: object) -> bool:
    """Whether there is any, be it of the answer or of what the model thinks before."""
    return isinstance(delta, dict) and any(delta.get(key) for key in ("content", "reasoning", "reasoning_content"))


def _write(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _get(arm: Arm, path: str) -> tuple[int, str]:
    connection = _connection(arm)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(LONGEST_PAGE).decode(errors="replace")
    finally:
        connection.close()


def _connection(arm: Arm) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(arm.url).netloc, timeout=REQUEST_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
