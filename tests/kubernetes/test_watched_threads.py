"""Threads beside a test."""

from __future__ import annotations

import threading

import pytest
from watched_threads import watched_threads

pytestmark = pytest.mark.timeout(20)


def broken() -> None:
    raise LookupError("no more nodes")


def wait_beside(number: int) -> None:
    """For ever, unless one of so many broken ones ends it."""
    with watched_threads() as start:
        for _ in range(number):
            start(broken)
        threading.Event().wait()


@pytest.mark.parametrize("number", [1, 20])
def test_what_one_raises_ends_what_waits_for_it(number: int) -> None:
    with pytest.raises(AssertionError, match="what runs beside the test has failed") as error:
        wait_beside(number)
    assert str(error.value.__cause__) == "no more nodes"
