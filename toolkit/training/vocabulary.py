"""A reduced draft vocabulary: the tokens that the target generates most often, and the maps that vLLM reads.

d2t int64 [draft tokens]     target's id = draft id + d2t[draft id]
t2d bool [target's tokens]   whether the head can draft it
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from toolkit.errors import UsageError
from toolkit.training.samples import Samples, read_tensors, write_tensors

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


def read_vocabulary(folder: Path) -> Vocabulary:
    """The maps of a folder. Raises UsageError."""
    return Vocabulary(**read_tensors(folder / FILE, ("d2t", "t2d")))


def head_vocabulary(head: Path, vocab_size: int) -> Vocabulary | None:
    """The maps of a trained head, which training has to keep when it continues that head; None if it has none."""
    for file in sorted(head.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            if "d2t" not in tensors.keys():  # noqa: SIM118 - it is no mapping
                continue
        d2t = read_tensors(file, ("d2t",))["d2t"].long()
        t2d = torch.zeros(vocab_size, dtype=torch.bool)
        t2d[torch.arange(len(d2t)) + d2t] = True
        return Vocabulary(d2t, t2d)
    return None


def count_tokens(folder: Path, vocab_size: int) -> Tensor:
    """How often the target generates each token in the samples of a folder: int64 [vocab_size]. Raises UsageError."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for sample in Samples(folder):
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
    t2d = torch.zeros(len(counts), dtype=torch.bool)
    t2d[chosen] = True
    return Vocabulary(chosen - torch.arange(size), t2d)
