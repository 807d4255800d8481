"""Whether arms are lossless and serve the baseline's target, by the best means that their engine offers.

Greedy answers are held against the target's scores (`lossless`), sampled ones against their probability under it, and
where an engine gives no scores, answers against answers.

**Sampled answers**, at a temperature above 0. Speculation must not change the distribution that answers are drawn from.
The target scores both arms' answers; what is compared is an answer's mean log-probability per token. An arm that
decodes greedily or cooler lies above the baseline, one that samples hotter or accepts too much below it.
Answers to the same request make a pair. If both come from one distribution, the sign of each pair's difference is a
coin's, so the mean difference is compared with those of 10,000 random choices of signs (a paired permutation test,
exact whatever the distribution). Level 0.01, two-sided: a right arm fails once in a hundred times. Its power follows
from the spread s of n differences: one of (2.58 + 1.64) s/√n is seen with 95 % certainty.

**Without scores.** In low precision answers may differ without a fault: vLLM's own tests ask for 60 % (vllm#35167). The
baseline's answers to the same requests a second time show how often rounding changes one. A share of identical answers
that is not lower holds (Fisher's exact test, one-sided, level 0.01). A lower one proves little: a draft's K+1 rows
round otherwise than one row (vllm#54506), and nothing tells a near-tie from a wrong token. Below 60 % of the baseline's
share it fails; in between, it is not shown. With one wrong token in 200, answers of 256 tokens are identical in 28 % of
cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import comb, sqrt
from statistics import mean, stdev

from toolkit.errors import InvocationError
from toolkit.measure.arm import Arm
from toolkit.measure.lossless import Floor, Lossless, compare, count_identical, measure_floor, pair_answers, sample
from toolkit.measure.measurement import Verdict
from toolkit.measure.result import RequestResult, successful
from toolkit.measure.same_target import SameTarget, other_name, other_tokens, same_target
from toolkit.measure.scoring import Scored, Scorer

_LEVEL = 0.01
_TOLERATED = 0.6
_CHOICES_OF_SIGNS = 10_000
_FEWEST_PAIRS = 10  # fewer cannot reach the level: 2 in 2^10 choices of signs are as far out as the furthest
_NORMAL_95, _NORMAL_99_TWO_SIDED = 1.645, 2.576


@dataclass(frozen=True)
class Sampled:
    """Mean log-probability per token of an arm's answers less that of the baseline's, over pairs of answers."""

    arm: str
    pairs: int
    difference: float
    p_value: float
    seen: float

    @property
    def holds(self) -> bool | None:
        """Whether both have one distribution, as far as this shows; None if there are too few pairs."""
        return self.p_value >= _LEVEL if self.pairs >= _FEWEST_PAIRS else None

    @property
    def verdict(self) -> Verdict:
        if self.holds is None:
            detail = f"only {self.pairs} pairs of sampled answers have scores; {_FEWEST_PAIRS} are needed"
        else:
            detail = (
                f"the target gives its sampled answers {self.difference:+.3f} nats per token against the baseline's, "
                f"over {self.pairs} pairs (p = {self.p_value:.3g}); {self.seen:.3f} would have been seen"
            )
        if self.holds is False:
            detail += ". Check that both arms get the same temperature, top_p and top_k"
        return Verdict("lossless", self.holds, f"{self.arm}: {detail}")


async def _compare_sampled(
    arm: str, scorer: Scorer, answers: Sequence[RequestResult], reference: Sequence[RequestResult]
) -> Sampled:
    """Have the target score both arms' answers to the same requests, and test their difference."""
    differences = []
    for ours, theirs in pair_answers(sample(answers), reference):
        our, their = await scorer.of(ours), await scorer.of(theirs)
        if our and their:
            scored = [mean(score.token.logprob for score in scores) for scores in (our, their)]
            differences.append(scored[0] - scored[1])
    if len(differences) < _FEWEST_PAIRS:
        return Sampled(arm, len(differences), 0.0, 1.0, 0.0)
    seen = (_NORMAL_95 + _NORMAL_99_TWO_SIDED) * stdev(differences) / sqrt(len(differences))
    return Sampled(arm, len(differences), mean(differences), p_value(differences), seen)


def p_value(differences: Sequence[float]) -> float:
    """The share of random choices of signs whose mean is at least as far from 0, this one included."""
    chance, observed = random.Random(0), abs(sum(differences))  # noqa: S311 - no secret
    tolerance = 1e-9 * sum(map(abs, differences))
    further = sum(
        abs(sum(value if chance.random() < 0.5 else -value for value in differences)) >= observed - tolerance
        for _ in range(_CHOICES_OF_SIGNS)
    )
    return (further + 1) / (_CHOICES_OF_SIGNS + 1)


@dataclass(frozen=True)
class Identity:
    """Identical answers of pairs: the arm's with the baseline's, and the baseline's with its own (`again`).

    `reason` is why there are no scores.
    """

    arm: str
    identical: int
    pairs: int
    identical_again: int
    pairs_again: int
    reason: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether answers are identical as often; None if they are less often, but rounding may explain it."""
        if not self.pairs or (self.identical < self.pairs and not self.pairs_again):
            return None
        if self.identical == self.pairs or self._p_value >= _LEVEL:
            return True
        least = _TOLERATED * self.identical_again / self.pairs_again
        return None if self.identical / self.pairs >= least else False

    @property
    def verdict(self) -> Verdict:
        detail = f"{self.arm}: {self.identical} of {self.pairs} answers are the baseline's"
        if self.pairs_again:
            own = f"{self.identical_again} of {self.pairs_again}"
            detail += f"; asked twice, the baseline itself gave the same answer {own} times"
        detail += f". Without scores, rounding looks like wrong tokens: {self.reason}"
        return Verdict("lossless", self.holds, detail)

    @property
    def _p_value(self) -> float:
        """The probability of so few identical answers among the arm's, if identical ones are as frequent in both."""
        total, all_pairs = self.identical + self.identical_again, self.pairs + self.pairs_again
        ways = sum(
            comb(self.pairs, k) * comb(self.pairs_again, total - k) for k in range(self.identical + 1) if total >= k
        )
        return ways / comb(all_pairs, total)


def _compare_identity(
    arm: str,
    answers: Sequence[RequestResult],
    reference: Sequence[RequestResult],
    again: Sequence[RequestResult],
    reason: str,
) -> Identity:
    """Compare answers by token ids, or by text where the engine returns no ids. `again` are the baseline's second."""
    ours, own = pair_answers(successful(answers), reference), pair_answers(successful(again), reference)
    return Identity(arm, count_identical(ours), len(ours), count_identical(own), len(own), reason)


@dataclass(frozen=True)
class DifferentOptions:
    """The arm was not asked what the baseline was asked: these request options differ."""

    arm: str
    options: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        detail = f"{self.arm}: asked with another {', '.join(self.options)} than the baseline; ask both alike"
        return Verdict("lossless", False, detail)


@dataclass(frozen=True)
class Judgement:
    """What is found about one arm; `target` is None where the engine gives no scores.

    `other_tokens` says how it counts the tokens of the same texts otherwise than the baseline, `other_name` how it
    names another model, which decides where there are no scores; both are empty if it does not.
    """

    arm: str
    lossless: Lossless | Sampled | Identity | DifferentOptions
    target: SameTarget | None
    other_tokens: str = ""
    other_name: str = ""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        target = Verdict("same-target", None, f"{self.arm}: the engine gives no scores of tokens to compare")
        if self.other_tokens:
            target = Verdict("same-target", False, f"{self.arm}: {self.other_tokens}")
        elif self.target and self.target.holds is not None:
            target = self.target.verdict
        elif self.other_name:
            target = Verdict("same-target", False, f"{self.arm}: {self.other_name}. Serve the same model in both arms")
        elif self.target:
            target = self.target.verdict
        return self.lossless.verdict, target


async def judge(
    baseline: Arm,
    arms: Sequence[Arm],
    results: Sequence[RequestResult],
    again: str = "",
    progress: Callable[[Scored], object] = lambda _: None,
) -> tuple[Judgement, ...]:
    """Judge arms by the answers in `results`, of which those of the arm `again` are the baseline's second ones."""

    def answers(name: str) -> list[RequestResult]:
        return [result for result in results if result.arm == name]

    scorer, reference = Scorer(baseline, progress), answers(baseline.name)
    try:
        floor = await measure_floor(scorer, reference)
    except InvocationError as error:
        second, reason = answers(again), str(error)
        identities = [_compare_identity(arm.name, answers(arm.name), reference, second, reason) for arm in arms]
        judged = [Judgement(one.arm, one, None) for one in identities]
    else:
        judged = [await _judge(arm, baseline, scorer, floor, answers(arm.name), reference) for arm in arms]
    return tuple(
        replace(
            one,
            other_tokens=other_tokens(answers(arm.name), reference),
            other_name=other_name(arm.target, baseline.target),
        )
        for arm, one in zip(arms, judged, strict=True)
    )


async def judge_alone(
    arm: Arm, results: Sequence[RequestResult], progress: Callable[[Scored], object] = lambda _: None
) -> tuple[Verdict, Verdict]:
    """Without a baseline, the arm's own target scores its answers. Whether it is the right target is not shown.

    Wrong tokens that the arm accepts are found; its noise is that from decoding to prefill alone.
    """
    target = Verdict("same-target", None, f"{arm.name}: only a baseline shows whether it serves the right target")
    answers = [result for result in results if result.arm == arm.name]
    if arm.options.get("temperature"):
        return Verdict("lossless", None, f"{arm.name}: sampled answers are judged with a baseline only"), target
    scorer = Scorer(arm, progress)
    try:
        floor = replace(await measure_floor(scorer, answers), largest_gap=0.0)
    except InvocationError as error:
        return Verdict("lossless", None, f"{arm.name}: its answers cannot be scored: {error.message}"), target
    own = await compare(arm.name, scorer, floor, answers, ())
    shown = f"{own.beyond} of {own.tokens} tokens lie more than {floor.limit:.3g} nats below its own target's first"
    detail = f"{arm.name}: {shown} choice, twice the rounding noise"
    if own.worst:
        detail += f": {own.worst.shown}, {own.worst.gap:.3g} nats below its {own.worst.first}"
    return Verdict("lossless", own.holds, detail), target


async def _judge(
    arm: Arm,
    baseline: Arm,
    scorer: Scorer,
    floor: Floor,
    answers: Sequence[RequestResult],
    reference: Sequence[RequestResult],
) -> Judgement:
    target = await same_target(arm.name, scorer.by(arm), scorer, floor, reference)
    names = sorted({*arm.options, *baseline.options})
    if other := tuple(name for name in names if arm.options.get(name) != baseline.options.get(name)):
        return Judgement(arm.name, DifferentOptions(arm.name, other), target)
    if arm.options.get("temperature"):
        return Judgement(arm.name, await _compare_sampled(arm.name, scorer, answers, reference), target)
    return Judgement(arm.name, await compare(arm.name, scorer, floor, answers, reference), target)
