"""`bench --resume` of 6,000 results, with $TOOLKIT_SCALE of a million: what a user does, from the file to the report.

Answers differ in all of their 60 tokens, in text and in times.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import answer_events
from streaming_server import DONE, Answer, Served, document, event, streaming

from toolkit.endpoint.generation import Acceptance, Arrival
from toolkit.measure.journal import Journal
from toolkit.measure.result import RequestResult

WHOLE = bool(os.environ.get("TOOLKIT_SCALE"))
RESULTS = int(os.environ.get("RESULTS", 1_000_000)) if WHOLE else 6_000
PROMPTS, PROMPT_TOKENS, ARRIVALS, LOAD = 200, 500, 30, 4
MOST_MEGABYTES = 700.0 if WHOLE else 160.0
MOST_HELD = 200_000
BENCH = """
import pathlib, re, sys
from toolkit.cli.main import run
run(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1], file=sys.stderr)
"""


def result(arm: str, number: int) -> RequestResult:
    """An answer of 60 tokens to one of 200 prompts of 500 tokens, asked again and again in blocks of eight."""
    prompt, slower = number % PROMPTS, 1.3 if arm == "baseline" else 1.0
    return RequestResult(
        arm,
        "questions",
        prompt,
        1 + number // PROMPTS,
        float(LOAD),
        number / 10,
        slower * (1.5 + number % 97 / 1000),
        "successful",
        arrivals=tuple(Arrival(number % 89 / 1e3 + slower * n / 40, 2) for n in range(ARRIVALS)),
        prompt_tokens=PROMPT_TOKENS,
        output_tokens=2 * ARRIVALS,
        finish_reason="stop",
        acceptance=Acceptance((number % 7, 10, 5)) if arm == "speculative" else None,
        block=1000 + number // (2 * LOAD),
        prompt_token_ids=tuple(prompt * 300 + n for n in range(PROMPT_TOKENS)),
        token_ids=tuple((number * 31 + n * 17) % 150_000 for n in range(2 * ARRIVALS)),
        text=f"{number} is a number " * 12,
    )


def answers(request: Served) -> Answer:
    """A server that streams the same tokens for every prompt, and gives no scores."""
    if request.path.endswith("/models"):
        return document({"data": [{"id": "tiny"}]})
    if not request.path.endswith("/chat/completions"):
        return document({"error": "not found"}, 404)
    return Answer((event(0.005, *answer_events([*range(12)])), DONE))


@contextmanager
def servers(folder: Path) -> Iterator[list[str]]:
    """A `bench` of two servers that keeps its results."""
    prompts = folder / "questions.jsonl"
    prompts.write_text("".join(f"{json.dumps({'prompt': f'question {number}'})}\n" for number in range(PROMPTS)))
    with streaming(answers) as ours, streaming(answers) as theirs:
        yield [
            *("bench", ours.url, "--baseline", theirs.url, "--prompts", str(prompts), "--concurrency", str(LOAD)),
            *("--time", "1s", "--resume", str(folder / "run.jsonl"), "--json"),
        ]


def bench(arguments: Sequence[str]) -> tuple[dict[str, Any], float, float]:
    """The report, the seconds that it took, and the megabytes at the peak."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", BENCH, *arguments], capture_output=True, check=True)
    return json.loads(done.stdout), time.perf_counter() - began, int(done.stderr.split()[-1]) / 1024


@pytest.mark.timeout(7200)
def test_a_million_results_are_reported(tmp_path: Path) -> None:
    journal, kept = Journal(tmp_path / "more.jsonl", {}), tmp_path / "run.jsonl"
    with servers(tmp_path) as arguments:
        before = {row["arm"]: row["requests"] for row in bench(arguments)[0]["arms"]}
        began = time.perf_counter()
        for first in range(0, RESULTS // 2, 500):
            for arm in ("speculative", "baseline"):
                journal.add([result(arm, number) for number in range(first, min(first + 500, RESULTS // 2))])
        wrote, size = time.perf_counter() - began, journal.path.stat().st_size / 1e6
        with journal.path.open("rb") as more, kept.open("ab") as stream:
            more.readline()  # its head
            shutil.copyfileobj(more, stream)
        report, seconds, peak = bench(arguments)
    print(f"\n{RESULTS:,} results: {size:.0f} MB, written in {wrote:.0f} s, reported in {seconds:.0f} s, {peak:.0f} MB")
    rows = {row["arm"]: row for row in report["arms"]}
    for arm, row in rows.items():
        assert RESULTS // 2 + before[arm] <= row["requests"] < RESULTS // 2 + before[arm] + 2_000
        assert row["e2e"]["samples"] <= MOST_HELD
    (speedup,) = report["speedups"]
    assert speedup["low"] <= speedup["ratio"] <= speedup["high"]
    assert abs(speedup["ratio"] - 1.3) < 0.02 or not WHOLE
    print(json.dumps([speedup, [{**row, "acceptance_per_position": 0} for row in rows.values()], report["notes"]]))
    assert peak < MOST_MEGABYTES
