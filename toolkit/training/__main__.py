"""`python -m toolkit.training JOB_FOLDER`: samples, hidden states, training and the head of a job, each taken up again.

One process prepares the data; with several GPUs it then starts one for each, and all of them train. Exit codes: 0 the
head is there, 2 the user's input, 3 something outside (a full disk, the hub), 1 what was found wrong with the head, 143
stopped by SIGTERM, with a checkpoint.
"""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType

import torch.distributed as dist
from loguru import logger
from transformers.utils import logging

from toolkit import documents
from toolkit.engines.registry import training_engine
from toolkit.errors import PlatformError, ToolkitError, UnreadableModel, UsageError
from toolkit.training import launch, progress
from toolkit.training.card import report_of, write_head
from toolkit.training.data import HELD_OUT, TRAIN, Report, prepare_data, read_draft_vocabulary
from toolkit.training.head import layers_read, within_positions
from toolkit.training.job import FILE, TrainingJob, read_job
from toolkit.training.loop import Data, TrainingStopped
from toolkit.training.progress import TrainingProgress
from toolkit.training.samples import Samples
from toolkit.training.states import with_local_target
from toolkit.training.trainer import train


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
    """Make the job's head in this process, unless it is there already. Raises ToolkitError."""
    if not _is_done(job):
        prepare(job)
        train_head(job)


def _is_done(job: TrainingJob) -> bool:
    return (Path(job.head) / "config.json").is_file()


def prepare(job: TrainingJob) -> None:
    """Make the job's samples and hidden states. SIGTERM simply ends it: what is complete on the disk stays."""
    prepare_data(job, layers_read(job), _reporter(job), say, training_engine())


def train_head(job: TrainingJob) -> None:
    """Train on what was prepared, in this process or as one of several; the first one writes the head."""
    signals, work = Signals(), Path(job.work)
    data = Data(Samples(work / TRAIN), Samples(work / HELD_OUT))
    head, result = train(job, data, read_draft_vocabulary(job), stopping=signals)
    if not dist.is_initialized() or dist.get_rank() == 0:
        report = _reporter(job)
        report(TrainingProgress("head", 0, 1))
        write_head(head, job, report_of(job, result), training_engine())
        report(TrainingProgress("head", 1, 1))


def _reporter(job: TrainingJob) -> Report:
    return partial(progress.report, folder=Path(job.checkpoints))


def main(folder: Path, processes: int | None = None) -> int:
    """Run the job of a folder, in one process for each GPU or in so many `processes`; its exit code."""
    logger.disable("speculators")  # it logs every tensor that it looks for
    logging.disable_progress_bar()
    try:
        given = with_local_target(_read(folder))
        job = within_positions(given)
        if job.max_length < given.max_length:
            say(f"sequences are cut to the {job.max_length:,} tokens that the target has positions for")
        return _run(folder, job, processes or launch.gpus())
    except TrainingStopped as stopped:
        say(str(stopped))
        return launch.STOPPED
    except ToolkitError as error:
        say(f"error: {error}")
        return next((code for kind, code in _CODES if isinstance(error, kind)), 1)


def _run(folder: Path, job: TrainingJob, processes: int) -> int:
    if launch.is_worker():
        launch.end_with_parent()
        train_head(job)
        return 0
    machines = launch.job_machines()
    if processes * len(machines.hosts) > 1 and not _is_done(job):
        prepare(job)
        return launch.launch(folder, processes, machines)
    run(job)
    return 0


_CODES = ((UsageError, 2), (PlatformError, 3), (UnreadableModel, 2))


def say(text: str) -> None:
    """A line of the job's log."""
    print(text, flush=True)  # noqa: T201


def _read(folder: Path) -> TrainingJob:
    try:
        return read_job(folder)
    except (OSError, documents.Unfit) as error:
        hint = "`toolkit train RECIPE` writes it."
        raise UsageError(f"{folder / FILE} cannot be used: {error}", hint=hint) from error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m toolkit.training")
    parser.add_argument("folder", type=Path, help="the folder of the job, with its job.json")
    parser.add_argument("--processes", type=int, help="processes that train together; default: one for each GPU")
    arguments = parser.parse_args()
    sys.exit(main(arguments.folder, arguments.processes))
