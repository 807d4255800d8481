"""A job in a process of its own: stopped amid its training, and what it has written of its losses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from tests.unit.training.forked_processes import code_of, forks
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
    """The same of a fork of this process, which gets that signal at that step."""
    with forks(_train, [(folder, by, after)]) as (process,):
        return code_of(process)


def _train(folder: Path, by: signal.Signals, after: int) -> None:
    with redirect_stdout(_Signals(by, after)):
        sys.exit(main(folder))


class _Signals(StringIO):
    """Sends one signal to its own process as the step is told: another process would have to be quick enough."""

    def __init__(self, by: signal.Signals, after: int) -> None:
        super().__init__()
        self.by, self.after = by, after

    def write(self, text: str) -> int:
        if self.after and (shown := progress.parse(text)) and shown.stage == "train" and shown.done >= self.after:
            self.after = 0
            os.kill(os.getpid(), self.by)
        return super().write(text)


def _end_amid_training(lines: Iterable[str], process: int) -> None:
    for line in lines:
        if (shown := progress.parse(line)) and shown.stage == "train":
            os.kill(process, signal.SIGTERM)
            break


def kept_curve(job: Path) -> list[tuple[int, bool, float | None]]:
    """Step, whether it is of held-out data, and loss, as the job's folder keeps them."""
    lines = (job / "checkpoints" / progress.FILE).read_text().splitlines()
    found = [progress.parse(progress.PREFIX + line) for line in lines]
    return [(line.done, line.held_out, line.loss) for line in found if line and line.stage == "train"]
