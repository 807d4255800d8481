"""A job in a process of its own: stopped amid its training, and what it has written of its losses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path

from tests.unit.training.processes import forks
from toolkit.training import progress
from toolkit.training.__main__ import main

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3])}


def stopped_amid_training(command: Sequence[str]) -> int:
    """The exit code of a process that is told to end once it has trained a step."""
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        _end_amid_training(process.stdout, process.pid)
        process.communicate(timeout=120)
    return process.returncode


def stopped_fork(folder: Path, by: signal.Signals = signal.SIGTERM, after: int = 1) -> int:
    """The same of a fork of this process, by another signal, or after more steps."""
    read, write = os.pipe()
    with forks(_train, [(folder, write)]) as (process,):
        os.close(write)
        with os.fdopen(read) as lines:
            assert process.pid
            _end_amid_training(lines, process.pid, by, after)
            lines.read()
        process.join()
        assert process.exitcode is not None
        return process.exitcode


def _train(folder: Path, log: int) -> None:
    with os.fdopen(log, "w") as lines, redirect_stdout(lines):
        code = main(folder)
    sys.exit(code)


def _end_amid_training(lines: Iterable[str], process: int, by: signal.Signals = signal.SIGTERM, after: int = 1) -> None:
    for line in lines:
        if (shown := progress.parse(line)) and shown.stage == "train" and shown.done >= after:
            os.kill(process, by)
            break


def kept_curve(job: Path) -> list[tuple[int, bool, float | None]]:
    """Step, whether it is of held-out data, and loss, as the job's folder keeps them."""
    lines = (job / "checkpoints" / progress.FILE).read_text().splitlines()
    found = [progress.parse(progress.PREFIX + line) for line in lines]
    return [(line.done, line.held_out, line.loss) for line in found if line and line.stage == "train"]
