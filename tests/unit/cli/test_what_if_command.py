"""`toolkit bench URL --what-if-acceptance`, from the servers to the JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import answer_events
from streaming_server import DONE, Answer, Part, Served, document, event, streaming

from toolkit.cli.main import run

STEP, BASELINE_STEP = 0.008, 0.004
TOKENS = 13


def speculative(request: Served) -> Answer:
    """Steps of two tokens with K=3: the first draft token is accepted, the others are not."""
    role, first, *tokens, end, usage = answer_events(range(TOKENS - 1), [0, 6, 0, 0])
    steps = [event(STEP, *tokens[i : i + 2]) for i in range(0, len(tokens), 2)]
    return answer(request, [event(0.001, role, first), *steps, event(0.0, end, usage), DONE])


def baseline(request: Served) -> Answer:
    role, first, *tokens, end, usage = answer_events(range(TOKENS - 1))
    return answer(
        request,
        [event(0.001, role, first), *(event(BASELINE_STEP, one) for one in tokens), event(0.0, end, usage), DONE],
    )


def answer(request: Served, parts: Sequence[Part]) -> Answer:
    if request.path == "/v1/models":
        return document({"data": [{"id": "served"}]})
    return Answer(parts) if request.path == "/v1/chat/completions" else document({}, 404)


def test_a_server_is_measured_as_it_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"question {number}"}) + "\n" for number in range(6)))
    with streaming(speculative) as ours, streaming(baseline) as theirs:
        arms = [ours.url, "--baseline", theirs.url, "--prompts", str(prompts)]
        run(["bench", *arms, "--concurrency", "1", "--time", "4s", "--what-if-acceptance", "2,4,4.5", "--json"])
    found = json.loads(capsys.readouterr().out)["what_if"]

    two, four = found["speedups"]  # 4.5 is more than K + 1
    assert (two["acceptance_length"], two["source"], two["concurrency"]) == (2, "steps", 1)
    assert 1.5 * two["ratio"] < four["ratio"] < 2 * two["ratio"] + 1e-6
    (even,) = found["break_even"]
    assert even["low"] <= even["acceptance_length"] <= even["high"]


def test_a_server_without_a_baseline_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with streaming(speculative) as ours:
        assert run(["bench", ours.url, "--what-if-acceptance", "2"]) == 2
    assert "has no baseline to compare with" in capsys.readouterr().err
