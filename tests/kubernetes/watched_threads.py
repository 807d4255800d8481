"""Threads beside a test. What one of them raises ends the test at once: what waits for its work would wait in vain."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

Work = Callable[[], None]
_MOST = 100


@contextmanager
def watched_threads() -> Iterator[Callable[[Work], None]]:
    """What starts one. They are waited for at the end: what they do has to be over then."""
    failures: list[Exception] = []
    is_told, main = threading.Lock(), threading.get_ident()

    def watched(work: Work) -> None:
        try:
            work()
        except Exception as error:
            failures.append(error)
            if is_told.acquire(blocking=False):
                signal.pthread_kill(main, signal.SIGUSR1)
            raise

    def end_test(*_: object) -> None:
        # Of a class that nothing in the product takes for an answer of its own.
        raise AssertionError("what runs beside the test has failed") from failures[0]

    def start(work: Work) -> None:
        threads.submit(watched, work)

    before = signal.signal(signal.SIGUSR1, end_test)
    try:
        with ThreadPoolExecutor(_MOST) as threads:
            yield start
    finally:
        signal.signal(signal.SIGUSR1, before)
    if failures:  # it was told where Python lets nothing be raised, such as in a callback
        end_test()
