"""`python -m toolkit.training JOB_FOLDER`: samples, hidden states, training and the head of a job, each taken up again.

One process prepares the data; with several GPUs it then starts one for each, and all of them train. Where not all
hidden states fit on the disk at once, that is done for one window of steps after the other; where heads are compared,
for one head after the other, and what is prepared for the first is there for all. Exit codes: 0 the head is there, 2
the user's input, 3 something outside (a full disk, the hub), 1 what was found wrong with the head, 143 stopped by
SIGTERM, with a checkpoint.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import torch.distributed as dist
from loguru import logger
from transformers.utils import logging

from toolkit import documents
from toolkit.engines.registry import training_engine
from toolkit.errors import PlatformError, ToolkitError, UnreadableModel, UsageError
from toolkit.files import write_whole, writing
from toolkit.training import launch, progress
from toolkit.training.batches import busy_share, plan_batches
from toolkit.training.card import report_of, write_head
from toolkit.training.data import prepare_data, read_draft_vocabulary
from toolkit.training.extraction import prepare_window, prepared_window
from toolkit.training.head import layers_read, require_size, within_positions
from toolkit.training.job import FILE, TrainingJob, read_job
from toolkit.training.loop import TrainingStopped
from toolkit.training.progress import Report, TrainingProgress
from toolkit.training.states import with_local_target
from toolkit.training.trainer import train

Launcher = Callable[[Path, int, launch.Machines, str], int]
"""Trains the head of a folder's job in processes of this machine, as `launch.launch` does; their exit code."""


class Signals:
    """Takes SIGTERM and SIGINT; says afterwards that it is time to stop. A second one ends the process at once."""

    def __init__(self) -> None:
        self._received = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def __call__(self) -> bool:
        return self._received

    def leave(self) -> None:
        """Take them no longer. Raises TrainingStopped if one came after the last step."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if self._received:
            raise TrainingStopped("the training was stopped", hint="Start it again: it continues there.")

    def _receive(self, number: int, _: FrameType | None) -> None:
        self._received = True
        signal.signal(number, signal.SIG_DFL)


def run(job: TrainingJob) -> None:
    """Make the job's head in this process, unless it is there already. Raises ToolkitError."""
    if job.is_done:
        return
    failed: dict[str, str] = {}
    for head in _missing(job):
        try:
            prepare(head)
            while (step := train_window(head, goes_on=bool(job.compare))) is not None:
                prepare_next(head, step)
        except UsageError as error:
            if not job.compare:
                raise
            failed[head.method] = error.message
            say(f"the {head.method} head fails: {error.message}")
    _require_all(job, failed)
    collect(job)


def _require_all(job: TrainingJob, failed: Mapping[str, str]) -> None:
    """Raise UsageError with the heads that failed; the others are kept."""
    if failed:
        kept = ", ".join(head.head for head in job.heads if head.is_done) or "none"
        hint = f"Those that are trained are kept: {kept}. Correct what is said, or compare without what failed; where "
        hint += "that changes the recipe's `training` or its `--compare`, it is another job, and its answers are new."
        raise UsageError("; ".join(f"the {method} head: {why}" for method, why in failed.items()), hint=hint)


def _missing(job: TrainingJob) -> Iterator[TrainingJob]:
    """A job for each head that is not there yet."""
    for number, head in enumerate(job.heads, 1):
        if not head.is_done:
            if job.compare:
                say(f"head {number} of {len(job.heads)}: {head.method}, {head.layers} layers, depth {head.depth}")
            yield head


def collect(job: TrainingJob) -> None:
    """Put the heads that are compared into the job's folder `head`, all of them or none."""
    if not job.compare:
        return
    out = Path(job.head)
    out.parent.mkdir(parents=True, exist_ok=True)
    with writing(out.parent), TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        folder = Path(scratch) / out.name
        for head in job.heads:
            shutil.copytree(head.head, folder / head.method)
        folder.replace(out)


def prepare(job: TrainingJob) -> None:
    """Make the job's samples and hidden states. SIGTERM simply ends it: what is complete on the disk stays.

    A head before it may have trained in this process.
    """
    launch.free_gpus()
    require_size(job)  # before the target answers anything
    prepare_data(job, layers_read(job), _reporter(job), say, training_engine())


def prepare_next(job: TrainingJob, step: int) -> None:
    """Make the hidden states that the steps from there on read. The head may have trained in this process."""
    launch.free_gpus()
    prepare_window(job, layers_read(job), step, _reporter(job), say, training_engine())


def train_window(job: TrainingJob, goes_on: bool = False) -> int | None:
    """Train on the states that are prepared, in this process or as one of several; the step to go on from with others.

    None if the training has ended: then the first process has written the head. `goes_on` says that the process trains
    other heads after it. Raises TrainingStopped, also with the head if it was to go on.
    """
    signals = Signals()
    window, data = prepared_window(job)
    try:
        head, result = train(job, data, read_draft_vocabulary(job), end=window.end, stopping=signals)
    except UsageError:
        signals.leave()
        raise
    if result is None:
        signals.leave()
        return window.end
    if not dist.is_initialized() or dist.get_rank() == 0:
        report = _reporter(job)
        report(TrainingProgress("head", 0, 1))
        if job.answers is not None:  # what came back of it
            shutil.rmtree(job.head, ignore_errors=True)
        write_head(head, job, report_of(job, result), training_engine())
        job.note_head()
        report(TrainingProgress("head", 1, 1))
    if goes_on:
        signals.leave()
    return None


def _reporter(job: TrainingJob) -> Report:
    return partial(progress.report, folder=Path(job.checkpoints))


def main(folder: Path, processes: int | None = None, method: str = "", launcher: Launcher = launch.launch) -> int:
    """Run the job of a folder, in one process for each GPU or in so many `processes`; its exit code.

    A process that is one of several trains the head of that `method`.
    """
    logger.disable("speculators")  # it logs every tensor that it looks for
    logging.disable_progress_bar()
    try:
        given = with_local_target(_read(folder))
        job = within_positions(given)
        if job.max_length < given.max_length:
            say(f"sequences are cut to the {job.max_length:,} tokens that the target has positions for")
        return _run(folder, job, processes or launch.gpus(), method, launcher)
    except TrainingStopped as stopped:
        say(str(stopped))
        return launch.STOPPED
    except ToolkitError as error:
        say(f"error: {error}")
        return next((code for kind, code in _CODES if isinstance(error, kind)), 1)


def _run(folder: Path, job: TrainingJob, processes: int, method: str, launcher: Launcher) -> int:
    if launch.is_worker():
        launch.end_with_parent()
        step = train_window(next(head for head in job.heads if head.method == method))
        if step is not None and launch.is_first_here():
            write_whole(_passed(job), str(step))
        return 0
    machines = launch.job_machines()
    if processes * len(machines.hosts) == 1 or job.is_done:
        run(job)
        return 0
    failed: dict[str, str] = {}
    for head in _missing(job):
        try:
            prepare(head)
            code = _launch(folder, head, processes, machines, launcher)
        except UsageError as error:
            if not job.compare:
                raise
            failed[head.method] = error.message
            continue
        if code == _USER and job.compare:
            failed[head.method] = "its error is in the log above"
        elif code:
            return code
    _require_all(job, failed)
    if machines.this == 0:  # where the first process has written the heads
        collect(job)
    return 0


def _launch(folder: Path, job: TrainingJob, processes: int, machines: launch.Machines, launcher: Launcher) -> int:
    """Train in processes, window by window; their exit code."""
    _tell_waiting(job, processes * len(machines.hosts))
    passed = _passed(job)
    while True:
        passed.unlink(missing_ok=True)
        code = launcher(folder, processes, machines, job.method)
        if code or not passed.is_file():
            return code
        prepare_next(job, int(passed.read_text()))


def _tell_waiting(job: TrainingJob, processes: int) -> None:
    """Say how much of their time processes wait for each other, and what to do where that is much."""
    lengths = prepared_window(job)[1].train.lengths
    busy = busy_share(plan_batches(lengths, job), lengths, processes)
    say(f"{processes} processes learn {busy:.0%} of the tokens that they could if none waited for another")
    if busy < _BUSY:
        say(f"with more than {job.batch_tokens:,} tokens a step (`training.batch_tokens`) they wait less")


def _passed(job: TrainingJob) -> Path:
    """Where the processes of this machine say from which step they go on: a checkpoint may lie on another one."""
    return Path(job.work) / "passed"


_BUSY = 0.85
_USER = 2
_CODES = ((UsageError, _USER), (PlatformError, 3), (UnreadableModel, _USER))


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
    parser.add_argument("--method", default="", help="of a process that is one of several: the head that it trains")
    arguments = parser.parse_args()
    sys.exit(main(arguments.folder, arguments.processes, arguments.method))
