"""An answer shorter than a DFlash block has no place for one: data of such answers alone is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from speculators.models.dflash.utils import select_anchors

from tests.unit.training.heads import job_for
from toolkit.errors import UsageError
from toolkit.training.data import _require_blocks
from toolkit.training.learn import lesson
from toolkit.training.samples import TRAIN, Sample, SampleWriter, States

PROMPT, DEPTH = 4, 5


def sample(answer: int) -> Sample:
    mask = torch.ones(PROMPT + answer, dtype=torch.uint8)
    mask[:PROMPT] = 0
    return Sample(torch.zeros(PROMPT + answer, dtype=torch.int32), mask)


def said(work: Path, *answers: int) -> list[str]:
    lines: list[str] = []
    with SampleWriter(work / TRAIN, "tokenizer") as writer:
        for answer in answers:
            writer.add(sample(answer))
    _require_blocks(job_for(work, method="dflash", depth=DEPTH, work=str(work)), lines.append)
    return lines


def has_anchor(answer: int) -> bool:
    """As training chooses them."""
    one = sample(answer)
    states = States(torch.zeros(len(one.input_ids), 3), torch.zeros(len(one.input_ids), 1))
    mask = lesson(one, states, torch.device("cpu")).loss_mask
    return bool(select_anchors(mask[None], 8, DEPTH + 1)[1].any())


@pytest.mark.parametrize("answer", range(1, 12))
def test_a_sample_counts_exactly_where_training_finds_a_place_in_it(tmp_path: Path, answer: int) -> None:
    if has_anchor(answer):
        assert said(tmp_path, answer) == []
    else:
        with pytest.raises(UsageError, match="no answer of the data is as long as a dflash block of 6 tokens"):
            said(tmp_path, answer, answer)


def test_how_many_are_long_enough_is_told(tmp_path: Path) -> None:
    (line,) = said(tmp_path, 2, 20, 3, 30)
    assert line == "2 of 4 samples are long enough for a dflash block of 6 tokens"
