"""Student's t, which turns the spread of a few independent figures into a 95 % interval. Standard library only."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

LEVEL = 0.975
"""The quantile at each end of a 95 % interval."""
_STEPS = 32


def student(freedom: float, level: float = LEVEL) -> float:
    """A quantile of Student's t, for at least one degree of freedom, which need not be whole."""
    return _student_at(max(1.0, round(freedom, 2)), level)


@lru_cache(maxsize=1024)
def _student_at(freedom: float, level: float) -> float:
    if freedom > 30:  # Abramowitz & Stegun 26.7.5, right to 4 digits here
        z = NormalDist().inv_cdf(level)
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        return z + first / freedom + second / freedom**2
    # With t = √freedom tan x, the probability below t is 1/2 plus the integral of cos(x)^(freedom - 1) from 0 to x,
    # over the beta function of 1/2 and freedom/2: bisection over Simpson's rule.
    beta = math.sqrt(math.pi) * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    low, high = 0.0, math.pi / 2
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (middle, high) if _integral(freedom - 1, middle) < (level - 0.5) * beta else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _integral(power: float, end: float) -> float:
    values = [math.pow(math.cos(end * i / _STEPS), power) for i in range(_STEPS + 1)]
    return end / _STEPS / 3 * (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]))
