"""The rule by which an arm pays or costs.

**Several looks.** A workload pays if an arm does at any load. With m arms and loads that are m chances of an error, so
each is judged by a wider interval: that of Student's quantile 1 - 0.025/m instead of 0.975. Where nothing differs, the
probability that at least one of the m intervals lies above 1 is at most m * 0.025/m = 2.5 % (Bonferroni's inequality),
however much the arms and loads depend on each other. The intervals that a report shows remain those of 95 %. "Nothing
is gained" needs every load to show that, so it needs no correction.

The measurement may stop early, which is not a further look: it stops when its intervals are narrow (`statistics.py`),
not when one of them reaches a verdict.
"""

from __future__ import annotations

from typing import Protocol

# A smaller difference is worth no deployment, and clocks are no better.
_SMALLEST_GAIN = 1.01


class Ratio(Protocol):
    """A ratio with its interval."""

    @property
    def ratio(self) -> float:
        """The estimate."""

    @property
    def low(self) -> float:
        """The lower end."""

    @property
    def high(self) -> float:
        """The upper end."""


def verdict_pays(speedup: Ratio | None, noise: Ratio | None) -> bool | None:
    """Whether an arm pays (True) or costs (False); None if neither is shown. `speedup` allows for all looks.

    It pays if its whole interval is above 1, by 1 % at least, and above the ratio of the baseline to itself. In a
    measurement without any difference the first happens in 2.5 % of all cases. The second makes it rarer: both ratios
    have the same baseline requests below, so where these were slow by chance, the baseline beats itself as well.
    """
    if speedup is None:
        return None
    itself = noise.ratio if noise else 1.0
    if speedup.low > max(_SMALLEST_GAIN, itself):
        return True
    return False if speedup.high < min(1 / _SMALLEST_GAIN, itself) else None
