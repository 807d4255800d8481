"""Which hidden states are on the disk at one time: those that a window of the training's steps reads.

Where all of them fit, one window has all steps, and they are computed once. Else the target computes those of the first
window, the head learns from them, and those of the next one take their place, again in every epoch. The head learns
the same samples in the same order either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from toolkit.errors import UsageError
from toolkit.training.batches import plan_batches
from toolkit.training.job import FINAL_TIMES, TrainingJob
from toolkit.training.loop import evaluated
from toolkit.training.samples import SHARD_TOKENS, Pieces, Samples


@dataclass(frozen=True)
class Window:
    """Steps `first` to before `end`, and the samples whose states they read, in pieces of a file each."""

    first: int
    end: int
    pieces: Pieces


def windows_of(job: TrainingJob, train: Samples, most_tokens: int) -> list[Window]:
    """All windows of the job, none with more than so many tokens. Raises UsageError if a step alone has more."""
    batches, lengths = plan_batches(train.lengths, job), train.lengths
    if sum(lengths) <= most_tokens:
        return [Window(0, len(batches), train.shards)]
    windows: list[Window] = []
    first, tokens, here = 0, 0, set[int]()
    for step, batch in enumerate(batches):
        size = sum(lengths[index] for index in batch)
        if size > most_tokens:
            hint = "Raise training.states_gb or training.volume_gb, or lower training.batch_tokens."
            raise UsageError(f"a step reads hidden states of {size:,} tokens, and {most_tokens:,} fit", hint=hint)
        if tokens + size > most_tokens or not here.isdisjoint(batch):  # the next epoch has the same samples
            windows.append(Window(first, step, _pieces(batches[first:step], lengths)))
            first, tokens, here = step, 0, set()
        tokens += size
        here.update(batch)
    return [*windows, Window(first, len(batches), _pieces(batches[first:], lengths))]


def held_out_pieces(held_out: Samples) -> Pieces:
    """The shards with the held-out samples that are evaluated: the first ones."""
    last = evaluated(held_out.lengths, FINAL_TIMES)[-1]
    return tuple(piece for piece in held_out.shards if piece[0] <= last)


def _pieces(batches: Sequence[Sequence[int]], lengths: Sequence[int]) -> Pieces:
    """The samples of some steps, so many at a time as are written at once: a step may have many times as many."""
    pieces: list[list[int]] = []
    tokens = SHARD_TOKENS
    for index in chain.from_iterable(batches):
        if tokens >= SHARD_TOKENS:
            pieces.append([])
            tokens = 0
        pieces[-1].append(index)
        tokens += lengths[index]
    return tuple(map(tuple, pieces))
