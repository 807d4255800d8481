"""Training samples on disk: what is written is read again, whole or not at all."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from toolkit.errors import PlatformError, UsageError
from toolkit.training.samples import (
    Origin,
    Sample,
    Samples,
    SampleWriter,
    states_file,
    write_tensors,
)


def sample(*tokens: int) -> Sample:
    """Of which the last token is the target's."""
    ids = torch.tensor(tokens, dtype=torch.int32)
    return Sample(ids, (torch.arange(len(ids)) == len(ids) - 1).to(torch.uint8))


SAMPLES = [sample(1, 2, 3), sample(4, 5), sample(6, 7, 8, 9), sample(10)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four samples in two shards."""
    with SampleWriter(tmp_path / "train", "tokenizer's digest", shard_tokens=5) as writer:
        for one in SAMPLES:
            writer.add(one)
    return tmp_path / "train"


def test_samples_come_back_in_their_order_and_by_index(folder: Path) -> None:
    samples = Samples(folder)
    assert [one.input_ids.tolist() for one in samples] == [one.input_ids.tolist() for one in SAMPLES]
    assert [one.loss_mask.tolist() for one in (samples[0], samples[1])] == [[0, 0, 1], [0, 1]]
    assert samples[-1].input_ids.tolist() == [10]
    assert (samples[0].input_ids.dtype, samples[0].loss_mask.dtype) == (torch.int32, torch.uint8)
    assert samples.lengths == [3, 2, 4, 1]
    with pytest.raises(IndexError):
        samples[4]


def test_each_sample_says_of_which_conversation_and_source_it_is(tmp_path: Path) -> None:
    wanted = [Origin(7, "chats.jsonl"), Origin(7, "chats.jsonl"), Origin(3, "code.jsonl"), Origin(9, "chats.jsonl")]
    with SampleWriter(tmp_path, "tokenizer's digest", shard_tokens=5) as writer:
        for one, origin in zip(SAMPLES, wanted, strict=True):
            writer.add(one, origin)
    samples = Samples(tmp_path)
    assert samples.contents.shards == 2
    assert [samples.origin(index) for index in range(4)] == wanted


def test_samples_of_an_earlier_version_are_conversations_of_their_own(folder: Path) -> None:
    for path in folder.glob("samples-*"):
        tensors = load_file(path)
        del tensors["origins"]
        save_file(tensors, path)
    samples = Samples(folder)
    assert [samples.origin(index) for index in range(4)] == [Origin(index) for index in range(4)]


@pytest.mark.parametrize("origins", [[[0, 1]], [[-1, 0], [0, 0]], [[0, 0], [1, 1]]])
def test_origins_that_are_not_those_of_the_samples_are_refused(folder: Path, origins: list[list[int]]) -> None:
    path = folder / "samples-00000.safetensors"
    save_file({**load_file(path), "origins": torch.tensor(origins)}, path)
    with pytest.raises(UsageError, match="its origins are not those of its samples"):
        Samples(folder)


def test_the_contents_say_what_there_is(folder: Path) -> None:
    contents = Samples(folder).contents
    assert (contents.tokenizer, contents.shards, contents.samples) == ("tokenizer's digest", 2, 4)
    assert (contents.tokens, contents.trained_tokens) == (10, 4)


def test_each_sample_has_its_own_states(folder: Path) -> None:
    for shard, tokens in enumerate((5, 5)):
        states = torch.arange(tokens)[:, None] + 10.0 * shard
        write_tensors(
            states_file(folder, shard),
            {"hidden_states": states.expand(-1, 6).contiguous(), "last_hidden_states": states},
            {},
        )
    samples = Samples(folder)
    assert [samples.states(index).last_hidden_states[:, 0].tolist() for index in range(4)] == [
        [0, 1, 2],
        [3, 4],
        [10, 11, 12, 13],
        [14],
    ]
    assert samples.states(2).hidden_states.shape == (4, 6)


def test_an_interrupted_writer_leaves_a_folder_that_is_not_taken_for_complete(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), SampleWriter(folder, "tokenizer's digest"):
        1 / 0  # noqa: B018 - anything that interrupts
    with pytest.raises(UsageError, match=r"train are not complete: index\.json is missing\n.*continues"):
        Samples(folder)


@pytest.mark.parametrize("name", ["samples-00001.safetensors", "index.json"])
def test_a_damaged_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-20])
    with pytest.raises(UsageError, match=f"{name}.*\n.*Remove that file"):
        list(Samples(folder))


def test_missing_states_are_named(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"states-00000\.safetensors is missing"):
        Samples(folder).states(0)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow beyond 4 kB: the system refuses the rest, as a full disk does.

    No fixture: pytest tells a test's result before it takes its fixtures down, perhaps into a file.
    """
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_said_and_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    def write() -> None:
        with SampleWriter(tmp_path, "tokenizer's digest", shard_tokens=500) as writer:
            writer.add(sample(*range(500)))
            writer.add(sample(*range(5000)))

    with (
        full_disk(),
        pytest.raises(PlatformError, match=r"samples-00001\.safetensors could not be written: .*\n.*start again"),
    ):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["samples-00000.safetensors"]
