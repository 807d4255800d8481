"""What one test does to signals is not the next one's: the process of the tests would die of Ctrl-C."""

from __future__ import annotations

import signal

AT_FIRST = signal.getsignal(signal.SIGINT)


def test_a_test_takes_ctrl_c_over() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_the_next_one_has_the_handler_that_was_there() -> None:
    assert signal.getsignal(signal.SIGINT) is AT_FIRST not in (signal.SIG_DFL, signal.SIG_IGN)
