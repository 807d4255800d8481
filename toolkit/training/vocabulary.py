"""A reduced draft vocabulary: the tokens that the target generates most often, and the maps that vLLM reads.

d2t int64 [draft tokens]     target's id = draft id + d2t[draft id]
t2d bool [target's tokens]   whether the head can draft it
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from toolkit.errors import UsageError
from toolkit.training.samples import Samples, read_tensors, tensor_names, write_tensors

FILE = "vocabulary.safetensors"


@dataclass(frozen=True)
class Vocabulary:
    """The two maps. Draft ids are in the order of the target's."""

    d2t: Tensor
    t2d: Tensor

    def coverage(self, counts: Tensor) -> float:
        """Share of the counted tokens that the head can draft."""
        return (counts[self.t2d].sum() / counts.sum().clamp(min=1)).item()

    def write(self, folder: Path) -> None:
        """Write the maps to a file in that folder. Raises PlatformError."""
        write_tensors(folder / FILE, {"d2t": self.d2t, "t2d": self.t2d}, {})


def read_vocabulary(folder: Path, vocab_size: int) -> Vocabulary:
    """The maps of a folder, for a target of so many tokens. Raises UsageError."""
    path = folder / FILE
    found = read_tensors(path, ("d2t", "t2d"))
    vocabulary = _of_targets(_targets(path, found["d2t"], vocab_size), vocab_size)
    if not (torch.equal(found["t2d"], vocabulary.t2d) and torch.equal(found["d2t"], vocabulary.d2t)):
        raise UsageError(f"{path} is damaged: its maps do not agree", hint=_AGAIN)
    return vocabulary


def head_vocabulary(head: Path, vocab_size: int) -> Vocabulary | None:
    """The maps of a trained head, which training has to keep when it continues that head; None if it has none."""
    for file in sorted(head.glob("*.safetensors")):
        if "d2t" in tensor_names(file):
            targets = _targets(file, read_tensors(file, ("d2t",))["d2t"], vocab_size)
            return _of_targets(targets, vocab_size)
    return None


def _targets(path: Path, d2t: Tensor, vocab_size: int) -> Tensor:
    """The target's id of each draft id. Raises UsageError for ids that the target does not have, or has twice."""
    if d2t.ndim != 1 or d2t.is_floating_point() or d2t.is_complex() or not len(d2t):
        raise UsageError(f"{path} is damaged: `d2t` is no list of whole numbers", hint=_AGAIN)
    targets = torch.arange(len(d2t)) + d2t.long()
    if targets.min() < 0 or targets.max() >= vocab_size or len(set(targets.tolist())) < len(targets):
        message = f"{path}: `d2t` does not name different ones of the target's {vocab_size} tokens"
        raise UsageError(message, hint=_AGAIN)
    return targets


def _of_targets(targets: Tensor, vocab_size: int) -> Vocabulary:
    t2d = torch.zeros(vocab_size, dtype=torch.bool)
    t2d[targets] = True
    return Vocabulary(targets - torch.arange(len(targets)), t2d)


_AGAIN = "Take a head that was trained for this target; what the training itself has made, remove and start again."


def count_tokens(folder: Path, vocab_size: int) -> Tensor:
    """How often the target generates each token in the samples of a folder: int64 [vocab_size]. Raises UsageError."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    samples = Samples(folder)
    samples.require_vocabulary(vocab_size)
    for sample in samples:
        generated = sample.input_ids[sample.loss_mask.bool()]
        counts += torch.bincount(generated, minlength=vocab_size)
    return counts


def draft_vocabulary(counts: Tensor, size: int, always: Iterable[int]) -> Vocabulary:
    """The tokens `always`, then the most frequent ones, `size` in all. Raises UsageError for a size that cannot be."""
    kept = sorted(set(always))
    if not len(kept) <= size <= len(counts):
        hint = f"Give training.draft_vocab_size from {len(kept)} (special tokens) to {len(counts)} (all), or remove it."
        raise UsageError(f"a draft vocabulary of {size} tokens is not possible with this target", hint=hint)
    ranked = counts.clone()
    ranked[kept] = torch.iinfo(torch.int64).max
    chosen = torch.argsort(ranked, descending=True, stable=True)[:size].sort().values
    return _of_targets(chosen, len(counts))
