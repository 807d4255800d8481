"""Hidden states in windows: what is on the disk, what is computed again, and the same head either way."""

from __future__ import annotations

import gc
import json
import shutil
import signal
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from tests.unit.training.forked_processes import launch_forks
from tests.unit.training.heads import HIDDEN, VOCAB, job_for
from tests.unit.training.job_process import kept_curve, stopped_fork
from toolkit.errors import UsageError
from toolkit.recipe.known import catalogue_dir
from toolkit.training.__main__ import main
from toolkit.training.batches import plan_batches
from toolkit.training.extraction import prepare_window, prepared_window, require_exact, windows_of
from toolkit.training.job import TrainingJob
from toolkit.training.samples import (
    HELD_OUT,
    TRAIN,
    Sample,
    Samples,
    SampleWriter,
    States,
    content_digest,
    read_shard,
    states_file,
)

TOKEN_BYTES = 4 * HIDDEN * 4


def write(folder: Path, lengths: list[int]) -> Samples:
    with SampleWriter(folder, "tokenizer's digest", shard_tokens=20) as writer:
        for length in lengths:
            tokens = torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(length), dtype=torch.int32)
            writer.add(Sample(tokens, torch.ones(length, dtype=torch.uint8)))
    return Samples(folder)


def job_in(folder: Path, target: Path, **changes: object) -> TrainingJob:
    write(folder / "work" / TRAIN, [18, 3, 7, 30, 2, 25])
    write(folder / "work" / HELD_OUT, [9, 10])
    places = {"work": str(folder / "work"), "checkpoints": str(folder / "checkpoints"), "head": str(folder / "head")}
    return job_for(target, **{"dtype": "float32", "epochs": 2, "steps": None, "batch_tokens": 30, **places, **changes})


def gigabytes(tokens: int) -> float:
    return tokens * TOKEN_BYTES / 1e9


class Engine:
    """Stands for an engine that reads the target: its states are the tokens themselves. Counts what it is asked."""

    def __init__(self, *, refuses: str = "") -> None:
        self.sequences, self.starts, self.probes, self._refuses = 0, 0, 0, refuses
        self.number = "1.0"

    def version(self) -> str:
        return self.number

    def no_states(self, job: TrainingJob) -> str:
        return self._refuses

    @contextmanager
    def states(self, job: TrainingJob, layers: tuple[int, ...]) -> Iterator[_Source]:
        self.starts += 1
        yield _Source(self)


class _Source:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def states(self, sequences: list[Tensor]) -> States:
        self._engine.sequences += len(sequences)
        tokens = torch.cat(sequences).float()[:, None]
        return States(tokens.repeat(1, 3 * HIDDEN), tokens.repeat(1, HIDDEN))

    def require_exact(self, prompts: object) -> None:
        self._engine.probes += 1


def prepare(job: TrainingJob, step: int, engine: Engine, said: list[str] | None = None) -> Samples:
    said = [] if said is None else said
    prepare_window(job, (2, 3, 5), step, lambda _: None, said.append, engine)  # type: ignore[arg-type]
    return prepared_window(job)[1].train


def require_tokens_in_place(samples: Samples) -> None:
    for piece in samples.pieces:
        for index in piece:
            assert torch.equal(samples.states(index).last_hidden_states[:, 0], samples[index].input_ids.float())


def test_all_steps_are_one_window_where_everything_fits(tmp_path: Path, target: Path) -> None:
    job = job_in(tmp_path, target)
    train = Samples(Path(job.work) / TRAIN)
    (window,) = windows_of(job, train, 85)
    assert (window.first, window.end) == (0, len(plan_batches(train.lengths, job)))
    assert window.pieces == train.shards == ((0, 1), (2, 3), (4, 5))


@pytest.mark.parametrize("most", [84, 60, 50])
def test_windows_have_every_step_once_and_no_more_tokens_than_fit(tmp_path: Path, target: Path, most: int) -> None:
    job = job_in(tmp_path, target)
    train = Samples(Path(job.work) / TRAIN)
    batches, windows = plan_batches(train.lengths, job), windows_of(job, train, most)
    assert [step for one in windows for step in range(one.first, one.end)] == list(range(len(batches)))
    for one in windows:
        read = [index for batch in batches[one.first : one.end] for index in batch]
        assert [index for piece in one.pieces for index in piece] == read
        assert len(set(read)) == len(read)
        assert sum(train.lengths[index] for index in read) <= most


def test_a_step_with_many_tokens_is_written_in_several_files(tmp_path: Path, target: Path) -> None:
    job = job_in(tmp_path, target, batch_tokens=400_000)
    lengths = [20_000] * 30
    train = namedtuple("train", "lengths shards")(lengths, ())
    windows = windows_of(job, train, 500_000)  # type: ignore[arg-type]
    assert [[len(piece) for piece in one.pieces] for one in windows[:2]] == [[2] * 10, [2] * 5]
    batches = plan_batches(lengths, job)
    assert [index for piece in windows[0].pieces for index in piece] == batches[0]


def test_a_step_that_does_not_fit_is_refused(tmp_path: Path, target: Path) -> None:
    job = job_in(tmp_path, target)
    with pytest.raises(UsageError, match=r"and 20 fit\n.*states_gb"):
        windows_of(job, Samples(Path(job.work) / TRAIN), 20)


def test_a_window_takes_the_place_of_the_one_before(tmp_path: Path, target: Path) -> None:
    job = job_in(tmp_path, target, states="engine", states_gb=gigabytes(60 + 19))
    engine, said, windows = Engine(), list[str](), windows_of(job, Samples(tmp_path / "work" / TRAIN), 60)
    for number, window in enumerate(windows, 1):
        samples = prepare(job, window.first, engine, said)
        require_tokens_in_place(samples)
        assert f"for steps {window.first + 1} to {window.end}: part {number} of {len(windows)}" in said[-1]
        size = sum(path.stat().st_size for path in (tmp_path / "work").rglob("states-*"))
        assert size < 79 * TOKEN_BYTES + 4096
    assert (engine.starts, engine.probes) == (len(windows), len(windows))
    assert engine.sequences == 2 + 2 * 6  # the held-out ones once, the others once an epoch


def test_what_is_there_is_not_computed_again(tmp_path: Path, target: Path) -> None:
    job, engine = job_in(tmp_path, target, states="engine"), Engine()
    samples = prepare(job, 0, engine)
    states_file(samples.folder, 1).write_bytes(b"damaged")
    prepare(job, 0, engine)
    again = engine.sequences - 8
    assert again == len(samples.pieces[1])
    prepare(job, 0, engine)
    assert engine.starts == 2
    for number, changes in enumerate(({"dtype": "bfloat16"}, {"engine_args": {"quantization": "fp8"}}), 1):
        prepare(job.model_copy(update=changes), 0, engine)
        assert engine.sequences == 8 + again + 8 * number
    prepare(job, 0, engine)
    engine.number, before = "1.1", engine.sequences
    prepare(job, 0, engine)
    assert engine.sequences == before + 8


def test_states_of_transformers_say_what_they_always_said_and_another_source_makes_its_own(
    tmp_path: Path, target: Path
) -> None:
    """So a job that an earlier version began goes on with its states, whatever the engine's flags are."""
    job = job_in(tmp_path, target, dtype="auto", engine_args={"quantization": "fp8"})
    engine, samples = Engine(), prepare(job, 0, Engine())
    with safe_open(states_file(samples.folder, 1), framework="pt") as file:
        digest = content_digest(
            {"input_ids": read_shard(samples.folder, 1).input_ids, "offsets": torch.tensor([0, 7, 37])}
        )
        said = {"target": job.target, "dtype": "torch.float32", "layers": "[2, 3, 5]", "samples": digest}
        assert file.metadata() == said
    require_tokens_in_place(prepare(job.model_copy(update={"states": "engine"}), 0, engine))
    assert engine.sequences == 8


def test_a_bound_that_was_taken_out_of_the_recipe_binds_no_more(tmp_path: Path, target: Path) -> None:
    engine = Engine()
    bounded = job_in(tmp_path, target, states="engine", states_gb=gigabytes(60 + 19))
    prepare(bounded, 0, engine)
    assert prepared_window(bounded)[0].end < len(plan_batches(Samples(tmp_path / "work" / TRAIN).lengths, bounded))
    free = bounded.model_copy(update={"states_gb": None})
    prepare(free, 0, engine)
    assert prepared_window(free)[0].pieces == Samples(tmp_path / "work" / TRAIN).shards


def test_what_a_killed_engine_has_left_is_removed(tmp_path: Path, target: Path) -> None:
    job = job_in(tmp_path, target, states="engine")
    left = tmp_path / "work" / "states-x1y2"
    left.mkdir()
    (left / "request.safetensors").write_bytes(b"states")
    prepare(job, 0, Engine())
    assert not left.exists()


def test_of_a_target_whose_config_has_no_dtype_that_of_its_weights_counts(tmp_path: Path, target: Path) -> None:
    other = shutil.copytree(target, tmp_path / "target")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({key: config[key] for key in config if "dtype" not in key}))
    tensors = load_file(other / "model.safetensors")
    scales = {"a.scales": torch.zeros(2, dtype=torch.uint8)}
    save_file(scales | {name: one.bfloat16() for name, one in tensors.items()}, other / "model.safetensors")
    samples = prepare(job_in(tmp_path, other, dtype="auto", states="engine"), 0, Engine())
    assert samples.states(0).last_hidden_states.dtype == torch.bfloat16


def test_no_target_is_held_where_its_memory_is_given_back(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch is watched as it gives back what nobody holds: on a GPU the next process needs that."""

    def targets() -> set[int]:
        return {id(one) for one in gc.get_objects() if isinstance(one, PreTrainedModel)}

    before, held = targets(), list[set[int]]()
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: held.append(targets() - before))
    job = job_in(tmp_path, target)
    require_exact(job.model_copy(update={"target": str(catalogue_dir() / "tiny/models/target")}), (2, 3, 5), None)
    prepare(job, 0, Engine())
    assert held == [set(), set()]


def test_without_a_bound_the_states_take_what_the_disk_has(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, engine = job_in(tmp_path, target, states="engine"), Engine()
    usage = namedtuple("usage", "total used free")
    spare = 1024**3 + 32_768 * TOKEN_BYTES
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 0, spare + 79 * TOKEN_BYTES))
    prepare(job, 0, engine)
    assert engine.sequences < 8
    (tmp_path / "work" / "window.json").unlink()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 0, 10**9))
    for path in (tmp_path / "work").rglob("states-*"):
        path.unlink()
    with pytest.raises(UsageError, match=r"and 0 fit\n.*volume_gb"):
        prepare(job, 0, engine)


def test_an_engine_that_cannot_leaves_it_to_transformers_unless_it_was_asked_for(tmp_path: Path, target: Path) -> None:
    job, engine = job_in(tmp_path, target, states="engine"), Engine(refuses="no interface")
    with pytest.raises(UsageError, match=r"cannot give hidden states: no interface\n.*states: transformers"):
        prepare(job, 0, engine)
    samples = prepare(job.model_copy(update={"states": "transformers"}), 0, engine)
    assert samples.states(0).hidden_states.shape == (18, 3 * HIDDEN)


def test_states_that_are_not_numbers_are_refused(tmp_path: Path, target: Path) -> None:
    class Broken(Engine):
        @contextmanager
        def states(self, job: TrainingJob, layers: tuple[int, ...]) -> Iterator[_Source]:
            source = _Source(self)
            whole = source.states
            source.states = lambda sequences: States(*(one / 0 for one in vars(whole(sequences)).values()))  # type: ignore[method-assign]
            yield source

    with pytest.raises(UsageError, match=r"not finite numbers\n.*dtype"):
        prepare(job_in(tmp_path, target, states="engine"), 0, Broken())


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory, target: Path) -> TrainingJob:
    """EAGLE-3 drops no position at random, so that its curve does not depend on who learns which sample."""
    folder = tmp_path_factory.mktemp("counting")
    rows = [
        {"messages": [{"role": "user", "content": f"Count to {n}."}, {"role": "assistant", "content": "1 2 3 " * n}]}
        for n in range(4, 16)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {"steps": 8, "batch_tokens": 100, "learning_rate": 0.003, "layers": 1, "depth": 3, "held_out": 0.2}
    changes |= {"method": "eagle3", "responses": "keep", "num_speculative_tokens": 2, "max_length": 64}
    return job_for(target, **changes, data=(str(folder / "data.jsonl"),))


@pytest.fixture(scope="module")
def at_once(counting: TrainingJob, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job whose states are all on the disk."""
    folder = tmp_path_factory.mktemp("at-once")
    counting.write(folder)
    assert main(folder) == 0
    return folder


def in_windows(job: TrainingJob, folder: Path) -> Path:
    job.model_copy(update={"states_gb": gigabytes(400)}).write(folder)
    return folder


def test_in_windows_stopped_and_resumed_a_head_is_the_same_to_the_last_byte(
    counting: TrainingJob, at_once: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = in_windows(counting, tmp_path)
    assert stopped_fork(parts) == 128 + signal.SIGTERM
    assert main(parts) == 0
    assert "part 2 of" in capfd.readouterr().out
    assert kept_curve(parts) == kept_curve(at_once)
    weights = [(folder / "head" / "model.safetensors").read_bytes() for folder in (parts, at_once)]
    assert weights[0] == weights[1]


def test_several_processes_go_through_the_windows_together(
    counting: TrainingJob, at_once: Path, tmp_path: Path
) -> None:
    parts = in_windows(counting, tmp_path)
    assert main(parts, processes=2, launcher=launch_forks) == 0
    found, expected = kept_curve(parts), kept_curve(at_once)
    assert [line[:2] for line in found] == [line[:2] for line in expected]
    assert [line[2] for line in found] == pytest.approx([line[2] for line in expected], rel=2e-3)
    assert (parts / "head" / "config.json").is_file()
