"""The speed of other K from two that were measured."""

from __future__ import annotations

import pytest

from toolkit.measure.find_k import Measured, seconds_per_token

ACCEPTED = (0.8, 0.6, 0.4, 0.2, 0.1, 0.05)


def arm(k: int, step: float) -> Measured:
    return Measured(k, step / (1 + sum(ACCEPTED[:k])), ACCEPTED[:k])


def test_the_step_is_what_its_tokens_took() -> None:
    assert arm(3, 0.030).seconds_per_step == pytest.approx(0.030)


def test_other_k_lie_on_the_line_of_the_two_steps() -> None:
    found = seconds_per_token([arm(2, 0.022), arm(6, 0.026)], range(1, 7))

    assert found == pytest.approx(
        {1: 0.021 / 1.8, 2: 0.022 / 2.4, 3: 0.023 / 2.8, 4: 0.024 / 3.0, 5: 0.025 / 3.1, 6: 0.026 / 3.15}
    )
    assert min(found, key=lambda k: found[k]) == 4


def test_below_the_smaller_k_no_step_is_shorter_than_in_proportion_to_k() -> None:
    """The line through a step of 10 ms at K=3 and one of 60 ms at K=6 would be below zero at K=1."""
    found = seconds_per_token([arm(3, 0.010), arm(6, 0.060)], [1, 2])

    assert found == pytest.approx({1: 0.010 / 3 / 1.8, 2: 0.020 / 3 / 2.4})
