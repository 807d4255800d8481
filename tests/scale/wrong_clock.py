"""Deploys one endpoint again and again, by a clock that is wrong: a process of test_one_at_a_time.py.

`python wrong_clock.py RECIPE SEED SPEED`; a line for each attempt says what came of it. All time passes SPEED times as
fast. What the product may not trust, the time of day, is up to ten minutes off, and jumps.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

RECIPE, SEED, SPEED = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
MOST_OFF, LONGEST_PAUSE = 600.0, 600.0
LENGTHS = range(256, 1024, 8)
drawn = random.Random(SEED)


class WrongClock:
    """The time of day as this machine has it."""

    off = 0.0

    def jump(self) -> None:
        self.off = drawn.uniform(-MOST_OFF, MOST_OFF)

    def __call__(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.off


def pass_fast(clock: WrongClock) -> None:
    """Before the product is loaded, which reads these clocks."""
    real_clock, real_sleep, real_wait = time.clock_gettime, time.sleep, threading.Event.wait

    def clock_gettime(which: int) -> float:
        return real_clock(which) * (SPEED if which == time.CLOCK_BOOTTIME else 1)

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        return real_wait(event, timeout and timeout / SPEED)

    time.clock_gettime = clock_gettime
    time.time = clock
    time.sleep = lambda seconds: real_sleep(seconds / SPEED)
    threading.Event.wait = wait  # type: ignore[method-assign]


def say_who_sends(request: Any, **_: object) -> None:
    """When it was sent: a process may be stopped before it arrives."""
    request.headers["X-Deployer"] = f"{os.getpid()} {time.clock_gettime(time.CLOCK_BOOTTIME)}"


def main() -> None:
    clock = WrongClock()
    pass_fast(clock)
    import boto3

    import toolkit
    from toolkit.apply.progress import Silent
    from toolkit.errors import PlatformError

    made = boto3.Session

    def session(**options: Any) -> boto3.Session:
        one = made(**options)
        one.events.register_last("before-send", say_who_sends)
        return one

    boto3.Session = session  # type: ignore[assignment,misc]
    text = RECIPE.read_text()
    while True:
        clock.jump()
        RECIPE.write_text(text.replace("max_model_len: 1024", f"max_model_len: {drawn.choice(LENGTHS)}"))
        try:
            toolkit.deploy(RECIPE, progress=Silent())
            print("deployed", flush=True)
        except PlatformError as error:
            time.sleep(drawn.uniform(0, LONGEST_PAUSE))
            print("refused" if "is being changed by" in error.message else f"failed: {error.message}", flush=True)


main()
