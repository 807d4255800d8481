"""Ctrl-C, and SIGTERM as it: a CI job that is cancelled gets that one, and so does each command of a fleet.

An exception in the middle of other people's code may be lost. Python drops one out of a finalizer, such as that of an
HTTP answer, and one out of the `__enter__` of a lock in Python code leaves it taken for ever, by which urllib3 waits
for itself (https://github.com/python/cpython/issues/78022). So it is raised once our own code runs or waits.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_OURS = f"{Path(__file__).parents[1]}{os.sep}"
_MOMENT_SECONDS = 0.005
_PATIENCE_SECONDS = 0.5
_CAN_WAIT = hasattr(signal, "setitimer")  # Windows has none


def hear_interrupts() -> None:
    """From now on SIGINT and SIGTERM raise KeyboardInterrupt in the main thread as soon as nothing is lost by it.

    Where somebody else has taken SIGINT over, SIGTERM does what that one does; where it is ignored, it stays ignored.
    """
    ending = _Ending()
    signal.signal(signal.SIGTERM, ending.begin)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, ending.begin)
    if _CAN_WAIT:
        signal.signal(signal.SIGALRM, ending.interrupt)


@dataclass
class _Ending:
    """`deadline` is when it is raised wherever the program is: it may wait for a network, which nobody sees."""

    deadline: float = 0.0

    def begin(self, number: int, frame: FrameType | None) -> None:
        self.deadline = self.deadline or time.monotonic() + _PATIENCE_SECONDS
        self.interrupt(number, frame)

    def interrupt(self, _: int, frame: FrameType | None) -> None:
        if _CAN_WAIT and not _is_ours(frame) and time.monotonic() < self.deadline:
            signal.setitimer(signal.ITIMER_REAL, _MOMENT_SECONDS)  # which ends in SIGALRM
            return
        if _CAN_WAIT:
            signal.setitimer(signal.ITIMER_REAL, 0)  # once is enough: another would come amid the clearing up
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and handler != self.begin:  # a measurement has its own, which keeps what was measured
            handler(signal.SIGINT, frame)
        else:
            raise KeyboardInterrupt


def _is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_OURS)
