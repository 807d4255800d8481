"""Functions in processes of their own, which is how GPUs train together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any


def in_processes(function: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
    """Call it with each of the arguments, all at once; none may fail."""
    processes = [multiprocessing.get_context("fork").Process(target=function, args=one) for one in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(arguments)
