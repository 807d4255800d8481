"""Lossless or not: arms that lie are caught, arms that only round otherwise are not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fake_targets import VOCABULARY, FakeConnection, FakeTarget, Pick, answers

from toolkit.measure.arm import Arm
from toolkit.measure.judge import Judgement, judge
from toolkit.measure.lossless import Lossless
from toolkit.measure.result import RequestResult

TARGET = FakeTarget()


def greedy(target: FakeTarget = TARGET, mode: str = "decode") -> Pick:
    return lambda context: target.first(context, mode)


def judged(
    arm: Sequence[RequestResult],
    baseline: Sequence[RequestResult] | None = None,
    options: dict[str, Any] | None = None,
    target: FakeTarget = TARGET,
    connection: FakeConnection | None = None,
    again: Sequence[RequestResult] = (),
) -> Judgement:
    """What is found about an arm's answers; it serves `target`, the baseline another copy of it or `connection`."""
    arms = [
        Arm("baseline", connection or FakeConnection(), speculative=False, options=options or {}),
        Arm("p-eagle", FakeConnection(target), options=options or {}),
    ]
    own = answers("baseline", greedy()) if baseline is None else baseline
    (found,) = asyncio.run(judge(arms[0], arms[1:], [*arm, *own, *again], "again"))
    return found


def lossless(found: Judgement) -> Lossless:
    assert isinstance(found.lossless, Lossless)
    return found.lossless


def test_the_targets_own_answers_are_lossless_to_the_token() -> None:
    found = judged(answers("p-eagle", greedy()))
    assert [verdict.holds for verdict in found.verdicts] == [True, True]
    assert (lossless(found).identical, lossless(found).pairs) == (16, 16)
    assert lossless(found).difference is None


def test_other_rounding_of_a_drafts_rows_is_no_loss_though_texts_part() -> None:
    found = judged(answers("p-eagle", greedy(mode="rows of a draft")))
    assert [verdict.holds for verdict in found.verdicts] == [True, True]
    assert lossless(found).identical < 16
    assert lossless(found).difference is not None
    assert "the first difference: structured, prompt" in found.verdicts[0].detail
    assert "1536 tokens scored" in found.verdicts[0].detail


def one_wrong(every: int, seed: int) -> Pick:
    """Accepts the target's second choice once in so many tokens, by chance."""
    chance = random.Random(seed)

    def pick(context: Sequence[int]) -> int:
        logits = TARGET.logits(context, "rows of a draft")
        best = sorted(range(VOCABULARY), key=lambda token: -logits[token])
        return best[1 if chance.random() < 1 / every else 0]

    return pick


def test_one_wrong_token_in_200_is_caught_20_times_of_20() -> None:
    baseline = answers("baseline", greedy())
    found = [judged(answers("p-eagle", one_wrong(200, seed)), baseline).verdicts[0] for seed in range(20)]
    assert [verdict.holds for verdict in found] == [False] * 20
    assert "lie further below the target's first choice than" in found[0].detail


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_an_arm_that_samples_when_asked_not_to(temperature: float) -> None:
    assert judged(answers("p-eagle", sampling(temperature))).verdicts[0].holds is False


def test_a_baseline_that_samples_when_asked_not_to() -> None:
    verdict, _ = judged(answers("p-eagle", greedy()), answers("baseline", sampling(1.0))).verdicts
    assert verdict.holds is False
    assert "the baseline's own answers are not greedy" in verdict.detail


def sampling(temperature: float, seed: int = 1, target: FakeTarget = TARGET) -> Pick:
    chance = random.Random(seed)

    def pick(context: Sequence[int]) -> int:
        logits = target.logits(context, "decode")
        top = max(logits)
        weights = [pow(2.718281828, (value - top) / temperature) for value in logits]
        return chance.choices(range(VOCABULARY), weights)[0]

    return pick


def test_another_target() -> None:
    other = FakeTarget("another")
    found = judged(answers("p-eagle", greedy(other)), target=other)
    assert [verdict.holds for verdict in found.verdicts] == [False, False]


def test_another_quantization_shows_in_the_scores() -> None:
    quantized = replace(TARGET, error=0.15)
    found = judged(answers("p-eagle", greedy(quantized)), target=quantized)
    assert found.verdicts[1].holds is False
    assert "Serve the same model, revision, quantization and dtype" in found.verdicts[1].detail
