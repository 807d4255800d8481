"""How fast other K would be, from a few that were measured.

Whether the draft token at a position is accepted hardly depends on how many tokens are drafted after it. So one
measured curve of acceptance per position, a_1 … a_n, gives the acceptance length of every smaller K:
L(K) = 1 + a_1 + … + a_K (Leviathan et al. 2023, section 3.1, with measured instead of geometric a_j). The time of a
target step grows linearly with K: each further token is drafted and verified at a constant cost. Two measured K give
that line, and the predicted speed is L(K) / T(K).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """An arm at one K: seconds per output token, and the share of steps that accepted each position of a draft."""

    k: int
    seconds_per_token: float
    acceptance_per_position: tuple[float, ...]

    @property
    def seconds_per_step(self) -> float:
        """Seconds of a target step, drafting included."""
        return self.seconds_per_token * acceptance_length(self.acceptance_per_position, self.k)


def acceptance_length(per_position: Sequence[float], k: int) -> float:
    """Tokens per target step with K draft tokens, the bonus token included."""
    return 1 + sum(per_position[:k])


def seconds_per_token(low: Measured, high: Measured, ks: Sequence[int]) -> dict[int, float]:
    """The predicted seconds per output token of each K up to the larger one that was measured.

    A step without drafts takes some time too, so below the smaller K no step is shorter than in proportion to K.
    """
    slope = (high.seconds_per_step - low.seconds_per_step) / (high.k - low.k)

    def step(k: int) -> float:
        on_line = low.seconds_per_step + slope * (k - low.k)
        return max(on_line, low.seconds_per_step * k / low.k) if k < low.k else on_line

    return {k: step(k) / acceptance_length(high.acceptance_per_position, k) for k in ks if k <= high.k}
