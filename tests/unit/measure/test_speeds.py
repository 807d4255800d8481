"""Speeds are read of reports as they were put into them, and what tells no speed is left out with the reason."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from measured_speeds import ANSWER, LOADS, PROMPT, READING, length, report, step

from toolkit.measure.measurement import Percentiles
from toolkit.measure.queue import Engine, Request, simulate
from toolkit.measure.report import BenchReport
from toolkit.measure.speeds import Speeds, curves_at, find_schedule, pace, read_speeds

SERVED = {"engine": "vllm", "target": "org/target"}


def told(**setting: str) -> BenchReport:
    return replace(report(), setting={**report().setting, **setting})


def speeds(*reports: BenchReport) -> Speeds:
    (found,), notes = read_speeds([(f"{i}.json", one) for i, one in enumerate(reports)], "p-eagle", SERVED)
    assert not notes
    return found


@pytest.mark.parametrize("k", [0, 7])
def test_steps_and_prompts_take_what_they_took(k: int) -> None:
    found = speeds(report(workloads=("chat", "code")))
    quality, curves = curves_at(found, k)
    read = pace(curves)
    assert (found.instance, found.measured, quality, len(curves)) == ("ml.g7e.2xlarge", (0, 7), "measured", 2)
    assert dict(read.steps) == pytest.approx({load: step(k, load) for load in LOADS})
    assert read.prompt_token * PROMPT == pytest.approx(READING)
    assert read.kinds[0].pace == pytest.approx(length(k))
    assert math.exp(read.kinds[0].spread * 1.2815515655446004) == pytest.approx(1.2)


@pytest.mark.parametrize("k", [0, 5, 7])
def test_requests_alone_wait_for_their_first_token_as_the_measured_ones_did(k: int) -> None:
    _, curves = curves_at(speeds(report(k=7), report(k=3)), k)
    waited = simulate(
        [Request(100.0 * number, PROMPT, ANSWER) for number in range(4000)],
        Engine(((64, pace(curves)),), 64, 8192, 10**9),
        ((0.0, 1),),
    )
    first = step(k, 1) + READING
    assert waited.ttft.p50 == pytest.approx(first, rel=0.02)
    assert waited.ttft.p90 == pytest.approx(1.2 * first, rel=0.03)


def test_an_idle_engine_takes_as_much_longer_as_the_lowest_rate_showed() -> None:
    closed = report()
    (alone,) = [row for row in closed.arms if (row.arm, row.concurrency) == ("speculative", 1)]
    assert alone.ttft
    opened = [
        replace(alone, concurrency=None, rate=rate, ttft=replace(alone.ttft, p50=alone.ttft.p50 + later))
        for rate, later in ((0.4, 0.03), (0.1, 0.02), (5.0, 9.0))
    ]
    _, (curve,) = curves_at(speeds(replace(closed, arms=(*closed.arms, *opened))), 7)
    waited = simulate(
        [Request(100.0 * number, PROMPT, ANSWER) for number in range(4000)],
        Engine(((64, pace([curve])),), 64, 8192, 10**9),
        ((0.0, 1),),
    )
    assert waited.ttft.p50 == pytest.approx(step(7, 1) + READING + 0.02, rel=0.02)


@pytest.mark.parametrize(("rate", "samples"), [(5.0, 48), (0.1, 7)])
def test_a_busy_engine_and_a_few_requests_do_not_tell_what_an_idle_one_takes(rate: float, samples: int) -> None:
    closed = report()
    opened = [
        replace(row, concurrency=None, rate=rate, ttft=replace(row.ttft, samples=samples))
        for row in closed.arms
        if row.concurrency == 1 and row.ttft
    ]
    assert [one.waking for one in speeds(replace(closed, arms=(*closed.arms, *opened))).curves] == [None, None]


def test_what_an_idle_engine_takes_at_one_k_it_takes_at_the_others() -> None:
    """Else the K that was measured more thoroughly would lose against the others, and the later report forget it."""
    closed = report(k=3)
    (alone,) = [row for row in closed.arms if (row.arm, row.concurrency) == ("speculative", 1)]
    assert alone.ttft
    later = replace(alone.ttft, p50=alone.ttft.p50 + 0.02)
    thorough = replace(closed, arms=(*closed.arms, replace(alone, concurrency=None, rate=0.1, ttft=later)))
    found = speeds(thorough, report(k=7), closed)
    assert {one.k: one.waking for one in found.curves} == pytest.approx({0: 0.02, 3: 0.02, 7: 0.02})


def test_a_k_between_two_measured_ones_is_on_their_line() -> None:
    found = speeds(report(k=7), report(k=3))
    quality, curves = curves_at(found, 5)
    assert quality == "estimated"
    read = pace(curves)
    assert read.kinds[0].pace == pytest.approx(length(5))
    assert dict(read.steps)[1] == pytest.approx(step(5, 1))
    assert dict(read.steps)[16] == pytest.approx(step(5, 16), rel=0.03)
    assert read.prompt_token * PROMPT == pytest.approx(READING)


@pytest.mark.parametrize("k", [2, 8])
def test_a_k_outside_of_what_was_measured_is_not_guessed(k: int) -> None:
    assert curves_at(speeds(report(k=7), report(k=3)), k)[1] == []
    assert curves_at(speeds(report(k=7)), k)[1] == []


def test_a_step_with_more_requests_that_was_quicker_by_chance_counts_as_long_as_the_other() -> None:
    (curve,) = curves_at(speeds(report()), 0)[1]
    noisy = pace([replace(curve, tpot={**curve.tpot, 64: curve.tpot[16] / 2})])
    assert dict(noisy.steps)[64] == dict(noisy.steps)[16]
    assert noisy.seconds(1000) == noisy.seconds(16)


def test_workloads_that_were_measured_at_other_numbers_of_requests_are_compared_on_their_lines() -> None:
    """All of this engine's steps lie on one line, so nothing is lost as far as both reach."""
    both = pace(speeds(report(loads=(1, 4, 16)), report(loads=(1, 8, 64), workloads=("code",))).at(7))
    assert dict(both.steps) == pytest.approx({load: step(7, load) for load in (1, 4, 8, 16)})


def test_another_acceptance_changes_the_tokens_of_a_step_and_not_its_time() -> None:
    _, curves = curves_at(speeds(report()), 7)
    now, then = pace(curves), pace(curves, acceptance=2 * length(7))
    assert then.kinds[0].pace == pytest.approx(2 * now.kinds[0].pace)
    assert then.steps == now.steps


def test_the_k_that_is_fastest_for_each_number_of_requests() -> None:
    """With a step four times as long per draft token, drafts cost where many share a step."""
    slow = report(k=7)
    arms = tuple(
        replace(row, tpot=replace(row.tpot, p50=row.tpot.p50 * 4, p90=row.tpot.p90 * 4))
        if row.tpot and row.arm != "baseline" and row.concurrency and row.concurrency > 4
        else row
        for row in slow.arms
    )
    assert find_schedule(speeds(report(k=7)), 128) == ()
    assert find_schedule(speeds(replace(slow, arms=arms)), 128) == ((1, 8, 7), (9, 128, 0))


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (report("ml.g7e.2xlarge, ml.p5.4xlarge"), "it may have run on any of ml.g7e.2xlarge, ml.p5.4xlarge"),
        (told(cache="warm"), "its prompts came from a warm prefix cache"),
        (told(engine="sglang 0.5"), "its engine is sglang 0.5, not vllm. Measure the recipe itself."),
        (told(target="org/target-1b"), "its target is org/target-1b, not org/target"),
        (report(method="eagle3"), "it is of eagle3 K=7. Measure the recipe itself, with p-eagle"),
        (report(loads=(1,)), "it lacks answers at 1 and at more requests at a time"),
        (report(loads=(4, 16)), "it lacks answers at 1 and at more requests at a time"),
        (told(speculation="p-eagle K=7, by batch size"), "it is of p-eagle K=7, by batch"),
        (replace(report(), arms=(*report().arms, replace(report().arms[0], arm="third"))), "it has several arms"),
        (
            replace(report(), arms=tuple(replace(row, prompt_tokens=None) for row in report().arms)),
            "or is of an older version. Measure again: toolkit bench",
        ),
    ],
)
def test_a_report_that_tells_no_speed_is_left_out_and_why(one: BenchReport, why: str) -> None:
    found, (note,) = read_speeds([("old.json", one)], "p-eagle", SERVED)
    assert found == []
    assert note.startswith("old.json is left out: ")
    assert why in note


def test_the_last_report_of_a_k_counts_and_types_are_told_apart() -> None:
    named = [("a", report()), ("b", report(slower=2.0)), ("c", report("ml.p5.4xlarge"))]
    found, _ = read_speeds(named, "p-eagle", SERVED)
    assert [(one.instance, one.sources) for one in found] == [
        ("ml.g7e.2xlarge", ("a", "b")),
        ("ml.p5.4xlarge", ("c",)),
    ]
    assert dict(pace(found[0].at(7)).steps)[1] == pytest.approx(step(7, 1, 2.0))


@pytest.mark.parametrize(
    "figures",
    [
        {"prompt_tokens": -1.0},
        {"answer_tokens": 0.0},
        {"acceptance_length": 0.0},
        {"tpot": Percentiles(-0.01, 0.01, None, 48)},
        {"ttft": Percentiles(0.1, math.inf, None, 48)},
    ],
)
def test_a_report_with_figures_that_cannot_be_is_left_out(figures: dict[str, Any]) -> None:
    baseline, *others = report().arms
    wrong = replace(report(), arms=(replace(baseline, **figures), *others))
    found, (note,) = read_speeds([("a", wrong)], "p-eagle", SERVED)
    assert found == []
    assert note.startswith("a is left out: baseline on chat has figures that are not above 0")


@pytest.mark.parametrize("setting", [{"engine": "vllm 0.33.0"}, {"target": "org/target@abc123"}, {"cache": "cold"}])
def test_a_report_of_another_version_or_revision_counts(setting: dict[str, str]) -> None:
    (found,), notes = read_speeds([("a", told(**setting))], "p-eagle", SERVED)
    assert (found.measured, notes) == ((0, 7), [])


def test_a_server_whose_speculation_is_not_told_does_not_count_as_one_without() -> None:
    """As a URL, and an endpoint that is known by its name alone."""
    (found,), (note,) = read_speeds([("url.json", replace(report(), setting={"cache": "cold"}))], "p-eagle", SERVED)
    assert [dict(pace(found.at(0)).steps)[1]] == [pytest.approx(step(0, 1))]
    assert found.measured == (0,)
    assert note == "url.json: speculative is left out: it may draft, and the report does not tell its K"


def test_a_recipe_without_speculation_is_one_at_k_0() -> None:
    arms = tuple(replace(row, arm="speculative") for row in report().arms if row.arm == "baseline")
    found = speeds(BenchReport("toy", (), arms, setting={"engine": "vllm 0.32.0"}))
    assert dict(pace(found.at(0)).steps)[1] == pytest.approx(step(0, 1))


def test_a_baseline_that_drafts_is_not_one_without_speculation() -> None:
    arms = tuple(replace(row, acceptance_length=2.0) if row.arm == "baseline" else row for row in report().arms)
    (found,), (note,) = read_speeds([("a", replace(report(), arms=arms))], "p-eagle", SERVED)
    assert found.measured == (7,)
    assert note.startswith("a: baseline is left out: it may draft")


def test_an_arm_that_answered_nothing_at_some_load_was_not_measured_there() -> None:
    arms = tuple(replace(row, failed=row.requests) if row.concurrency == 64 else row for row in report().arms)
    (found,), notes = read_speeds([("a", replace(report(), arms=arms))], "p-eagle", SERVED)
    assert {max(one.tpot) for one in found.curves} == {16}
    why = "at 64 requests at a time is left out: none was answered in full"
    assert notes == [f"a: {arm} {why}" for arm in ("baseline", "speculative")]
