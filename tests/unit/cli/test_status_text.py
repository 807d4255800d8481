"""What `toolkit status` shows of endpoints: their ages and prices."""

from __future__ import annotations

import time

import pytest

from toolkit.cli.status_command import age, status_text
from toolkit.endpoint.platform import Deployed


def deployed(price: float | None) -> Deployed:
    return Deployed("e", "local", "", "InService", "e-1", time.time(), (("ml.g6.xlarge", 2),), price)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(59, "59 s"), (60, "1 min"), (3599, "60 min"), (3600, "1 h"), (86399, "24 h"), (86400, "1 d")],
)
def test_an_age_is_shown_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


@pytest.mark.parametrize(
    ("prices", "total"),
    [
        ((1.5, 2.25), "3.75 $/h in total"),
        ((1.5, None), "1.50 $/h in total (without 1 whose types have no price: toolkit plan says why)"),
    ],
)
def test_the_sum_says_when_a_price_is_missing(prices: tuple[float | None, ...], total: str) -> None:
    assert status_text([deployed(price) for price in prices]).endswith(f"\n{total}")
