"""A training that is interrupted ends as one that is not."""

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from tests.unit.training.heads import job_for
from toolkit.errors import PlatformError, UsageError
from toolkit.recipe.training_schema import TRAINED_METHODS
from toolkit.training import checkpoint, progress
from toolkit.training.acceptance import acceptance_of
from toolkit.training.arithmetic import compute_dtype
from toolkit.training.head import Head, build_head
from toolkit.training.job import TrainingJob
from toolkit.training.loop import (
    EVALUATIONS,
    Data,
    Loop,
    Result,
    TrainingDiverged,
    TrainingStopped,
    is_flat,
    rate,
    seed_of,
)
from toolkit.training.trainer import learner_of

CPU = torch.device("cpu")
STEPS = 6


class StopAfter:
    """Says after so many steps that it is time to stop, once."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left == 0


def job(target: Path, folder: Path, **changes: object) -> TrainingJob:
    settings = {"steps": STEPS, "batch_tokens": 60, "learning_rate": 0.01, "checkpoints": str(folder), "depth": 3}
    return job_for(target, **{**settings, "layers": 1, **changes})


def train(job: TrainingJob, data: Data, stop_after: int = 0) -> tuple[Head, Result]:
    head = build_head(job)
    learner = learner_of(head, job, 20, CPU)
    result = Loop(job, head, learner, data, CPU, stopping=StopAfter(stop_after)).run()
    assert result
    return head, result


def curve(folder: Path) -> list[tuple[int, bool, float | None, tuple[float, ...]]]:
    lines = (folder / progress.FILE).read_text().splitlines()
    found = [progress.parse(progress.PREFIX + line) for line in lines]
    return [(line.done, line.held_out, line.loss, line.accuracy) for line in found if line]


@pytest.mark.parametrize("method", [method for method in TRAINED_METHODS if method != "mtp"])
def test_stopped_and_started_again_it_ends_with_the_same_weights_and_the_same_curve(
    method: str, target: Path, data: Data, tmp_path: Path
) -> None:
    whole, result = train(job(target, tmp_path / "whole", method=method), data)
    parts = job(target, tmp_path / "parts", method=method)
    with pytest.raises(TrainingStopped, match=r"after step 2 of 6"):
        train(parts, data, stop_after=2)
    resumed, again = train(parts, data)

    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")
    assert [done for done, held_out, _, _ in curve(tmp_path / "whole") if not held_out] == [1, 2, 3, 4, 5, 6]
    assert again.evaluations == result.evaluations
    for name, weights in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], weights), name


@pytest.mark.parametrize(("seconds", "saved"), [(0, True), (600, False)])
def test_between_two_evaluations_it_is_saved_after_some_time(
    target: Path, data: Data, tmp_path: Path, seconds: int, saved: bool
) -> None:
    """The first is written when the second begins."""
    there: list[bool] = []

    def stopping() -> bool:
        there.append((tmp_path / checkpoint.FILE).exists())
        return len(there) == 3

    long = job(target, tmp_path, steps=4 * EVALUATIONS, checkpoint_seconds=seconds)
    head = build_head(long)
    learner = learner_of(head, long, 20, CPU)
    with pytest.raises(TrainingStopped):
        Loop(long, head, learner, data, CPU, stopping=stopping).run()
    assert (there[0], there[2]) == (False, saved)


def test_killed_without_a_word_it_goes_on_from_the_last_checkpoint(target: Path, data: Data, tmp_path: Path) -> None:
    """As after SIGKILL: steps after the checkpoint were reported, the last line is cut off, a file is half written."""
    train(job(target, tmp_path / "whole"), data)
    killed = job(target, tmp_path / "killed")
    with pytest.raises(TrainingStopped):
        train(killed, data, stop_after=3)
    kept = (tmp_path / "killed" / checkpoint.FILE).read_bytes()
    with pytest.raises(TrainingStopped):
        train(killed, data, stop_after=2)
    (tmp_path / "killed" / checkpoint.FILE).write_bytes(kept)
    (tmp_path / "killed" / ".checkpoint.pt.123").write_bytes(kept[:100])
    with (tmp_path / "killed" / progress.FILE).open("a") as file:
        file.write('{"stage": "tra')

    train(killed, data)

    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")


@pytest.mark.parametrize("other", [{"drafted": 5}, {}])
def test_figures_of_another_measure_are_forgotten(
    target: Path, data: Data, tmp_path: Path, other: dict[str, int]
) -> None:
    """Those of a step of other drafts, or of an earlier version, would be no bar for these."""
    going_on = job(target, tmp_path)
    with pytest.raises(TrainingStopped):
        train(going_on, data, stop_after=2)
    stored = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    kept = {name: value for name, value in stored.items() if name != "drafted"}
    torch.save({**kept, "evaluations": [(1, 99.0)], **other}, tmp_path / checkpoint.FILE)

    _, result = train(going_on, data)

    assert [step for step, _ in result.evaluations] == [2, 3, 4, 5, 6]
    assert max(length for _, length in result.evaluations) < 10


def test_the_head_learns_what_the_target_says(target: Path, data: Data, tmp_path: Path) -> None:
    _, result = train(job(target, tmp_path, steps=40), data)
    lengths = [length for _, length in result.evaluations]

    assert lengths[-1] > lengths[0]
    assert max(lengths) > 2
    assert acceptance_of(result.walks).length == max(lengths)


def test_a_loss_that_is_not_a_number_ends_it_and_keeps_the_checkpoint(target: Path, data: Data, tmp_path: Path) -> None:
    good = job(target, tmp_path)
    with pytest.raises(TrainingStopped):
        train(good, data, stop_after=2)
    broken = job(target, tmp_path, learning_rate=float("inf"))

    with pytest.raises(TrainingDiverged, match=r"step [34]: the loss is not a number") as error:
        train(broken, data)

    assert "training.learning_rate" in error.value.hint
    kept = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    assert kept["step"] == 2
    assert all(bool(weights.isfinite().all()) for weights in kept["weights"].values())


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a full disk, a write beyond that many bytes fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_on_a_full_disk_the_checkpoint_before_it_stays(target: Path, data: Data, tmp_path: Path) -> None:
    train(job(target, tmp_path / "whole"), data)
    full = job(target, tmp_path / "full")
    with pytest.raises(TrainingStopped):
        train(full, data, stop_after=1)
    with files_of_at_most(100_000), pytest.raises(PlatformError, match=r"\.pt could not be written: File too large"):
        train(full, data, stop_after=1)
    assert torch.load(tmp_path / "full" / checkpoint.FILE, weights_only=True)["step"] == 1
    assert not list((tmp_path / "full").glob(".*"))

    train(full, data)

    assert curve(tmp_path / "full") == curve(tmp_path / "whole")


def test_a_checkpoint_of_another_head_is_not_continued(target: Path, data: Data, tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        train(job(target, tmp_path), data, stop_after=1)

    with pytest.raises(UsageError, match=r"layers is 1 there and 2 here"):
        train(job(target, tmp_path, layers=2), data)
    for key, value in {"depth": 5, "draft_vocab_size": 7, "target_name": "org/other", "method": "eagle3"}.items():
        other = job(target, tmp_path).model_copy(update={key: value})
        with pytest.raises(UsageError, match=f"{key} is .* there and {value} here"):
            checkpoint.load(Path(other.checkpoints), other, {}, [])


def test_out_of_time_before_the_first_evaluation_it_ends_with_what_it_has(
    target: Path, data: Data, tmp_path: Path
) -> None:
    long = job(target, tmp_path, steps=400)
    with pytest.raises(TrainingStopped):
        train(long, data, stop_after=1)
    _, result = train(long.model_copy(update={"max_seconds": 0}), data)
    assert (result.ended, result.steps, result.best_step) == ("time", 1, 1)


def test_it_says_when_its_time_will_be_up_before_its_last_step(target: Path, data: Data, tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        train(job(target, tmp_path, steps=100_000, max_seconds=30), data, stop_after=6)
    *_, last = (tmp_path / progress.FILE).read_text().splitlines()
    found = progress.parse(progress.PREFIX + last)
    assert found
    assert found.stops_at is not None
    assert 6 <= found.stops_at < 100_000
    assert f"max_hours will be over near step {found.stops_at}" in found.text()


def test_it_ends_when_held_out_acceptance_is_flat() -> None:
    assert not is_flat([1.0, 1.5, 2.0, 2.2, 2.4, 2.5])
    assert is_flat([1.0, 2.0, 2.0, 2.005, 1.9, 2.0, 2.001])
    assert not is_flat([2.0, 2.0])


class Products(TorchDispatchMode):
    """Notes in what matrices are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(
        self, func: OpOverload[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            self.dtypes.add(args[0].dtype)
        return func(*args, **(kwargs or {}))


def test_neither_head_nor_optimizer_multiplies_in_what_the_cpu_has_no_arithmetic_for(
    target: Path, data: Data, tmp_path: Path
) -> None:
    with Products() as products:
        train(job(target, tmp_path), data)
    assert products.dtypes - {torch.float32} == {compute_dtype(CPU)} - {torch.float32}


def test_the_learning_rate_rises_then_falls_to_nothing() -> None:
    rates = [rate(step, 100, 0.05) for step in range(100)]

    assert rates[0] == pytest.approx(0.2)
    assert max(rates) == rates[4] == 1
    assert rates[-1] == pytest.approx(1 / 95)
    assert [rate(step, 1000, 0.0025) for step in (0, 1, 2)] == pytest.approx([0.5, 1.0, 1.0])


def test_progress_lines_are_json_that_a_log_and_a_file_both_have(
    target: Path, data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(job(target, tmp_path, steps=2), data)
    printed = [line.removeprefix(progress.PREFIX) for line in capsys.readouterr().out.splitlines()]

    assert printed == (tmp_path / progress.FILE).read_text().splitlines()
    first = json.loads(printed[0])
    assert (first["stage"], first["done"], first["total"]) == ("train", 1, 2)
    assert len(first["accuracy"]) == 3
    assert first["tokens_per_second"] > 0


def test_no_two_samples_share_their_random_numbers() -> None:
    seeds = [seed_of(seed, sample) for seed in (0, 1) for sample in range(1000)]
    assert len(set(seeds)) == len(seeds)
