"""The speed at another acceptance, from arms whose steps take a known time."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from fakes import answer_events, event_stream
from simulated_arms import Unused, arm, result, workload

from toolkit.endpoint.generation import Acceptance, Arrival
from toolkit.endpoint.wire import Chunk
from toolkit.measure.arm import Arm
from toolkit.measure.bench import measure
from toolkit.measure.design import Design
from toolkit.measure.measurement import BreakEvenAcceptance, WhatIfSpeedup
from toolkit.measure.result import RequestResult
from toolkit.measure.statistics import pairs_of, speedup
from toolkit.measure.what_if import other_acceptance, predict_speedup, target_steps

K = 4
TTFT = 0.05
STEP, BASELINE_STEP = 0.020, 0.010
SPEC, BASE = arm("spec"), replace(arm("base"), speculative=False)


def drafted(tokens: int, rates: tuple[float, ...], chance: random.Random) -> Acceptance:
    """The drafts of an answer, each position accepted with its rate if those before it are."""
    histogram, left = [0] * (K + 1), tokens - 1
    while left > 0:
        accepted = next((j for j, rate in enumerate(rates) if chance.random() >= rate), K)
        accepted = min(accepted, left - 1)
        histogram[accepted] += 1
        left -= accepted + 1
    return Acceptance(tuple(histogram))


def answers(rates: tuple[float, ...], prompts: int = 24, load: float = 1, noise: float = 0.0) -> list[RequestResult]:
    """Both arms' answers: every step takes the same time, however many drafts it accepts."""
    chance, found, now = random.Random(1), [], 0.0
    for prompt in range(prompts):
        tokens = chance.randint(150, 250)
        acceptance = drafted(tokens, rates, chance)
        for name, steps, step in (("spec", acceptance.steps, STEP), ("base", tokens - 1, BASELINE_STEP)):
            seconds = TTFT + steps * step * (1 + chance.gauss(0, noise))
            one = result(
                arm=name,
                prompt=prompt,
                load=load,
                started=now,
                seconds=seconds,
                arrivals=(Arrival(TTFT, 1), Arrival(seconds, tokens - 1)),
                output_tokens=tokens,
                acceptance=acceptance if name == "spec" else None,
            )
            found.append(one)
            now += seconds + 1
    return found


def length_of(results: list[RequestResult]) -> float:
    spec = [item for item in results if item.arm == "spec" and item.acceptance]
    return sum(item.output_tokens - 1 for item in spec) / sum(item.acceptance.steps for item in spec if item.acceptance)


LOW, HIGH = (0.5, 0.4, 0.3, 0.2), (0.95, 0.9, 0.9, 0.85)


@pytest.mark.parametrize(("known", "other"), [(LOW, HIGH), (HIGH, LOW)])
def test_another_drafters_speed_follows_from_steps_per_second(
    known: tuple[float, ...], other: tuple[float, ...]
) -> None:
    truth = answers(other)
    measured = speedup(pairs_of(truth, "spec", "base"))
    found = predict_speedup(answers(known), "spec", "base", length_of(truth))
    assert measured
    assert found
    assert found.ratio == pytest.approx(measured.ratio, rel=0.02)


def test_speculation_breaks_even_where_its_speedup_is_one() -> None:
    results = answers(LOW, noise=0.1)
    (found,) = other_acceptance(results, [SPEC], "base", [2]).break_even
    assert (found.workload, found.concurrency, found.arm) == ("mine", 1, "spec")
    assert found.acceptance_length == pytest.approx(STEP / BASELINE_STEP, rel=0.05)
    assert found.low
    assert found.high
    assert found.low < STEP / BASELINE_STEP < found.high
    there = [
        predict_speedup(results, "spec", "base", length) for length in (found.acceptance_length, found.low, found.high)
    ]
    even, least, most = filter(None, there)
    assert (even.ratio, least.high, most.low) == pytest.approx((1, 1, 1), rel=1e-4)


def test_where_the_first_token_takes_too_long_no_acceptance_pays() -> None:
    results = [
        replace(item, arrivals=(Arrival(20, 1), *item.arrivals[1:]), seconds=item.seconds + 20)
        if item.arm == "spec"
        else item
        for item in answers(LOW)
    ]
    (found,) = other_acceptance(results, [SPEC], "base", [2]).break_even
    assert found == BreakEvenAcceptance("mine", 1, "spec", None, None, None)


def test_each_length_up_to_k_and_one_has_a_speedup_by_load() -> None:
    results = [*answers(LOW, noise=0.1), *answers(HIGH, load=4, noise=0.1)]
    found = other_acceptance(results, [SPEC], "base", [2, 5, 5.5]).speedups
    assert [(row.concurrency, row.acceptance_length, row.source) for row in found] == [
        (1, 2, "steps"),
        (1, 5, "steps"),
        (4, 2, "steps"),
        (4, 5, "steps"),
    ]
    assert found[1].ratio > 2 * found[0].ratio * 0.9
    assert all(row.low < row.ratio < row.high for row in found)


def test_steps_without_a_draft_count_as_one_token() -> None:
    results = [replace(item, acceptance=None) if item.arm == "spec" else item for item in answers((0.0,) * K)]
    found = predict_speedup(results, "spec", "base", 1.0)
    assert found
    assert found.ratio == pytest.approx(0.5, rel=0.05)


def test_steps_that_drafted_nothing_are_counted_too() -> None:
    """An engine that looks drafts up in the prompt reports only steps in which it found some."""
    twice = result(output_tokens=11, acceptance=Acceptance((0, 2)))
    always = result(output_tokens=11, acceptance=Acceptance((4, 3)))
    assert (target_steps(twice), target_steps(always)) == (8, 7)


def test_an_arm_that_accepts_by_chance_is_measured_at_its_own_length() -> None:
    results = answers(HIGH)
    synthetic = replace(SPEC, synthetic_acceptance_length=3.0)
    measured = speedup(pairs_of(results, "spec", "base"))
    assert measured
    row = WhatIfSpeedup("mine", 1, "spec", 3.0, measured.ratio, measured.low, measured.high, "synthetic")
    assert other_acceptance(results, [synthetic], "base", [2, 3]).speedups == (row,)


def test_open_loops_tell_nothing() -> None:
    results = [replace(item, open_loop=True) for item in answers(LOW)]
    found = other_acceptance(results, [SPEC], "base", [2])
    assert (found.speedups, found.break_even) == ((), ())


class Streaming(Unused):
    """A served model that answers 20 tokens."""

    def __init__(self, histogram: tuple[int, ...] = ()) -> None:
        self._histogram = histogram

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        yield [Chunk(0.01, event_stream(answer_events(range(20), self._histogram or None)))]

    async def acceptance(self) -> Acceptance | None:
        return None


def test_garbage_is_not_judged() -> None:
    design = Design(
        arms=(Arm("synthetic 3", Streaming((0, 0, 6)), synthetic_acceptance_length=3.0),),
        baseline=Arm("baseline", Streaming(), speculative=False),
        workloads=(workload(3),),
        requests=6,
    )
    report = asyncio.run(measure(design, "title", what_if=[3.0]))

    assert [(verdict.claim, verdict.holds) for verdict in report.verdicts] == [
        ("baseline", True),
        ("lossless", None),
        ("same-target", None),
    ]
    assert "accepts drafts by chance, so its text is garbage" in report.verdicts[1].detail
    assert all(row.identical is None for row in report.arms)
    assert report.what_if
    assert json.loads(json.dumps(report.to_dict()))["what_if"]["speedups"][0]["source"] == "synthetic"
