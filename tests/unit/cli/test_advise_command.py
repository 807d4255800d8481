"""`toolkit advise` on the command line: what it chooses, what it refuses, and what it says where it knows nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measured_speeds import report, write_report
from ruamel.yaml import YAML

import toolkit
from toolkit.api.advising import _traffic
from toolkit.api.handles import _served_with
from toolkit.catalog import lookup
from toolkit.cli.main import run
from toolkit.recipe.schema import Slo

Captured = pytest.CaptureFixture[str]
RECIPE = "gpt-oss-20b/p-eagle"
SLO = ("--slo", "ttft=0.5,tpot=15ms")


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))


@pytest.fixture
def speeds(tmp_path: Path) -> str:
    return write_report(tmp_path / "g7e.json", report())


def trace(tmp_path: Path, *lines: str) -> tuple[str, str]:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return "--traffic", str(path)


def request(at: float, prompt: object = 800, answer: object = 200) -> str:
    return json.dumps({"at": at, "prompt_tokens": prompt, "answer_tokens": answer})


def document(capsys: Captured, *arguments: str, code: int = 0) -> Any:
    assert run(["advise", RECIPE, *SLO, *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def edited(tmp_path: Path, edit: Callable[[dict[str, Any]], object]) -> str:
    """The recipe with another `engine`, and its lock beside it."""
    path = toolkit.load(RECIPE).path
    content = YAML(typ="safe").load(path.read_text())
    edit(content["engine"])
    copy = tmp_path / "mine.yaml"
    copy.write_text(json.dumps(content))
    shutil.copy(path.with_suffix(".lock.json"), copy.with_suffix(".lock.json"))
    return str(copy)


def test_the_cheapest_that_meets_the_slo_with_what_to_write_into_the_recipe(speeds: str, capsys: Captured) -> None:
    found = document(capsys, "--rate", "20/s", "--speeds", speeds)
    best, *others = found["choices"]
    assert (best["instance"], best["k"], best["instances"], best["quality"]) == ("ml.g7e.2xlarge", 7, 3, "measured")
    assert 0 < best["margin"] < 1
    assert found["edit"] == {
        "speculation": {"num_speculative_tokens": 7},
        "platform": {"instance_types": ["ml.g7e.2xlarge"]},
        "scaling": {
            "min_instances": 3,
            "max_instances": 3,
            "requests_per_instance": best["requests_per_instance"],
        },
    }
    alike = next(one for one in others if one["instance"] == "ml.g7e.4xlarge" and one["k"] == 7)
    assert (alike["quality"], alike["source"]) == (
        "estimated",
        "g7e.json, measured on ml.g7e.2xlarge: the same accelerators",
    )
    assert {one["k"] for one in others} == {0, 7}
    known = {one["instance"] for one in found["choices"]}
    assert not known & {one["instance"] for one in found["unmeasured"]}
    assert found["worth"][0]["acceptance_length"] > best["acceptance_length"]


def test_the_text_says_what_a_head_is_worth_what_a_plan_saves_and_what_to_measure(
    speeds: str, capsys: Captured
) -> None:
    assert run(["advise", RECIPE, *SLO, "--rate", "20/s", "--speeds", speeds]) == 0
    shown, said = capsys.readouterr()
    assert shown.startswith(f"{RECIPE}: 3 x ml.g7e.2xlarge at K = 7 keeps the SLO with ")
    assert "Speed of 3 x ml.g7e.2xlarge at K = 7: measured, g7e.json" in shown
    assert "Acceptance 3.94 -> 4.44 (if a head had it; what-if)" in shown
    assert "Plans: all instances are always on" in shown
    assert f"of unknown speed: ml.g6e.xlarge ({_hourly(shown)} $/h)" in shown
    assert f"toolkit bench {RECIPE} --concurrency 1,4,16 --json > speeds.json" in shown
    assert said == f"Next: toolkit plan {RECIPE}\n"


def _hourly(shown: str) -> str:
    return shown.partition("ml.g6e.xlarge (")[2].partition(" ")[0]


def test_published_heads_of_the_target_are_told_with_their_source(tmp_path: Path, capsys: Captured) -> None:
    speeds = write_report(tmp_path / "g7e.json", report(k=10))
    asked = ["advise", "qwen3-coder-30b-a3b/p-eagle", *SLO, "--rate", "20/s", "--speeds", speeds, "--json"]
    assert run(asked) == 0
    first, *_ = json.loads(capsys.readouterr().out)["worth"]
    (head,) = [one for one in lookup.heads() if one.repo == "amazon/Qwen3-Coder-30B-A3B-Instruct-P-EAGLE"]
    (told,) = [one for one in head.acceptance if one.k == 10]
    assert (first["acceptance_length"], first["source"]) == (told.acceptance_length, told.source)
    assert first["of"] == f"published of {head.repo} on HumanEval"
    assert first["saves_per_month"] > 0


def test_a_discount_comes_off(speeds: str, capsys: Captured) -> None:
    full = document(capsys, "--rate", "1/s", "--speeds", speeds)["choices"][0]
    less = document(capsys, "--rate", "1/s", "--speeds", speeds, "--discount", "25")["choices"][0]
    assert less["price_per_month"] == pytest.approx(0.75 * full["price_per_month"])


def test_what_tune_has_measured_counts(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "home/tuning/gpt-oss-20b-p-eagle"
    folder.mkdir(parents=True)
    for k in (3, 7):
        write_report(folder / f"{k}.json", report(k=k))
    found = document(capsys, "--rate", "20/s")
    assert {(one["k"], one["quality"]) for one in found["choices"] if one["instance"] == "ml.g7e.2xlarge"} == {
        *((k, "measured") for k in (0, 3, 7)),
        *((k, "estimated") for k in (4, 5, 6)),
    }


def test_on_this_machine_there_is_one_instance(tmp_path: Path, capsys: Captured) -> None:
    speeds = write_report(tmp_path / "here.json", report("", loads=(1, 4)))
    assert run(["advise", "tiny/p-eagle", "--slo", "tpot=15ms", "--rate", "1", "--speeds", speeds, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(one["instance"], one["instances"], one["price_per_month"]) for one in found["choices"]} == {("", 1, 0.0)}
    assert found["edit"] == {"speculation": {"num_speculative_tokens": 7}}


def test_a_trace_has_its_own_times_and_lengths(speeds: str, tmp_path: Path, capsys: Captured) -> None:
    rows = [request(at) for at in (100.0, 100.5, 102.0, 110.0)]
    found = document(capsys, *trace(tmp_path, *rows), "--speeds", speeds)
    assert (found["requests"], found["rate"]) == (4, pytest.approx(0.4))
    assert found["choices"][0]["instances"] == 1


def test_where_no_speed_is_known_it_says_so_and_what_to_run(tmp_path: Path, capsys: Captured) -> None:
    given = "--rate", "5/s", "--prompt-tokens", "800", "--answer-tokens", "200"
    assert run(["advise", RECIPE, *SLO, *given]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(f"{RECIPE}: no speed is known: measure first")
    assert f"deploy there, and: toolkit bench {RECIPE} --concurrency 1,4,16 --json > speeds.json" in shown


def test_a_report_of_another_method_is_left_out_and_named(tmp_path: Path, capsys: Captured) -> None:
    other = write_report(tmp_path / "other.json", report(method="eagle3"))
    found = document(capsys, *trace(tmp_path, request(0)), "--speeds", other, code=1)
    assert found["choices"] == []
    assert found["notes"] == [
        f"{other} is left out: it is of eagle3 K=7. Measure the recipe itself, with p-eagle and one K."
    ]


def test_an_slo_that_nothing_meets_names_what_is_nearest(speeds: str, capsys: Captured) -> None:
    assert run(["advise", RECIPE, "--slo", "tpot=1ms", "--rate", "1/s", "--speeds", speeds]) == 1
    shown = capsys.readouterr().out
    assert f"{RECIPE}: nothing measured meets the SLO: " in shown
    assert "ml.g7e.2xlarge at K = 7 is nearest, " in shown
    assert "missed by " in shown
    assert "In the recipe" not in shown


@pytest.mark.parametrize(
    ("rate", "seconds", "said"),
    [(75.0, 160, []), (900.0, 22, ["Only 22 s are simulated; a queue settles in 160 s: take a margin"])],
)
def test_a_queue_is_given_the_time_to_settle_in_or_a_note_says_so(rate: float, seconds: int, said: list[str]) -> None:
    """At 75 a second 7 instances stay below 8 s for the first minute only."""
    placed, notes = _traffic((), Slo(e2e=8), None, rate, 800, 200)
    assert placed[-1][0].at == pytest.approx(seconds, rel=0.05)
    assert notes == said


def test_more_requests_in_a_step_than_were_measured_are_told(tmp_path: Path, capsys: Captured) -> None:
    few = write_report(tmp_path / "few.json", report(loads=(1, 2)))
    beyond, idle = document(capsys, "--rate", "6/s", "--speeds", few)["notes"]
    assert "more than were measured at a time" in beyond
    assert "Measure with --concurrency 1,4,16," in beyond
    assert idle.endswith("an engine that was idle may take longer. Measure with --rate 0.1 --time 30m, too")


@pytest.mark.parametrize(
    ("lines", "message", "edit"),
    [
        ((), "trace.jsonl has no requests", "Write on each line"),
        (
            (request(0), '{"at": 1, "input_length": 9, "answer_tokens": 9}'),
            "trace.jsonl:2: a request has no key `input_length`",
            "Rename it to `prompt_tokens`.",
        ),
        (('{"timestamp": 1}',), "trace.jsonl:1: a request has no key `timestamp`", "Rename it to `at`, in seconds."),
        (('{"at": 1, "user": "x"}',), "trace.jsonl:1: a request has no key `user`", "Remove it."),
        (('{"at": 1, "prompt_tokens": 5}',), "trace.jsonl:1: `answer_tokens` is missing", "Write on each line"),
        ((request(-1),), "trace.jsonl:1: `at` must be seconds from 0 on", "Write on each line"),
        ((request(0, prompt="many"),), "trace.jsonl:1: `prompt_tokens` must be a whole number", "Write on each line"),
        ((request(0, answer=0),), "trace.jsonl:1: `answer_tokens` must be a whole number", "Write on each line"),
        ((request(0), "[1]"), "trace.jsonl:2: a request must be an object, not a list", "Write on each line"),
        *(
            ((request(last), request(0)), "trace.jsonl:1: `at` must be in seconds; it is", "Write on each line")
            for last in (1e308, 1e18, 3.2e7)
        ),
        ((request(1.75e12),), "trace.jsonl:1: `at` must be in seconds; 1750000000000 are milliseconds", "by 1,000"),
        (("{",), "trace.jsonl:1: it is not JSON", 'Write on each line: {"at": 12.5'),
        (
            (request(0), request(1, prompt=40000)),
            "trace.jsonl:2: 40000 + 200 tokens, and engine.max_model_len of",
            "Raise max_model_len",
        ),
    ],
)
def test_a_wrong_trace_is_told_with_its_line_and_the_edit(
    lines: tuple[str, ...], message: str, edit: str, speeds: str, tmp_path: Path, capsys: Captured
) -> None:
    assert run(["advise", RECIPE, *SLO, *trace(tmp_path, *lines), "--speeds", speeds]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert message in shown
    assert edit in shown


def test_a_rate_that_stays_the_same_is_not_followed(tmp_path: Path, capsys: Captured) -> None:
    """In some of these nine hours an instance less would do, by chance."""
    slow = write_report(tmp_path / "slow.json", report(slower=60.0))
    asked = "--slo", "ttft=2", "--rate", "0.1/s", "--speeds", slow, "--json"
    assert run(["advise", RECIPE, *asked]) == 0
    several = [one for one in json.loads(capsys.readouterr().out)["choices"] if one["instances"] > 1]
    assert several
    assert not any(one["scaling"] for one in several)


def test_a_request_beyond_the_targets_own_limit_is_told_where_the_recipe_has_none(
    speeds: str, tmp_path: Path, capsys: Captured
) -> None:
    asked = edited(tmp_path, lambda engine: engine.pop("max_model_len")), *SLO, "--speeds", speeds
    assert run(["advise", *asked, *trace(tmp_path, request(0, prompt=200_000))]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "trace.jsonl:1: 200000 + 200 tokens, and the limit of openai/gpt-oss-20b is 131072 Write engine" in shown


def test_models_that_cannot_be_read_are_an_error(speeds: str, tmp_path: Path, capsys: Captured) -> None:
    recipe = edited(tmp_path, lambda engine: None)
    Path(recipe).with_suffix(".lock.json").write_text("{")
    assert run(["advise", recipe, *SLO, "--rate", "1/s", "--speeds", speeds]) == 2
    assert ".lock.json" in capsys.readouterr().err


def test_models_that_cannot_be_sized_run_where_they_were_measured(
    speeds: str, tmp_path: Path, capsys: Captured
) -> None:
    recipe = edited(tmp_path, lambda engine: None)
    lock = Path(recipe).with_suffix(".lock.json")
    models = json.loads(lock.read_text())
    models["target"]["config"]["compress_ratios"] = [4]
    lock.write_text(json.dumps(models))
    assert run(["advise", recipe, *SLO, "--rate", "1/s", "--speeds", speeds, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    known = document(capsys, "--rate", "1/s", "--speeds", speeds)["choices"][0]
    assert {one["instance"] for one in found["choices"]} == {"ml.g7e.2xlarge"}
    assert found["choices"][0]["price_per_hour"] == known["price_per_hour"]
    assert "attention that compresses its cache: the KV cache of each measured type" in found["notes"][0]


@pytest.mark.parametrize(
    ("own", "more"),
    [
        ({"max_num_seqs": 4}, {}),
        ({"max_model_len": 2048}, {"kv-cache-memory-bytes": 2**27}),
    ],
    ids=["requests", "cache"],
)
def test_copies_of_the_engine_each_have_limits_of_their_own(
    own: dict[str, int], more: dict[str, int], tmp_path: Path, capsys: Captured
) -> None:
    speeds = write_report(tmp_path / "p5.json", report("ml.p5.48xlarge"))

    def instances(**args: int) -> int:
        recipe = edited(tmp_path, lambda engine: engine.update(own | {"args": engine["args"] | more | args}))
        assert run(["advise", recipe, *SLO, "--rate", "20/s", "--speeds", speeds, "--json"]) == 0
        first: dict[str, int] = json.loads(capsys.readouterr().out)["choices"][0]
        return first["instances"]

    assert instances(**{"data-parallel-size": 8}) < instances() == instances(**{"data-parallel-size": 0})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SLO,), "Add --rate 5/s (or --traffic trace.jsonl)."),
        ((), "Add --slo ttft=0.5,tpot=30ms --rate 5/s (or --traffic trace.jsonl)."),
        ((*SLO, "--rate", "fast"), "Write --rate 5/s, 300/min or 1000/h."),
        ((*SLO, "--rate", "0.0000001/h"), "is no rate between one an hour and 20,000 a second"),
        ((*SLO, "--rate", "0/s"), "Write --rate 5/s, 300/min or 1000/h."),
        ((*SLO, "--rate", "5/s"), "Add --prompt-tokens N --answer-tokens N."),
        ((*SLO, "--rate", "5/s", "--prompt-tokens", "5"), "Add --answer-tokens N."),
        ((*SLO, "--rate", "5/s", "--traffic", "t.jsonl"), "leave out --rate and the others"),
        ((*SLO, "--traffic", "missing.jsonl"), "missing.jsonl cannot be read: No such file"),
        ((*SLO, "--traffic", "trace.txt"), "its name ends in none of .jsonl"),
        (
            (*SLO, "--traffic", "s3://ours/captured/"),
            "reads traffic from this machine only",
        ),
        ((*SLO, "--rate", "5/s", "--speeds", "missing.json"), "missing.json cannot be read"),
        (("--slo", "tpot=fast", "--rate", "5/s"), "write ttft=0.5,tpot=50ms"),
        (("--slo", "ttft=1,share=0.99", "--rate", "5/s"), "Leave `share` out of the SLO"),
        (("--rate", "5/s"), "Add --slo ttft=0.5,tpot=30ms."),
    ],
)
def test_wrong_usage_says_what_to_write(arguments: tuple[str, ...], message: str, capsys: Captured) -> None:
    assert run(["advise", RECIPE, *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_report_says_its_target_and_one_of_another_is_left_out(tmp_path: Path, capsys: Captured) -> None:
    other = _served_with(toolkit.load("qwen3-coder-30b-a3b/p-eagle"), has_instances=True)
    of_other = write_report(tmp_path / "other.json", replace(report(), setting=other))
    found = document(capsys, *trace(tmp_path, request(0)), "--speeds", of_other, code=1)
    assert found["choices"] == []
    assert f"{of_other} is left out: its target is {other['target']}, not openai/gpt-oss-20b" in found["notes"][0]


def test_a_report_of_a_k_by_batch_size_says_so() -> None:
    """Else it would be taken for one of its largest K."""
    recipe = toolkit.load(RECIPE)
    by_batch = recipe.edit(speculation={"num_speculative_tokens_per_batch_size": [[1, 8, 7], [9, 128, 3]]})
    assert _served_with(recipe, has_instances=True)["speculation"] == "p-eagle K=7"
    assert _served_with(by_batch, has_instances=True)["speculation"] == "p-eagle K=7, by batch size"
