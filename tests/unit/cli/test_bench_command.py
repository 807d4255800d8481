"""`toolkit prove` and `toolkit bench` of any OpenAI-like server: what is true, and what is a lie."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import answer_events
from reports import example
from streaming_server import DONE, Answer, Answers, Part, Served, document, event, streaming

from toolkit.cli.main import run

TOKENS = range(12)
PROMPTS = ["one", "two", "three", "four"]


def model(
    seconds_per_piece: float, tokens: Sequence[int] = TOKENS, histogram: Sequence[int] | None = None, pieces: int = 12
) -> Answers:
    """A server that streams the same tokens for every prompt, and gives no scores."""

    def answers(request: Served) -> Answer:
        if request.path.endswith("/models"):
            return document({"data": [{"id": "tiny"}]})
        if not request.path.endswith("/chat/completions"):
            return document({"error": "not found"}, 404)
        first, *events, last, usage = answer_events(list(tokens), histogram)
        size = len(events) // pieces
        parts = [event(seconds_per_piece, *events[i : i + size]) for i in range(0, len(events), size)]
        return Answer((event(0.0, first), *parts, event(0.0, last, usage), DONE))

    return answers


def baseline() -> Answers:
    return model(0.010)


def speculative() -> Answers:
    """Twice as fast: two tokens in the time of one, of which one was drafted."""
    return model(0.010, histogram=[0, 6], pieces=6)


@contextmanager
def served(arm: Answers, other: Answers | None = None) -> Iterator[list[str]]:
    """The arguments that name both servers."""
    with streaming(arm) as ours, streaming(other or baseline()) as theirs:
        yield [ours.url, "--baseline", theirs.url]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f"{json.dumps({'prompt': text})}\n" for text in PROMPTS))
    return path


def proved(
    capsys: pytest.CaptureFixture[str], prompts: Path, arguments: Sequence[str]
) -> tuple[int, dict[str, Any], dict[str, bool | None]]:
    """Exit code, document, and the verdicts by claim."""
    code = run(["prove", *arguments, "--prompts", str(prompts), "--requests", "8", "--json"])
    found = json.loads(capsys.readouterr().out)
    return code, found, {verdict["claim"]: verdict["holds"] for verdict in found["verdicts"]}


def test_a_faster_arm_with_the_same_answers_pays(capsys: pytest.CaptureFixture[str], prompts: Path) -> None:
    with served(speculative()) as arguments:
        code, found, holds = proved(capsys, prompts, arguments)

    expected = {"on": True, "accepted": True, "baseline": True, "pays": True, "lossless": True, "same-target": None}
    assert (code, found["ok"], holds) == (0, True, expected)
    (speedup,) = found["speedups"]
    assert 1 < speedup["low"] < speedup["ratio"] < speedup["high"]
    arm = next(item for item in found["arms"] if item["arm"] == "speculative")
    assert (arm["requests"], arm["failed"], arm["identical"], arm["concurrency"]) == (8, 0, 1.0, 1)
    assert (arm["acceptance_length"], arm["acceptance_per_position"]) == (2.0, [1.0])
    assert set(arm["ttft"]) == {"p50", "p90", "p99"}


@pytest.mark.parametrize(
    ("arm", "other", "lie"),
    [
        pytest.param(model(0.025, histogram=[12]), None, "pays", id="slower than the baseline"),
        pytest.param(speculative(), speculative(), "baseline", id="a baseline that speculates itself"),
        pytest.param(model(0.005), None, "on", id="an arm that drafts nothing"),
        pytest.param(model(0.010, histogram=[12]), None, "accepted", id="drafts of which none is accepted"),
        pytest.param(model(0.005, range(12, 24), histogram=[0, 6]), None, "lossless", id="other answers"),
    ],
)
def test_a_lie_is_caught(
    capsys: pytest.CaptureFixture[str], prompts: Path, arm: Answers, other: Answers | None, lie: str
) -> None:
    with served(arm, other) as arguments:
        code, found, holds = proved(capsys, prompts, arguments)

    assert (code, found["ok"], holds[lie]) == (1, False, False)


def test_the_same_server_twice_is_not_said_to_pay(capsys: pytest.CaptureFixture[str], prompts: Path) -> None:
    with served(baseline()) as arguments:
        _, _, holds = proved(capsys, prompts, arguments)

    assert holds["pays"] is not True


def test_bench_measures_each_load_and_writes_the_page(
    capsys: pytest.CaptureFixture[str], prompts: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    with served(speculative()) as arguments:
        loads = ["--concurrency", "1,2", "--rate", "50", "--time", "2s", "--precision", "90%"]
        code = run(["bench", *arguments, "--prompts", str(prompts), *loads, "--html", str(page)])

    out = capsys.readouterr().out
    assert code == 0
    assert "Speculation pays" in out
    assert "50/s" in out
    assert "<svg" in page.read_text()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--concurrency", "1,x", "'1,x' is not a list of whole numbers"),
        ("--concurrency", "0", "concurrency is at least 1"),
        ("--rate", "-1", "a rate is above 0"),
        ("--time", "soon", "'soon' is not a duration"),
        ("--precision", "200%", "is not a precision between 0 and 100 %"),
    ],
)
def test_wrong_options(capsys: pytest.CaptureFixture[str], option: str, value: str, message: str) -> None:
    assert run(["bench", "http://127.0.0.1:9/v1", option, value]) == 2
    assert message in capsys.readouterr().err


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prove", "http://127.0.0.1:9/v1", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"] == "InvocationError"


def test_a_server_that_dies_in_the_middle_is_reported_with_what_was_measured(
    capsys: pytest.CaptureFixture[str], prompts: Path
) -> None:
    answers = speculative()
    asked: list[Served] = []

    def dying(request: Served) -> Answer:
        if request.path.endswith("/chat/completions"):
            asked.append(request)
        return Answer((Part(0.0, b""),), 500) if len(asked) > 8 else answers(request)

    with served(dying) as arguments:
        code, found, _ = proved(capsys, prompts, arguments)

    arm = next(item for item in found["arms"] if item["arm"] == "speculative")
    assert 0 < arm["failed"] < arm["requests"]
    assert code in (0, 1)


def test_two_reports_are_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(example().to_dict()))
    slower = [replace(item, ratio=item.ratio / 2, low=item.low / 2, high=item.high / 2) for item in example().speedups]
    after.write_text(json.dumps(replace(example(), speedups=tuple(slower)).to_dict()))

    assert run(["bench", "--compare", str(before), str(before)]) == 0
    assert run(["bench", "--compare", str(before), str(after)]) == 1
    assert "8 slower" in capsys.readouterr().out


def test_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench"]) == 2
    assert "give a recipe, an endpoint's name or a URL" in capsys.readouterr().err
