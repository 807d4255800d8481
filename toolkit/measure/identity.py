"""Where an engine gives no scores: are an arm's greedy answers the baseline's as often as the baseline's own are?

In low precision answers may differ without a fault: vLLM's own tests ask for 60 % (vllm#35167). The baseline's answers
to the same requests a second time show how often rounding changes one. A share of identical answers that is not lower
holds (Fisher's exact test, one-sided, level 0.01). A lower one proves little: a draft's K+1 rows round otherwise than
one row (vllm#54506), and nothing tells a near-tie from a wrong token. Below 60 % of the baseline's share it fails; in
between, it is not shown. With one wrong token in 200, answers of 256 tokens are identical in 28 % of cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from toolkit.measure.lossless import count_identical, pair_answers
from toolkit.measure.measurement import Verdict
from toolkit.measure.result import RequestResult, successful

_LEVEL = 0.01
_TOLERATED = 0.6


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


def compare_identity(
    arm: str,
    answers: Sequence[RequestResult],
    reference: Sequence[RequestResult],
    again: Sequence[RequestResult],
    reason: str,
) -> Identity:
    """Compare answers by token ids, or by text where the engine returns no ids. `again` are the baseline's second."""
    ours, own = pair_answers(successful(answers), reference), pair_answers(successful(again), reference)
    return Identity(arm, count_identical(ours), len(ours), count_identical(own), len(own), reason)
