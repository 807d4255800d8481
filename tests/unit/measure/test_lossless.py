"""Lossless or not: arms that lie are caught, arms that only round otherwise are not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

import pytest
from fake_targets import END, VOCABULARY, FakeConnection, FakeTarget, Pick, answers

from toolkit.engines.vllm.scoring import SCORING
from toolkit.measure.arm import Arm
from toolkit.measure.endings import has_other_text
from toolkit.measure.judge import Judgement, Sampled, judge, judge_alone
from toolkit.measure.lossless import Floor, Lossless, binomial_tail, more_frequent, seen_rate
from toolkit.measure.result import RequestResult
from toolkit.measure.same_target import SameTarget, other_tokens
from toolkit.measure.scoring import Score, Scorer
from toolkit.recipe.rules import Choice

TARGET = FakeTarget()
LETTERS = "abcdefghijkl"


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
        Arm("baseline", connection or FakeConnection(), scoring=SCORING, speculative=False, options=options or {}),
        Arm("p-eagle", FakeConnection(target), scoring=SCORING, options=options or {}),
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
    arm, baseline = answers("p-eagle", greedy(mode="rows of a draft")), answers("baseline", greedy())
    found = judged(arm, baseline)
    assert [verdict.holds for verdict in found.verdicts] == [True, True]
    assert lossless(found).identical < 16
    prompt, position, token, first = next(
        (one.prompt, position, repr(f"<{token}>"), repr(f"<{own}>"))
        for one, other in zip(arm, baseline, strict=True)
        for position, (token, own) in enumerate(zip(one.token_ids, other.token_ids, strict=False), start=1)
        if token != own
    )
    difference = lossless(found).difference
    assert difference
    assert (difference.prompt, difference.position) == (prompt, position)
    assert (difference.token, difference.first) == (token, first)
    assert "The first difference: structured, prompt" in found.verdicts[0].detail
    assert "1536 tokens scored by the target" in found.verdicts[0].detail


def one_wrong(every: int, seed: int) -> Pick:
    """Accepts the target's second choice once in so many tokens, by chance."""
    chance = random.Random(seed)

    def pick(context: Sequence[int]) -> int:
        logits = TARGET.logits(context, "rows of a draft")
        best = sorted(range(VOCABULARY), key=lambda token: -logits[token])
        return best[1 if chance.random() < 1 / every else 0]

    return pick


def test_one_wrong_token_in_200_is_caught_20_times_of_20() -> None:
    served = FakeConnection()
    arms = [Arm(f"{seed}", served, scoring=SCORING) for seed in range(20)]
    results = [one for arm in arms for one in answers(arm.name, one_wrong(200, int(arm.name)))]
    found = asyncio.run(
        judge(Arm("baseline", served, scoring=SCORING), arms, [*answers("baseline", greedy()), *results])
    )
    assert [judgement.verdicts[0].holds for judgement in found] == [False] * 20
    assert "tokens are not the target's: structured, prompt" in found[0].verdicts[0].detail


def test_a_wrong_token_is_named_by_prompt_and_place_counted_from_one() -> None:
    own = answers("p-eagle", greedy())
    *right, last = own[1].token_ids
    own[1] = replace(own[1], token_ids=(*right, (last + 1) % VOCABULARY))
    worst = lossless(judged(own)).worst
    assert worst
    assert worst.shown.startswith(f"{own[1].workload}, prompt 2, token {len(right) + 1} is ")


@pytest.mark.parametrize(("others", "is_told"), [(8, False), (9, True)])
def test_a_few_prompts_may_be_other_tokens_but_not_most(others: int, is_told: bool) -> None:
    """A chat template may contain the day."""
    own = [replace(one, prompt_token_ids=(1,)) if one.prompt < others else one for one in answers("arm", greedy())]
    assert ("the same prompts are other tokens" in other_tokens(own, answers("baseline", greedy()))) is is_told


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


def test_a_baseline_and_an_arm_that_sample_alike() -> None:
    sampled = {"temperature": 0.8}
    own = answers("baseline", sampling(0.8, 1), prompts=40, tokens=24)
    verdict = judged(answers("p-eagle", sampling(0.8, 2), prompts=40, tokens=24), own, sampled).verdicts[0]
    assert verdict.holds is True
    assert "would have been seen" in verdict.detail


@pytest.mark.parametrize("temperature", [0.1, 2.0])
def test_a_temperature_that_one_arm_does_not_get(temperature: float) -> None:
    own = answers("baseline", sampling(0.8, 1), prompts=40, tokens=24)
    arm = answers("p-eagle", sampling(temperature, 2), prompts=40, tokens=24)
    verdict = judged(arm, own, {"temperature": 0.8}).verdicts[0]
    assert verdict.holds is False
    assert "Check that both arms get the same temperature" in verdict.detail


@pytest.mark.parametrize(
    ("p_value", "pairs", "holds"),
    [
        pytest.param(0.011, 10, True, id="as chance has it once in 90 times"),
        pytest.param(0.009, 10, False, id="as chance has it once in 110 times"),
        pytest.param(0.009, 9, None, id="too few pairs to tell"),
    ],
)
def test_a_right_arm_that_samples_fails_once_in_a_hundred_times(p_value: float, pairs: int, holds: bool | None) -> None:
    assert Sampled("p-eagle", pairs, 0.1, p_value, 0.2).holds is holds


def test_another_target() -> None:
    other = FakeTarget("another")
    found = judged(answers("p-eagle", greedy(other)), target=other)
    assert [verdict.holds for verdict in found.verdicts] == [False, False]


def targets(served: FakeTarget, tokens: int = 96, **kernels: Any) -> SameTarget:
    """What the scores of an arm and of its baseline, which serves TARGET, say of their targets."""
    arms = (
        Arm("baseline", FakeConnection(by_rows=kernels.get("by_rows", False)), scoring=SCORING),
        Arm("p-eagle", FakeConnection(served, **kernels), scoring=SCORING),
    )
    own = answers("baseline", greedy(), tokens=tokens)
    (found,) = asyncio.run(judge(arms[0], arms[1:], [*own, *answers("p-eagle", greedy(), tokens=tokens)]))
    assert found.target
    return found.target


def test_another_gpu_may_round_as_far_as_prefill_and_decoding_do() -> None:
    """So may 8-bit weights: neither "the same" nor "another"."""
    found = targets(TARGET, kernels="prefill on another GPU")
    assert found.limit < found.mean_change < found.other_limit
    assert found.holds is None
    assert "Kernels of another GPU or version may do that" in found.verdict.detail


def test_rows_may_round_otherwise() -> None:
    found = targets(TARGET, by_rows=True)
    assert (found.noise > 0.02, found.holds) == (True, True)


OFF = 5.0 * sqrt(2)
"""A share of the weights as an error of this target's logits, whose deviation is 5."""


@pytest.mark.parametrize(
    ("served", "holds"),
    [
        pytest.param(replace(TARGET, error=0.003 * OFF), None, id="0.3 % of the weights"),
        pytest.param(replace(TARGET, error=0.01 * OFF), None, id="1 % of the weights"),
        pytest.param(replace(TARGET, error=0.03 * OFF), False, id="3 % of the weights"),
        pytest.param(replace(TARGET, step=1 / 256), None, id="another dtype"),
        pytest.param(FakeTarget("another revision"), False, id="another revision"),
    ],
)
def test_a_change_is_never_called_the_same(served: FakeTarget, holds: bool | None) -> None:
    """Decoding and prefill differ much here. No request shows whether a small change is one of kernels."""
    assert targets(served).holds is holds


@pytest.mark.parametrize("by_rows", [False, True])
def test_the_change_that_would_have_been_seen_is_seen(by_rows: bool) -> None:
    same = targets(TARGET, tokens=48, by_rows=by_rows)
    others = [targets(replace(TARGET, error=error), tokens=48, by_rows=by_rows) for error in (0.02, 0.05, 0.1, 0.2)]
    assert same.holds is True
    assert f"A change of {same.seen:.2g} would have been seen" in same.verdict.detail
    assert all(other.holds is not True for other in others if other.mean_change > same.seen), (same, others)
    assert any(other.mean_change > same.seen for other in others)


def test_another_quantization_shows_in_the_scores() -> None:
    quantized = replace(TARGET, error=0.15)
    found = judged(answers("p-eagle", greedy(quantized)), target=quantized)
    assert found.verdicts[1].holds is False
    assert "Serve the same model, revision, quantization and dtype" in found.verdicts[1].detail


def test_arms_that_were_asked_otherwise_are_not_compared() -> None:
    arms = [
        Arm("baseline", FakeConnection(), scoring=SCORING, options={"temperature": 0}),
        Arm("p-eagle", FakeConnection(), scoring=SCORING),
    ]
    results = [*answers("baseline", greedy()), *answers("p-eagle", greedy())]
    (found,) = asyncio.run(judge(arms[0], [replace(arms[1], options={"temperature": 0.7})], results))
    assert found.verdicts[0].holds is False
    assert "asked with another temperature than the baseline" in found.verdicts[0].detail


class RoughFarBelow(FakeConnection):
    """Its decoding is 3 nats off for tokens that lie far below the first."""

    def _decoded(self, prompt: Sequence[int], tokens: int, most: int) -> dict[str, Any]:
        found = super()._decoded(prompt, tokens, most)
        for top in found["top_logprobs"]:
            far = {name: logprob - 3 for name, logprob in top.items() if max(top.values()) - logprob > 4}
            top.update(far)
        return found


def test_noise_that_can_swap_no_tokens_does_not_widen_the_limit() -> None:
    own = answers("p-eagle", greedy())
    usual, rough = lossless(judged(own)).floor, lossless(judged(own, connection=RoughFarBelow())).floor
    assert max(rough.changes) > 2.5 > max(usual.changes)
    assert rough.limit == usual.limit


def test_few_tokens_show_nothing() -> None:
    """All are right, but one wrong token in 40 would often have escaped."""
    found = judged(answers("p-eagle", greedy(), prompts=2), answers("baseline", greedy(), prompts=2))
    assert found.verdicts[0].holds is None
    assert "Too few tokens to tell: send more prompts" in found.verdicts[0].detail
    assert "would have been seen" in found.verdicts[0].detail


def test_small_gaps_that_are_too_frequent() -> None:
    """A lenient acceptance: whatever is within the limit is taken."""

    def lenient(context: Sequence[int]) -> int:
        logits = TARGET.logits(context, "prefill")
        return next(token for token, value in enumerate(logits) if value >= max(logits) - 0.25)

    found = judged(answers("p-eagle", lenient))
    assert (lossless(found).beyond, lossless(found).holds) == (0, False)
    assert "tokens are not the target's first choice, against" in found.verdicts[0].detail


def test_a_tie_is_not_below_the_first_choice() -> None:
    """vLLM gives the rank 2 to both tokens of a tie."""

    def last_of_the_best(context: Sequence[int]) -> int:
        logits = TARGET.logits(context, "prefill")
        return max(range(VOCABULARY), key=lambda token: (logits[token], token))

    found = judged(answers("p-eagle", last_of_the_best))
    assert (lossless(found).below_first, lossless(found).identical < 16) == (0, True)


def test_long_answers_are_scored_in_part_and_long_prompts_not_at_all() -> None:
    """Scores take memory that an engine has not reserved: 512 tokens at most go out at once."""
    own = answers("baseline", greedy(), prompts=2, tokens=600)
    long = replace(own[0], prompt=9, prompt_token_ids=tuple(range(VOCABULARY)) * 100)
    connection = FakeConnection(longest=513)
    found = judged([replace(one, arm="p-eagle") for one in (*own, long)], own, connection=connection)
    assert lossless(found).tokens == 2 * (512 - 4)
    assert lossless(found).unscored == 1
    assert "1 answers were not scored" in found.verdicts[0].detail
    assert max(len(body["prompt"]) for body in connection.asked) == 512
    scored = [body["prompt"] for body in connection.asked if "prompt_logprobs" in body]
    assert list(long.prompt_token_ids[:512]) not in scored


def test_equal_answers_are_scored_once() -> None:
    connection = FakeConnection()
    own = answers("baseline", greedy())
    judged([*answers("p-eagle", greedy()), *answers("p-eagle", greedy(), round_=1)], own, connection=connection)
    scored = [tuple(body["prompt"]) for body in connection.asked if "prompt_logprobs" in body]
    assert len(scored) == len(set(scored))


def test_failed_answers_are_not_judged() -> None:
    own = answers("baseline", greedy())
    broken = [replace(one, outcome="failed", token_ids=(1, 2, 3)) for one in answers("p-eagle", greedy(), round_=1)]
    assert lossless(judged([*answers("p-eagle", greedy()), *broken], own)).holds is True


def test_without_log_probabilities_while_decoding_the_gaps_of_its_own_answers_are_the_floor() -> None:
    """And prefills alone show the same target, but not another one."""
    silent = FakeConnection(decoding_scores=False)
    found = judged(answers("p-eagle", greedy()), connection=silent)
    assert [verdict.holds for verdict in found.verdicts] == [True, True]
    quantized = judged(answers("p-eagle", greedy()), connection=silent, target=replace(TARGET, error=0.15))
    assert quantized.verdicts[1].holds is None


NO_SCORES = FakeConnection(scores=False)


def again(same: int) -> list[RequestResult]:
    """The baseline's second answers, of which so many equal the first."""
    own = answers("again", greedy())
    return [one if index < same else replace(one, token_ids=(1, 2)) for index, one in enumerate(own)]


@pytest.mark.parametrize(
    ("identical", "identical_again", "holds"),
    [(16, 16, True), (14, 15, True), (9, 10, True), (10, 16, None), (4, 16, False), (2, 10, False)],
)
def test_without_scores_answers_are_compared(identical: int, identical_again: int, holds: bool | None) -> None:
    arm = [replace(one, arm="p-eagle") for one in again(identical)]
    found = judged(arm, connection=NO_SCORES, again=again(identical_again))
    assert [verdict.holds for verdict in found.verdicts] == [holds, None]
    assert f"{identical} of 16 answers are the baseline's" in found.verdicts[0].detail


def test_without_scores_a_request_that_failed_is_no_answer() -> None:
    arm = [replace(one, arm="p-eagle") for one in again(16)]
    second = [replace(one, outcome="failed") if index < 4 else one for index, one in enumerate(again(16))]
    (verdict, *_) = judged(arm, connection=NO_SCORES, again=second).verdicts
    assert "the baseline itself gave the same answer 12 of 12 times" in verdict.detail


@dataclass
class Broken(FakeConnection):
    """An engine whose answers have other values than they should."""

    change: Mapping[str, Any] = field(default_factory=dict)

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        document = await super().invoke(body)
        (choice,) = document["choices"]
        choice.update({key: value for key, value in self.change.items() if choice[key]})
        return document


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_logprobs": [None] * 100},
        {"prompt_logprobs": [None, {"1": {"logprob": -1.0}}]},
        {"prompt_logprobs": [{"one": {"logprob": -1.0}}] * 100},
        {"prompt_logprobs": [{"1": {"logprob": "high"}}] * 100},
        {"prompt_logprobs": 3},
    ],
)
def test_scores_that_cannot_be_used_are_none(change: Mapping[str, Any]) -> None:
    """Such as those of an engine that reads them from its prefix cache, and so has them for a part."""
    found = judged(answers("p-eagle", greedy(mode="rows of a draft")), connection=Broken(change=change))
    assert [verdict.holds for verdict in found.verdicts] == [None, None]
    assert "Without scores, rounding looks like wrong tokens: the " in found.verdicts[0].detail


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": ["token_id:1"], "top_logprobs": []},
        {"tokens": ["token_id:1"], "top_logprobs": [{"token_id:1": 0.0}]},
        {"tokens": ["the"], "top_logprobs": [{"the": -0.1, "a": -2.0}]},
        {"tokens": ["token_id:1"], "top_logprobs": [None]},
    ],
)
def test_log_probabilities_of_decoding_that_cannot_be_used_are_none(change: Mapping[str, Any]) -> None:
    found = judged(answers("p-eagle", greedy()), connection=Broken(change={"logprobs": change}))
    assert found.target
    assert (found.verdicts[0].holds, found.target.other_kernels) == (True, None)


def test_without_scores_and_token_ids_texts_are_compared() -> None:
    own = [replace(one, token_ids=(), prompt_token_ids=(), text=f"text {one.prompt}") for one in again(16)]
    baseline = [replace(one, arm="baseline") for one in own]
    arm = [replace(one, arm="p-eagle", text="other") for one in own]
    assert judged(arm, baseline, again=own).verdicts[0].holds is False
    assert judged([replace(one, arm="p-eagle") for one in own], baseline).verdicts[0].holds is True


def test_without_a_second_answer_of_the_baseline_a_difference_shows_nothing() -> None:
    arm = [replace(one, arm="p-eagle") for one in again(12)]
    assert judged(arm, connection=NO_SCORES).verdicts[0].holds is None


def test_the_rates_of_the_rule() -> None:
    assert seen_rate(600, 600) == pytest.approx(1 - 0.05 ** (1 / 600))
    assert seen_rate(1000, 500) == pytest.approx(2 * (1 - 0.05 ** (1 / 1000)))
    assert (seen_rate(5, 0), seen_rate(0, 0)) == (1.0, 1.0)
    assert binomial_tail(3, 4, 0.5) == pytest.approx(5 / 16)
    assert binomial_tail(0, 9, 0.3) == pytest.approx(1)
    assert not more_frequent((0, 2000), (0, 2000))
    assert not more_frequent((17, 2000), (0, 2000))
    assert more_frequent((18, 2000), (0, 2000))  # (2/3)^18 is below 0.001
    assert not more_frequent((40, 2000), (20, 2000))


def normal(chance: random.Random) -> float:
    return chance.gauss(0, 1)


def exponential(chance: random.Random) -> float:
    return chance.choice((-1, 1)) * chance.expovariate(1)


def student_t4(chance: random.Random) -> float:
    return chance.gauss(0, 1) / sqrt(chance.gammavariate(2, 0.5))


@pytest.mark.parametrize(("noise", "most"), [(normal, 0), (exponential, 1), (student_t4, 5)])
def test_false_alarms_are_as_rare_as_the_rule_says(noise: Callable[[random.Random], float], most: int) -> None:
    """100 right arms of 2,400 tokens; a fifth of the places has its two best tokens within a nat."""
    chance = random.Random(0)

    def gaps(tokens: int) -> list[float]:
        return [gap for _ in range(tokens) if (gap := 5 * chance.random()) < noise(chance) / 20]

    def alarm() -> bool:
        own, change = gaps(2400), max(abs(noise(chance)) / 20 for _ in range(200))
        floor = Floor(2400, len(own), max(own, default=0.0), 0.0, (change,), change)
        arm = gaps(2400)
        return max(arm, default=0.0) > floor.limit or more_frequent((len(arm), 2400), (len(own), 2400))

    assert sum(alarm() for _ in range(100)) <= most


def test_one_text_may_be_the_answer_to_two_prompts() -> None:
    scorer = Scorer(Arm("base", FakeConnection(), scoring=SCORING))

    async def both() -> list[int]:
        return [len(await scorer.scores(prompt, answer)) for prompt, answer in [((1, 2), (3, 4)), ((1, 2, 3), (4,))]]

    assert asyncio.run(both()) == [2, 1]


@pytest.mark.parametrize(("pick", "holds"), [(greedy(), True), (one_wrong(50, 1), False)])
def test_without_a_baseline_the_arms_own_target_judges_its_answers(pick: Pick, holds: bool) -> None:
    arm = Arm("p-eagle", FakeConnection(), scoring=SCORING)

    found, target = asyncio.run(judge_alone(arm, answers("p-eagle", pick)))

    assert (found.holds, target.holds) == (holds, None), found


def test_without_a_baseline_and_scores_nothing_is_shown() -> None:
    arm = Arm("p-eagle", FakeConnection(scores=False), scoring=SCORING)

    found, _ = asyncio.run(judge_alone(arm, answers("p-eagle", greedy())))

    assert found.holds is None


def test_of_an_engine_that_does_not_score_given_tokens_it_is_not_shown() -> None:
    arm, baseline = Arm("p-eagle", FakeConnection()), Arm("baseline", FakeConnection(), speculative=False)

    alone, _ = asyncio.run(judge_alone(arm, answers("p-eagle", greedy())))
    (paired,) = asyncio.run(
        judge(baseline, [arm], [*answers("p-eagle", one_wrong(50, 1)), *answers("baseline", greedy())])
    )

    assert alone.holds is None
    assert alone.detail.endswith("cannot be scored: its engine does not tell how probable given tokens are")
    assert paired.verdicts[0].holds is None
    assert "does not tell how probable" in paired.verdicts[0].detail


def ended(results: Sequence[RequestResult], longest: int = 12) -> list[RequestResult]:
    """Answers that stop at their first token that ends one, or are cut."""
    lengths = [[*one.token_ids[:longest], END].index(END) + 1 for one in results]
    return [
        replace(
            one, token_ids=one.token_ids[:length][:longest], finish_reason="stop" if length <= longest else "length"
        )
        for one, length in zip(results, lengths, strict=True)
    ]


def shortened(results: Sequence[RequestResult], reason: str, fewer: int = 3) -> list[RequestResult]:
    """The same answers, but that those which ended for that reason lack their last tokens, as if they ended there."""
    return [replace(one, token_ids=one.token_ids[:-fewer]) if one.finish_reason == reason else one for one in results]


def test_answers_that_end_where_the_targets_do_are_lossless() -> None:
    own = ended(answers("baseline", greedy(), prompts=40))
    assert {one.finish_reason for one in own} == {"stop", "length"}
    assert lossless(judged(ended(answers("p-eagle", greedy(), prompts=40)), own)).endings.hold


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_answers_that_end_early_are_caught_though_each_of_their_tokens_is_right(reason: str) -> None:
    own = ended(answers("baseline", greedy(), prompts=40))
    cut = shortened(ended(answers("p-eagle", greedy(), prompts=40)), reason)
    verdict = judged(cut, own).verdicts[0]
    assert verdict.holds is False
    assert "answers end where the target goes on, first structured, prompt " in verdict.detail
    assert "are the baseline's token for token" in verdict.detail


def test_an_engine_that_leaves_end_tokens_out_is_asked_how_the_target_goes_on() -> None:
    """Where the baseline goes on with a token that it clearly prefers, the answer did not end there."""
    own = answers("baseline", greedy(), prompts=40)
    whole = [replace(one, finish_reason="length") for one in own]
    cut = [replace(one, arm="p-eagle", token_ids=one.token_ids[:40], finish_reason="stop") for one in own]
    assert judged(cut, whole).verdicts[0].holds is False


def spelled(*texts: str) -> list[Score]:
    return [
        Score(Choice(token, -0.1, text), (Choice(token, -0.1), Choice(99, -5.0))) for token, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("texts", "shown", "other"),
    [
        (["One", ",", " two", "<|end|>"], "One, two", False),
        (["One", ",", " two", "<|end|>"], "One, three", True),
        (["One", ",", "two"], "One,  two\n", False),  # tokens alone may lack their space
        (["<think>", "so", "</think>", "One"], "so One", False),  # a parser took the marks out
        (["One", "\ufffd", "\ufffd"], "One é", False),  # parts of a letter cannot be compared
        (["One", ","], "", False),  # a call of a tool
    ],
)
def test_the_text_of_an_answer_is_what_its_tokens_spell(texts: list[str], shown: str, other: bool) -> None:
    (one,) = answers("p-eagle", greedy(), prompts=1, tokens=len(texts))
    assert has_other_text(replace(one, text=shown), spelled(*texts)) is other


def test_of_a_long_answer_the_text_of_its_beginning_counts() -> None:
    (one,) = answers("p-eagle", greedy(), prompts=1, tokens=5)
    assert not has_other_text(replace(one, text="One, two, three"), spelled("One", ",", " two"))
    assert has_other_text(replace(one, text="Two, two, three"), spelled("One", ",", " two"))


@pytest.mark.parametrize(("changed", "holds"), [(["p-eagle"], False), (["baseline", "p-eagle"], True)])
def test_another_text_is_told_unless_the_baselines_is_another_too(changed: list[str], holds: bool) -> None:
    def texts(arm: str) -> list[RequestResult]:
        found = answers(arm, greedy())
        letters = ["".join(map(LETTERS.__getitem__, one.token_ids)) for one in found]
        shown = [text[::-1] if arm in changed else text for text in letters]
        return [replace(one, text=text) for one, text in zip(found, shown, strict=True)]

    served = FakeConnection(spelling=LETTERS.__getitem__)
    verdict = judged(texts("p-eagle"), texts("baseline"), connection=served).verdicts[0]
    assert verdict.holds is holds
    assert ("answers have another text than their tokens" in verdict.detail) is not holds
