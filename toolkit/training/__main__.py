"""`python -m toolkit.training JOB_FOLDER`: samples, hidden states, training and the head of a job, each taken up again.

Under torchrun every process trains; the first one of each machine prepares the data. Exit codes: 0 the head is there, 2
the user's input, 3 something outside (a full disk, the hub), 1 what was found wrong with the head, 143 stopped by
SIGTERM, with a checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import torch.distributed as dist
from loguru import logger
from transformers.utils import logging

from toolkit import documents
from toolkit.errors import PlatformError, ToolkitError, UnreadableModel, UsageError
from toolkit.training import progress
from toolkit.training.card import report_of, write_head
from toolkit.training.data import HELD_OUT, TRAIN, prepare_data, read_draft_vocabulary
from toolkit.training.head import layers_read
from toolkit.training.job import FILE, TrainingJob, read_job
from toolkit.training.loop import Data, TrainingStopped
from toolkit.training.progress import TrainingProgress
from toolkit.training.samples import read_samples
from toolkit.training.trainer import start_processes, train

STOPPED = 128 + signal.SIGTERM


class Signals:
    """Takes SIGTERM and SIGINT; says afterwards that it is time to stop. A second one ends the process at once."""

    def __init__(self) -> None:
        self._received = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def __call__(self) -> bool:
        return self._received

    def _receive(self, number: int, _: FrameType | None) -> None:
        self._received = True
        signal.signal(number, signal.SIG_DFL)


def run(job: TrainingJob) -> None:
    """Make the job's head, unless it is there already. Raises ToolkitError."""
    if (Path(job.head) / "config.json").is_file():
        return
    checkpoints, work = Path(job.checkpoints), Path(job.work)
    start_processes()

    def report(line: TrainingProgress) -> None:
        checkpoints.mkdir(parents=True, exist_ok=True)
        progress.report(line, checkpoints)

    if os.environ.get("LOCAL_RANK", "0") == "0":
        prepare_data(job, layers_read(job), report, say)
    if dist.is_initialized():
        dist.barrier()
    signals = Signals()  # before, SIGTERM simply ends it: what is complete on the disk stays
    data = Data(read_samples(work / TRAIN), read_samples(work / HELD_OUT))
    head, result = train(job, data, read_draft_vocabulary(job), stopping=signals)
    if not dist.is_initialized() or dist.get_rank() == 0:
        report(TrainingProgress("head", 0, 1))
        write_head(head, job, report_of(job, result))
        report(TrainingProgress("head", 1, 1))


def main(folder: Path) -> int:
    """Run the job of a folder; its exit code."""
    logger.disable("speculators")  # it logs every tensor that it looks for
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        run(_read(folder))
    except TrainingStopped as stopped:
        say(str(stopped))
        return STOPPED
    except ToolkitError as error:
        say(f"error: {error}")
        return next((code for kind, code in _CODES if isinstance(error, kind)), 1)
    return 0


_CODES = ((UsageError, 2), (PlatformError, 3), (UnreadableModel, 2))


def say(text: str) -> None:
    """A line of the job's log."""
    print(text, flush=True)  # noqa: T201


def _read(folder: Path) -> TrainingJob:
    try:
        return read_job(folder)
    except (OSError, documents.Unfit) as error:
        raise UsageError(
            f"{folder / FILE} cannot be used: {error}", hint="`toolkit train RECIPE` writes it."
        ) from error


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m toolkit.training JOB_FOLDER")
    sys.exit(main(Path(sys.argv[1])))
