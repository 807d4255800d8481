"""Functions in processes of their own, which is how GPUs train together.

They are forks of the tests' process, which has imported all that trains: that takes a new one about ten seconds. It has
one thread of OpenMP, as `heads` sets it: a fork of more would wait for those that it has not got.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toolkit.training.__main__ import main
from toolkit.training.launch import Machines, environment_of, exit_code


@contextmanager
def forks(function: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> Iterator[list[ForkProcess]]:
    """Call it with each of the arguments, all at once. None is left: Python would wait for it when the tests end."""
    processes = [multiprocessing.get_context("fork").Process(target=function, args=one) for one in arguments]
    try:
        for process in processes:
            process.start()
        yield processes
    finally:
        for process in processes:
            if process.pid:
                process.kill()
                process.join()


def in_processes(function: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
    """Call it with each of the arguments, all at once; none may fail."""
    with forks(function, arguments) as processes:
        codes = [code_of(process) for process in processes]
    assert codes == [0] * len(arguments)


def launch_forks(folder: Path, count: int, machines: Machines, method: str) -> int:
    """As `toolkit.training.launch.launch` does it, which starts programs instead: one that fails ends all."""
    with TemporaryDirectory(prefix="toolkit-") as scratch:
        variables = [environment_of(rank, count, machines, Path(scratch)) for rank in range(count)]
        with forks(_train_as_worker, [(folder, method, one) for one in variables]) as processes:
            running, failed = {process.sentinel: process for process in processes}, list[int]()
            while running and not failed:
                ended = [running.pop(sentinel) for sentinel in wait(list(running)) if isinstance(sentinel, int)]
                failed = [code for process in ended if (code := code_of(process))]
            return exit_code(failed)


def code_of(process: ForkProcess) -> int:
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _train_as_worker(folder: Path, method: str, variables: dict[str, str]) -> None:
    os.environ.update(variables)
    sys.exit(main(folder, method=method))
