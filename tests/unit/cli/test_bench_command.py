"""`toolkit prove` and `toolkit bench` of any OpenAI-like server: what is true, and what is a lie."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import answer_events
from reports import example
from streaming_server import DONE, Answer, Answers, Part, Served, document, event, streaming

import toolkit
from toolkit.cli.main import run
from toolkit.errors import UsageError
from toolkit.recipe.schema import Slo

TOKENS = range(12)
PROMPTS = ["one", "two", "three", "four"]
LONG = 0.030  # seconds of a step beside what a busy machine adds


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


def with_metrics(answers: Answers, root: str = "") -> Answers:
    """The server, with vLLM's counters of an engine that drafts nothing, and its model's origin."""

    def more(request: Served) -> Answer:
        if request.path == "/metrics":
            return Answer((Part(0.0, b"vllm:num_requests_running 0.0\n"),))
        if request.path.endswith("/models") and root:
            return document({"data": [{"id": "tiny", "root": root}]})
        return answers(request)

    return more


def baseline(step: float = 0.010) -> Answers:
    return model(step)


def speculative(step: float = 0.010) -> Answers:
    """Twice as fast: two tokens in the time of one, of which one was drafted."""
    return model(step, histogram=[0, 6], pieces=6)


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
    shown = capsys.readouterr()
    assert "Next:" not in shown.err, "what a program reads has no next step"
    found = json.loads(shown.out)
    return code, found, {verdict["claim"]: verdict["holds"] for verdict in found["verdicts"]}


def test_a_faster_arm_with_the_same_answers_pays(capsys: pytest.CaptureFixture[str], prompts: Path) -> None:
    with served(speculative(LONG), baseline(LONG)) as arguments:
        code, found, holds = proved(capsys, prompts, arguments)

    expected = {"on": True, "accepted": True, "baseline": True, "pays": True, "lossless": True, "same-target": None}
    assert (code, found["ok"], holds) == (0, True, expected)
    (speedup,) = found["speedups"]
    assert 1 < speedup["low"] < speedup["ratio"] < speedup["high"]
    arm = next(item for item in found["arms"] if item["arm"] == "speculative")
    assert (arm["requests"], arm["failed"], arm["identical"], arm["concurrency"]) == (8, 0, 1.0, 1)
    assert (arm["acceptance_length"], arm["acceptance_per_position"]) == (2.0, [1.0])
    assert set(arm["ttft"]) == {"p50", "p90", "p99", "samples"}


@pytest.mark.parametrize(
    ("arm", "other", "lie"),
    [
        pytest.param(model(2 * LONG, histogram=[12]), None, "pays", id="slower than the baseline"),
        pytest.param(speculative(), speculative(), "baseline", id="a baseline that speculates itself"),
        pytest.param(with_metrics(model(0.005)), None, "on", id="an arm that drafts nothing"),
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


def test_drafts_that_a_server_does_not_tell_are_not_shown(capsys: pytest.CaptureFixture[str], prompts: Path) -> None:
    with served(model(0.010), baseline(LONG)) as arguments:
        code, _, holds = proved(capsys, prompts, arguments)

    assert (code, holds["on"]) == (0, None)


def test_servers_that_name_different_models_do_not_serve_the_same(
    capsys: pytest.CaptureFixture[str], prompts: Path
) -> None:
    ours, theirs = with_metrics(speculative(), "Qwen/Qwen3-8B"), with_metrics(baseline(), "Qwen/Qwen3-8B-FP8")
    with served(ours, theirs) as arguments:
        code, found, holds = proved(capsys, prompts, arguments)

    assert (code, holds["same-target"]) == (1, False)
    assert any(
        "it says that it serves Qwen/Qwen3-8B, the baseline Qwen/Qwen3-8B-FP8" in str(v) for v in found["verdicts"]
    )


def test_a_server_that_counts_no_tokens_is_measured_by_chunks(
    capsys: pytest.CaptureFixture[str], prompts: Path
) -> None:
    *events, last = answer_events(list(TOKENS), None)
    del last["usage"]
    for item in events:
        for choice in item["choices"]:
            choice.pop("token_ids", None)

    def silent(request: Served) -> Answer:
        if request.path.endswith("/chat/completions"):
            return Answer((event(0.002, *events, last), DONE))
        return model(0.005)(request)

    with served(silent) as arguments:
        _, found, _ = proved(capsys, prompts, arguments)
    told = "told neither usage nor token ids: its tokens/s and TPOT are those of chunks, not of tokens"
    assert [note for note in found["notes"] if "chunks" in note] == [f"speculative {told}"]


@pytest.mark.parametrize(("options", "cold"), [([], True), (["--cache", "warm"], False)])
def test_prompts_are_kept_out_of_caches_unless_they_shall_be_warm(
    prompts: Path, options: list[str], cold: bool
) -> None:
    salts: list[str | None] = []

    def noting(request: Served) -> Answer:
        # but for the one token that shows whether the server takes such fields
        if request.path.endswith("/chat/completions") and request.body["max_tokens"] > 1:
            salts.append(request.body.get("cache_salt"))
        return speculative()(request)

    with served(noting) as arguments:
        run(["bench", *arguments, "--prompts", str(prompts), "--concurrency", "1", "--time", "1s", "--json", *options])
    assert len(salts) > 1
    assert len(set(salts)) == (len(salts) if cold else 1)
    assert (None in salts) is not cold


def strict(answers: Answers, asked: list[set[str]], *, all_at_once: bool) -> Answers:
    """The server, if it knew no more of a request than OpenAI's API has, as OpenAI's own and TensorRT-LLM's do."""
    known = {"messages", "model", "stream", "stream_options", "max_tokens", "temperature", "user"}
    known |= {"presence_penalty", "frequency_penalty"}

    def refusing(request: Served) -> Answer:
        if request.path.endswith("/chat/completions"):
            others = sorted(request.body.keys() - known)
            if others:
                named = ", ".join(others if all_at_once else others[:1])
                return document({"error": {"message": f"Unrecognized request argument supplied: {named}"}}, 400)
            asked.append(set(request.body))
        return answers(request)

    return refusing


@pytest.mark.parametrize("all_at_once", [True, False])
def test_a_server_that_refuses_what_openais_api_has_not_is_asked_without(
    capsys: pytest.CaptureFixture[str], prompts: Path, all_at_once: bool
) -> None:
    asked: list[set[str]] = []
    with served(strict(speculative(), asked, all_at_once=all_at_once)) as arguments:
        _, found, holds = proved(capsys, prompts, arguments)

    assert (holds["on"], holds["baseline"]) == (True, True)
    assert all("user" in fields and "stream_options" in fields for fields in asked)
    without = "cache_salt, ignore_eos, repetition_penalty, return_token_ids"
    assert f"speculative was asked without {without}, which its server refuses" in found["notes"]
    assert any("may have been in the caches of speculative" in note for note in found["notes"])


def test_a_server_that_names_fields_and_refuses_the_rest_too_is_told_in_its_words(
    capsys: pytest.CaptureFixture[str], prompts: Path
) -> None:
    def refusing(request: Served) -> Answer:
        if request.path.endswith("/chat/completions"):
            return document({"error": f"no such model, in {sorted(request.body)}"}, 400)
        return speculative()(request)

    with served(refusing) as arguments:
        code = run(["prove", *arguments, "--prompts", str(prompts), "--json"])
    assert code == 3
    assert "'cache_salt'" in json.loads(capsys.readouterr().out)["message"]


def altered(usage: dict[str, Any] | None = None, histogram: Sequence[int] = (0, 6)) -> Answers:
    """A fast server with other figures in its last event."""
    *events, last = answer_events(list(TOKENS), histogram)
    last["usage"] |= usage or {}

    def answers(request: Served) -> Answer:
        if request.path.endswith("/chat/completions"):
            return Answer((event(0.002, *events, last), DONE))
        return speculative()(request)

    return answers


@pytest.mark.parametrize(
    "figures",
    [
        pytest.param({"usage": {"completion_tokens": -5}}, id="negative tokens"),
        pytest.param({"usage": {"completion_tokens": 10**400}}, id="endless tokens"),
        pytest.param({"histogram": [-5, 3]}, id="negative acceptance"),
        pytest.param({"histogram": [1, 10**400]}, id="endless acceptance"),
    ],
)
def test_figures_that_cannot_be_are_a_failed_request(
    capsys: pytest.CaptureFixture[str], prompts: Path, figures: dict[str, Any]
) -> None:
    with served(altered(**figures)) as arguments:
        assert run(["prove", *arguments, "--prompts", str(prompts), "--json"]) == 3
    assert "which is not a chat completion event" in json.loads(capsys.readouterr().out)["message"]


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        ({"completion_tokens": 24}, "it counts 192 tokens in answers with the same text, the baseline 96"),
        ({"completion_tokens": 12}, None),
    ],
)
def test_tokens_that_are_counted_otherwise(
    capsys: pytest.CaptureFixture[str], prompts: Path, usage: dict[str, Any], said: str | None
) -> None:
    with served(altered(usage), baseline(LONG)) as arguments:
        code, found, holds = proved(capsys, prompts, arguments)
    details = [verdict["detail"] for verdict in found["verdicts"] if verdict["claim"] == "same-target"]
    assert (code, holds["same-target"]) == ((1, False) if said else (0, None))
    assert said is None or said in details[0]


def test_another_chat_template_is_told(capsys: pytest.CaptureFixture[str], prompts: Path) -> None:
    def other(request: Served) -> Answer:
        events = answer_events(list(TOKENS), [0, 6], prompt_token_ids=[1, 2, 3])
        return Answer((event(0.002, *events), DONE)) if "/chat/" in request.path else speculative()(request)

    with served(other) as arguments:
        code, found, holds = proved(capsys, prompts, arguments)
    assert (code, holds["same-target"]) == (1, False)
    assert "another chat template" in str(found["verdicts"])


def test_an_arm_that_fails_where_the_baseline_answers_is_not_said_to_pay(
    capsys: pytest.CaptureFixture[str], prompts: Path
) -> None:
    def picky(request: Served) -> Answer:
        refused = "/chat/" in request.path and request.body["messages"][0]["content"] == "two"
        return document({"error": {"message": "slow down"}}, 429) if refused else speculative()(request)

    with served(picky) as arguments:
        _, found, holds = proved(capsys, prompts, arguments)
    assert holds["pays"] is None
    assert any("prompt 2, speculative" in note and "429: slow down" in note for note in found["notes"])


def test_an_arm_that_is_its_own_baseline_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prove", "http://127.0.0.1:9/v1", "--baseline", "http://127.0.0.1:9/v1/"]) == 2
    assert "http://127.0.0.1:9/v1 is given twice" in capsys.readouterr().err


def test_two_files_of_one_name_are_refused(capsys: pytest.CaptureFixture[str], prompts: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = prompts.rename(tmp_path / "other" / prompts.name)
    prompts.write_text(other.read_text())
    assert run(["prove", "http://127.0.0.1:9/v1", "--prompts", str(prompts), "--prompts", str(other)]) == 2
    assert "two workloads are called questions" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999/v1", "http://127.0.0.1:abc/v1", "http://[::1/v1", "http://a..b/v1"]
)
def test_a_url_that_is_none(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert run(["prove", url]) == 2
    assert "not the URL of a server" in capsys.readouterr().err


def test_a_baseline_that_tells_its_drafts_by_counters_alone(capsys: pytest.CaptureFixture[str], prompts: Path) -> None:
    asked: list[Served] = []

    def counting(request: Served) -> Answer:
        if request.path == "/metrics":
            lines = ("num_drafts_total", 'num_accepted_tokens_per_pos_total{position="0"}')
            page = "".join(f"vllm:spec_decode_{line} {6 * len(asked)}\n" for line in lines)
            return Answer((Part(0.0, page.encode()),))
        asked.extend([request] if "/chat/" in request.path else [])
        return model(0.010, pieces=6)(request)

    with served(speculative(), counting) as arguments:
        code, found, holds = proved(capsys, prompts, arguments)
    assert (code, holds["baseline"]) == (1, False)
    assert next(row for row in found["arms"] if row["arm"] == "baseline")["acceptance_length"] == 2


def test_the_same_server_twice_is_not_said_to_pay(capsys: pytest.CaptureFixture[str], prompts: Path) -> None:
    with served(baseline()) as arguments:
        _, _, holds = proved(capsys, prompts, arguments)

    assert holds["pays"] is not True


def test_bench_measures_each_load_and_writes_the_page(
    capsys: pytest.CaptureFixture[str], prompts: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    with served(speculative(0.015), baseline(0.015)) as arguments:
        loads = ["--concurrency", "1,2", "--rate", "20", "--time", "60s", "--precision", "90%"]
        code = run(["bench", *arguments, "--prompts", str(prompts), *loads, "--html", str(page)])

    out = capsys.readouterr().out
    assert code == 0
    assert "Speculation pays" in out
    assert "20/s" in out
    assert "<svg" in page.read_text()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--concurrency", "1,x", "'1,x' is not a list of whole numbers"),
        ("--concurrency", "0", "concurrency is at least 1"),
        ("--rate", "-1", "numbers above 0 are expected"),
        ("--rate", "0", "numbers above 0 are expected"),
        ("--rate", "inf", "numbers above 0 are expected"),
        ("--rate", "1,nan", "numbers above 0 are expected"),
        ("--concurrency", "99999999999", "at most 4096"),
        ("--time", "9" * 400, "is not a duration"),
        ("--time", "soon", "'soon' is not a duration"),
        ("--precision", "100%", "is not a precision between 0 and 100 %"),
        ("--prompt-tokens", "8m", "is not a list of numbers of tokens up to 10,000,000: write 1k,8k,32k"),
        ("--prompt-tokens", "0", "is not a list of numbers of tokens"),
        ("--trace", "missing.jsonl", "missing.jsonl cannot be read: No such file"),
        ("--trace", "s3://bucket/a", "can be read only with a platform that has S3"),
        ("--speed", "2", "--speed is for --trace"),
    ],
)
def test_wrong_options(capsys: pytest.CaptureFixture[str], option: str, value: str, message: str) -> None:
    assert run(["bench", "http://127.0.0.1:9/v1", option, value]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "others", "message"),
    [
        (["--trace", "t.jsonl"], ["--rate", "2", "--turns", "2"], "--trace has its own load and lengths: leave out"),
        (["--trace", "t.jsonl"], ["--fixed-length"], "leave out --fixed-length"),
        (["--trace", "t.jsonl"], ["--prompt-tokens", "1k"], "leave out --prompt-tokens"),
        (["--turns", "2"], ["--rate", "2"], "--turns come one after the other and grow: leave out --rate"),
        (["--turns", "2"], ["--prompt-tokens", "1k"], "leave out --prompt-tokens"),
        (["--slo", "ttft=1"], ["--turns", "2"], "--slo finds the rate by itself: leave out --turns"),
        (["--what-if-acceptance", "2"], ["--trace", "t.jsonl"], "leave out --trace"),
    ],
)
def test_what_goes_with_no_other_load_is_refused(
    capsys: pytest.CaptureFixture[str], given: list[str], others: list[str], message: str
) -> None:
    assert run(["bench", "http://127.0.0.1:9/v1", *given, *others]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trace": "t.jsonl", "prompt_tokens": (1000,)}, "trace has its own load and lengths: leave out prompt_tokens"),
        ({"trace": "t.jsonl", "turns": 2}, "leave out turns"),
        ({"trace": "t.jsonl", "fixed_length": True}, "leave out fixed_length"),
        ({"trace": "t.jsonl", "requests": 8}, "leave out requests"),
        ({"trace": "t.jsonl", "concurrency": (2,)}, "leave out concurrency"),
        ({"trace": "t.jsonl", "speed": 0}, "a speed of 0 is not above 0"),
        ({"speed": 2.0}, "speed is for trace"),
        ({"rates": (2.0,), "turns": 2}, "turns come one after the other and grow: leave out rates"),
        ({"slo": Slo(ttft=1), "turns": 2}, "slo finds the rate by itself: leave out turns"),
        ({"slo": Slo(ttft=1), "publish": True}, "leave out publish"),
        ({"also_role": "arn"}, "also_role is for also"),
    ],
)
def test_python_refuses_what_the_command_does(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        toolkit.bench("http://127.0.0.1:9/v1", **given)


def test_prompts_that_the_model_cannot_take_are_refused_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], prompts: Path, tmp_path: Path
) -> None:
    """The server lists its longest request, and tells the tokens of any prompt as 5."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"at": 0, "prompt_tokens": 90, "answer_tokens": 20}\n')

    def answers(request: Served) -> Answer:
        if request.path.endswith("/models"):
            return document({"data": [{"id": "tiny", "max_model_len": 100}]})
        return document({"usage": {"prompt_tokens": 5}, "choices": []})

    for options, message in (
        (["--trace", str(trace)], f"{trace}:1: 90 + 20 tokens, and the model takes 100"),
        (["--prompt-tokens", "90", "--max-tokens", "20"], "prompts of 90 tokens with their answers are 110"),
    ):
        with streaming(answers) as server:
            assert run(["bench", server.url, "--prompts", str(prompts), *options]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


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
    assert code == (0 if found["ok"] else 1)


def test_ctrl_c_ends_with_what_was_measured_and_code_130(capsys: pytest.CaptureFixture[str], prompts: Path) -> None:
    answers, asked = speculative(), list[Served]()

    def interrupting(request: Served) -> Answer:
        asked.append(request)
        if len(asked) == 9:
            os.kill(os.getpid(), signal.SIGINT)
        return answers(request)

    with served(interrupting) as arguments:
        code, found, holds = proved(capsys, prompts, arguments)

    assert (code, found["interrupted"], found["complete"], holds["lossless"]) == (130, True, False, None)
    assert found["arms"][0]["requests"] > 0
    assert found["notes"][0].startswith("the measurement was interrupted")


def test_two_reports_are_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(example().to_dict()))
    slower = [replace(item, ratio=item.ratio / 2, low=item.low / 2, high=item.high / 2) for item in example().speedups]
    after.write_text(json.dumps(replace(example(), speedups=tuple(slower)).to_dict()))

    assert run(["bench", "--compare", str(before), str(before)]) == 0
    assert run(["bench", "--compare", str(before), str(after)]) == 1
    assert "8 slower" in capsys.readouterr().out


def test_figures_of_a_url_cannot_be_published(capsys: pytest.CaptureFixture[str]) -> None:
    with served(speculative()) as arguments:
        assert run(["prove", *arguments, "--publish"]) == 2
    assert "belongs to no platform with monitoring" in capsys.readouterr().err


def test_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench"]) == 2
    assert "give a recipe, an endpoint's name or a URL" in capsys.readouterr().err
