"""Calls of a list are spaced by what AWS throttles: without a wait it would throttle all that follow."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from toolkit.platforms.sagemaker.listing import Pace, TimeUp


class Clock:
    """Seconds that pass only while somebody sleeps."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeEndpoint")


def asking(clock: Clock, asked: list[float], throttled: int) -> Callable[[], str]:
    """A call that is throttled so many times; `asked` gets the time of each try, and no test waits for one too many."""

    def ask() -> str:
        asked.append(round(clock(), 3))
        if len(asked) <= throttled:
            raise ClientError(
                {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "DescribeEndpoint"
            )
        assert len(asked) < 100
        return "described"

    return ask


def test_each_throttled_call_doubles_the_wait_and_each_answer_shortens_it_a_little() -> None:
    clock, asked = Clock(), list[float]()
    pace = Pace(60.0, clock, clock.sleep)
    assert pace.call(asking(clock, asked, throttled=3)) == "described"
    assert asked == [0.0, 0.05, 0.15, 0.35]
    pace.call(asking(clock, asked, throttled=0))
    pace.call(asking(clock, asked, throttled=0))
    assert asked[4:] == [0.55, 0.74]


def test_the_wait_has_a_bound() -> None:
    clock, asked = Clock(), list[float]()
    Pace(60.0, clock, clock.sleep).call(asking(clock, asked, throttled=9))
    assert asked[-1] - asked[-2] == pytest.approx(2.0)


def test_calls_that_are_throttled_till_the_time_is_up_end() -> None:
    clock, asked = Clock(), list[float]()
    with pytest.raises(TimeUp):
        Pace(5.0, clock, clock.sleep).call(asking(clock, asked, throttled=99))
    assert 5 < len(asked) < 10


def test_another_refusal_is_not_tried_again() -> None:
    clock, asked = Clock(), list[float]()

    def ask() -> None:
        asked.append(clock())
        raise refused("AccessDenied")

    with pytest.raises(ClientError, match="AccessDenied"):
        Pace(5.0, clock, clock.sleep).call(ask)
    assert asked == [0.0]
