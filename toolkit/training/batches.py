"""Which samples every optimizer step learns, and which of them each rank.

The samples of a step do not depend on the number of ranks, so that a training can go on with another one. Ranks wait
for the one with most to do: a step's samples are dealt by their tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from toolkit.errors import UsageError
from toolkit.training.job import TrainingJob


def plan_batches(lengths: Sequence[int], job: TrainingJob) -> list[list[int]]:
    """The samples of every step, each sample once an epoch. Raises UsageError without samples."""
    if not lengths:
        raise UsageError("there are no samples to learn from", hint="Give more conversations in training.data.")
    generator = torch.Generator().manual_seed(job.seed)
    batches: list[list[int]] = []
    epochs = 0
    while len(batches) < job.steps if job.steps else epochs < (job.epochs or 1):
        batches += _batches(torch.randperm(len(lengths), generator=generator).tolist(), lengths, job.batch_tokens)
        epochs += 1
    return batches[: job.steps]


def _batches(order: Sequence[int], lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """The samples in that order, as many at a time as have about so many tokens."""
    number = [(before // tokens) for before in accumulate((lengths[index] for index in order), initial=0)]
    batches: list[list[int]] = [[] for _ in range(number[len(order) - 1] + 1)]
    for index, batch in zip(order, number, strict=False):
        batches[batch].append(index)
    return [batch for batch in batches if batch]


def deal(batch: Sequence[int], lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """For each rank its places in the batch: the longest sample first, each to the rank with the fewest tokens."""
    shares: list[list[int]] = [[] for _ in range(ranks)]
    tokens = [0] * ranks
    for place in sorted(range(len(batch)), key=lambda place: -lengths[batch[place]]):
        rank = tokens.index(min(tokens))
        shares[rank].append(place)
        tokens[rank] += lengths[batch[place]]
    return [sorted(share) for share in shares]


def busy_share(batches: Sequence[Sequence[int]], lengths: Sequence[int], ranks: int) -> float:
    """Tokens that so many ranks learn, of those that they could if none waited for another."""
    learned = sum(lengths[index] for batch in batches for index in batch)
    longest = (
        max(sum(lengths[batch[place]] for place in share) for share in deal(batch, lengths, ranks)) for batch in batches
    )
    return learned / (ranks * sum(longest))
