"""What is asked again, how often, and after which pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fakes import FakeClock

from toolkit.endpoint.refusal import retry, retry_async
from toolkit.errors import InvocationError

THROTTLED = InvocationError("throttled", transient=True)
REFUSED = InvocationError("no such adapter")


class Sender:
    """Raises what it was given, one after the other, then answers."""

    def __init__(self, *errors: InvocationError) -> None:
        self.asked = 0
        self._errors = errors

    def __call__(self) -> str:
        self.asked += 1
        if self.asked <= len(self._errors):
            raise self._errors[self.asked - 1]
        return "answer"


class Pauses(FakeClock):
    """Remembers how long each sleep was."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[float] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.all.append(seconds)


def in_event_loop(send: Callable[[], str], sleep: Callable[[float], None]) -> str:
    async def asend() -> str:
        return send()

    async def asleep(seconds: float) -> None:
        sleep(seconds)

    return asyncio.run(retry_async(asend, asleep))


both = pytest.mark.parametrize("ask", [retry, in_event_loop])
Ask = Callable[[Callable[[], str], Callable[[float], None]], str]


@both
def test_an_answer_is_not_asked_for_again(ask: Ask) -> None:
    send, pauses = Sender(), Pauses()
    assert ask(send, pauses.sleep) == "answer"
    assert (send.asked, pauses.all) == (1, [])


@both
@pytest.mark.parametrize("failures", [1, 2, 3])
def test_what_never_began_is_asked_again_up_to_three_times(ask: Ask, failures: int) -> None:
    send = Sender(*[THROTTLED] * failures)
    assert ask(send, Pauses().sleep) == "answer"
    assert send.asked == failures + 1


@both
def test_after_the_fourth_failure_the_caller_learns_of_it(ask: Ask) -> None:
    send = Sender(*[THROTTLED] * 9)
    with pytest.raises(InvocationError, match="throttled"):
        ask(send, Pauses().sleep)
    assert send.asked == 4


@both
def test_what_the_model_refused_it_would_refuse_again(ask: Ask) -> None:
    send, pauses = Sender(REFUSED), Pauses()
    with pytest.raises(InvocationError, match="no such adapter"):
        ask(send, pauses.sleep)
    assert (send.asked, pauses.all) == (1, [])


@both
def test_pauses_grow_and_differ_between_callers(ask: Ask) -> None:
    callers = [Pauses() for _ in range(20)]
    for pauses in callers:
        with pytest.raises(InvocationError):
            ask(Sender(*[THROTTLED] * 9), pauses.sleep)
    for number, longest in enumerate((0.5, 1.0, 2.0)):
        waited = [pauses.all[number] for pauses in callers]
        assert longest / 2 <= min(waited) < max(waited) <= longest
