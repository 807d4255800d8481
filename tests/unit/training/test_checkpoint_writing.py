"""Checkpoints are written while the head trains. A pipe in place of the file holds a write as long as a test wants."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import torch

from tests.unit.training.heads import job_for
from toolkit.errors import PlatformError
from toolkit.training import checkpoint, progress
from toolkit.training.head import build_head
from toolkit.training.job import TrainingJob
from toolkit.training.loop import EVALUATIONS, Data, Loop, TrainingStopped
from toolkit.training.trainer import learner_of

CPU = torch.device("cpu")
STEPS = 2 * EVALUATIONS
"""Every second step has an evaluation, and a checkpoint."""


def job(target: Path, folder: Path) -> TrainingJob:
    settings = {"steps": STEPS, "batch_tokens": 60, "learning_rate": 0.01, "layers": 1, "depth": 3}
    return job_for(target, **settings, checkpoints=str(folder))


def train(job: TrainingJob, data: Data, after_step: Callable[[int], bool]) -> None:
    """`after_step` is called with the number of steps that this run has done, and says whether to stop."""
    head, done = build_head(job), count(1)
    loop = Loop(job, head, learner_of(head, job, 20, CPU), data, CPU, stopping=lambda: after_step(next(done)))
    loop.run()


def stopped_after(steps: int, job: TrainingJob, data: Data) -> None:
    with pytest.raises(TrainingStopped):
        train(job, data, lambda done: done == steps)


def pipe(folder: Path) -> Path:
    """Where this process writes the folder's next checkpoint."""
    return folder / f".{checkpoint.FILE}.{os.getpid()}"


def steps_told(folder: Path) -> list[tuple[int, bool, float | None]]:
    lines = (folder / progress.FILE).read_text().splitlines()
    found = [progress.parse(progress.PREFIX + line) for line in lines]
    return [(line.done, line.held_out, line.loss) for line in found if line]


def state(path: Path) -> list[object]:
    """All that the next step depends on."""
    found = torch.load(path, weights_only=True)
    return [found["step"], found["weights"], [one["state"] for one in found["optimizers"]], found["evaluations"]]


def require_same(path: Path, other: Path) -> None:
    torch.testing.assert_close(state(path), state(other), rtol=0, atol=0)


def test_while_one_is_written_the_head_learns_on_and_it_holds_the_state_of_its_step(
    target: Path, data: Data, tmp_path: Path
) -> None:
    """A pipe cannot be brought to the disk: that ends the training."""
    stopped_after(2, job(target, tmp_path / "expected"), data)
    held = tmp_path / "held"
    reader = threading.Thread(target=lambda: (tmp_path / "read").write_bytes(pipe(held).read_bytes()))

    def after_step(done: int) -> bool:
        if done == 2:
            os.mkfifo(pipe(held))
        if done == 3:
            reader.start()
        return False

    with pytest.raises(PlatformError, match=r"checkpoint\.pt could not be written: Invalid argument"):
        train(job(target, held), data, after_step)

    reader.join()
    require_same(tmp_path / "read", tmp_path / "expected" / checkpoint.FILE)
    assert steps_told(held)[-1][0] <= 4


def killed_while_it_writes(job: TrainingJob, data: Data) -> None:
    def after_step(done: int) -> bool:
        if done == 1:
            os.mkfifo(pipe(Path(job.checkpoints)))
        if done == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    train(job, data, after_step)


def test_killed_before_one_is_written_it_goes_on_from_the_one_before_to_the_same_bytes(
    target: Path, data: Data, tmp_path: Path
) -> None:
    whole, killed = job(target, tmp_path / "whole"), job(target, tmp_path / "killed")
    stopped_after(5, whole, data)
    stopped_after(1, killed, data)
    process = multiprocessing.get_context("fork").Process(target=killed_while_it_writes, args=(killed, data))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert steps_told(tmp_path / "killed")[-1][0] == 3
    assert checkpoint.steps_done(tmp_path / "killed") == 1

    stopped_after(4, killed, data)

    require_same(tmp_path / "killed" / checkpoint.FILE, tmp_path / "whole" / checkpoint.FILE)
    assert steps_told(tmp_path / "killed") == steps_told(tmp_path / "whole")
    assert list((tmp_path / "killed").glob(".*")) == []


def test_a_training_that_is_stopped_says_so_only_with_its_checkpoint_on_the_disk(
    target: Path, data: Data, tmp_path: Path
) -> None:
    def after_step(done: int) -> bool:
        pipe(tmp_path).mkdir()
        return True

    with pytest.raises(PlatformError, match=r"checkpoint\.pt could not be written: Is a directory"):
        train(job(target, tmp_path), data, after_step)


def test_without_memory_for_a_copy_the_training_waits_until_all_is_written(target: Path, tmp_path: Path) -> None:
    """A pipe cannot be brought to the disk: who waits for the write hears of it at once."""
    os.mkfifo(pipe(tmp_path))
    reader = threading.Thread(target=pipe(tmp_path).read_bytes)
    reader.start()
    writer = checkpoint.Writer(tmp_path, job(target, tmp_path), lambda: 0)
    with pytest.raises(PlatformError):
        writer.save(checkpoint.Checkpoint(1, {"weight": torch.ones(3)}, [], [], 1.0), best=False)
    reader.join()


def test_what_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / f".{checkpoint.FILE}.1").mkdir()
    with pytest.raises(PlatformError, match="cannot be removed"):
        checkpoint.remove_unfinished(tmp_path)
