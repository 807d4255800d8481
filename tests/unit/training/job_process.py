"""A job in a process of its own: stopped amid its training, and what it has written of its losses."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from toolkit.training import progress

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3])}


def stopped_amid_training(command: Sequence[str]) -> int:
    """The exit code of a process that is told to end once it has trained a step."""
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if (shown := progress.parse(line)) and shown.stage == "train":
                process.send_signal(signal.SIGTERM)
                break
        process.communicate(timeout=120)
    return process.returncode


def kept_curve(job: Path) -> list[tuple[int, bool, float | None]]:
    """Step, whether it is of held-out data, and loss, as the job's folder keeps them."""
    lines = (job / "checkpoints" / progress.FILE).read_text().splitlines()
    found = [progress.parse(progress.PREFIX + line) for line in lines]
    return [(line.done, line.held_out, line.loss) for line in found if line and line.stage == "train"]
