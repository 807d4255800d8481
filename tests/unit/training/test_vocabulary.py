"""A reduced draft vocabulary holds the most frequent tokens, and always the special ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from toolkit.errors import UsageError
from toolkit.training.samples import Sample, SampleWriter
from toolkit.training.vocabulary import count_tokens, draft_vocabulary, head_vocabulary, read_vocabulary

COUNTS = torch.tensor([0, 9, 0, 5, 7, 0, 1])


def test_draft_ids_and_offsets_give_the_targets_ids() -> None:
    vocabulary = draft_vocabulary(COUNTS, 4, always=[2])
    assert (torch.arange(4) + vocabulary.d2t).tolist() == [1, 2, 3, 4]
    assert vocabulary.t2d.nonzero().flatten().tolist() == [1, 2, 3, 4]
    assert vocabulary.coverage(COUNTS) == pytest.approx(21 / 22)


def test_tokens_that_never_occur_fill_the_vocabulary() -> None:
    vocabulary = draft_vocabulary(COUNTS, 6, always=[])
    assert (torch.arange(6) + vocabulary.d2t).tolist() == [0, 1, 2, 3, 4, 6]


@pytest.mark.parametrize(("size", "kept"), [(2, [0, 2]), (7, [0, 1, 2, 3, 4, 5, 6])])
def test_the_smallest_size_has_the_special_tokens_alone_and_the_largest_has_all(size: int, kept: list[int]) -> None:
    assert draft_vocabulary(COUNTS, size, always=[0, 2]).t2d.nonzero().flatten().tolist() == kept


@pytest.mark.parametrize("size", [0, 1, 8])
def test_an_impossible_size_is_said_with_those_that_are_possible(size: int) -> None:
    with pytest.raises(UsageError, match=r"draft_vocab_size from 2 \(special tokens\) to 7"):
        draft_vocabulary(COUNTS, size, always=[0, 1])


def test_only_the_targets_own_tokens_are_counted(tmp_path: Path) -> None:
    with SampleWriter(tmp_path, "tokenizer's digest") as writer:
        writer.add(Sample(torch.tensor([1, 1, 4, 3], dtype=torch.int32), torch.tensor([0, 0, 1, 1], dtype=torch.uint8)))
        writer.add(Sample(torch.tensor([1, 4], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.uint8)))
    assert count_tokens(tmp_path, 6).tolist() == [0, 0, 0, 1, 2, 0]


def test_the_maps_are_read_again(tmp_path: Path) -> None:
    vocabulary = draft_vocabulary(COUNTS, 3, always=[])
    vocabulary.write(tmp_path)
    assert torch.equal(read_vocabulary(tmp_path, 7).d2t, vocabulary.d2t)
    assert torch.equal(read_vocabulary(tmp_path, 7).t2d, vocabulary.t2d)


def test_a_head_that_is_continued_keeps_its_maps(tmp_path: Path) -> None:
    assert head_vocabulary(tmp_path, 7) is None
    chosen = draft_vocabulary(COUNTS, 4, always=[])
    save_file({"fc.weight": torch.ones(1)}, tmp_path / "a.safetensors")
    save_file({"d2t": chosen.d2t}, tmp_path / "b.safetensors")
    found = head_vocabulary(tmp_path, 7)
    assert found
    assert torch.equal(found.d2t, chosen.d2t)
    assert torch.equal(found.t2d, chosen.t2d)
