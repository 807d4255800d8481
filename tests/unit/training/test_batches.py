"""Which samples a step learns, and how they are dealt to ranks: none waits long for another."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.unit.training.heads import job_for
from toolkit.training.batches import busy_share, deal, plan_batches
from toolkit.training.plan import GPU_TOKENS

TARGET = Path("target")


def lengths_of(median: int, longest: int, count: int = 6000) -> list[int]:
    """Log-normal, cut at the longest sequence."""
    drawn = torch.randn(count, generator=torch.Generator().manual_seed(median)) * 0.8 + math.log(median)
    return [min(longest, round(length)) for length in drawn.exp().tolist()]


def test_every_epoch_has_every_sample_once() -> None:
    batches = plan_batches([5, 50, 7, 9, 30, 3], job_for(TARGET, steps=None, epochs=2, batch_tokens=20))
    seen = [index for batch in batches for index in batch]

    assert sorted(seen[:6]) == sorted(seen[6:]) == list(range(6))
    assert seen[:6] != seen[6:]


@pytest.mark.parametrize("ranks", [1, 2, 3, 16])
def test_ranks_have_every_sample_of_a_step_once(ranks: int) -> None:
    shares = deal([4, 2, 0, 1, 3], [900, 20, 700, 700, 40], ranks)
    assert len(shares) == ranks
    assert sorted(place for share in shares for place in share) == [0, 1, 2, 3, 4]


def test_one_rank_learns_in_the_steps_own_order() -> None:
    assert deal([4, 2, 0], [5, 0, 70, 0, 9], 1) == [[0, 1, 2]]


@pytest.mark.parametrize("longest", [4096, 8192])
@pytest.mark.parametrize("median", [900, 3900])
@pytest.mark.parametrize("ranks", [8, 16])
def test_with_the_default_step_ranks_do_at_least_85_percent_of_what_they_could(
    ranks: int, median: int, longest: int
) -> None:
    lengths = lengths_of(median, longest)
    job = job_for(TARGET, steps=None, epochs=2, batch_tokens=GPU_TOKENS * ranks)
    assert busy_share(plan_batches(lengths, job), lengths, ranks) >= 0.85


def test_what_ranks_do_is_counted_against_the_one_that_has_most() -> None:
    lengths = [8, 4, 4, 6]
    assert busy_share([[0, 1, 2], [3]], lengths, 2) == pytest.approx((16 + 6) / (2 * (8 + 6)))
