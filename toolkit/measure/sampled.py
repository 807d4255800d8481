"""At a temperature above 0: do an arm's answers have the probability under the target that the baseline's have?

Speculation must not change the distribution that answers are drawn from. The target scores both arms' answers; what is
compared is an answer's mean log-probability per token. An arm that decodes greedily or cooler lies above the baseline,
one that samples hotter or accepts too much below it.

**The test.** Answers to the same request make a pair. If both come from one distribution, the sign of each pair's
difference is a coin's, so the mean difference is compared with those of 10,000 random choices of signs (a paired
permutation test, exact whatever the distribution). Level 0.01, two-sided: a right arm fails once in a hundred times.
Its power follows from the spread s of n differences: one of (2.58 + 1.64) s/√n is seen with 95 % certainty.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

from toolkit.measure.lossless import pair_answers, sample
from toolkit.measure.measurement import Verdict
from toolkit.measure.result import RequestResult
from toolkit.measure.scoring import Scorer

_LEVEL = 0.01
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


async def compare_sampled(
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
