"""Attention masks of P-EAGLE's draft positions, prepared once and sliced."""

from __future__ import annotations

import torch
from torch import Tensor

from toolkit.training.partition import Drafts


class DraftMasks:
    """The mask of a P-EAGLE pass, of which the part that depends on the sequence's length is computed once.

    A position of anchor a and depth d sees a key of anchor a' and depth d' if, as in the P-EAGLE paper,

        (d' = 0 and a' <= a)  or  (a' = a and d' <= d)

    The first half is a triangle that is the same in every sequence: it is computed for `max_length` and its rows are
    sliced. The second holds within one draft, whose positions lie side by side: it is written, not computed.
    """

    def __init__(self, max_length: int, dtype: torch.dtype, device: torch.device) -> None:
        hidden = torch.full((max_length, max_length), float("-inf"), dtype=dtype, device=device)
        self._verified = torch.triu(hidden, diagonal=1)

    def causal(self, length: int) -> Tensor:
        """The mask of depth 0, [1, 1, length, length]."""
        return self._verified[None, None, :length, :length]

    def of(self, drafts: Drafts, prefix: int, padded: int | None = None) -> Tensor:
        """What is added to attention scores, [1, 1, N, prefix + N]: 0 where a position sees, else minus infinity.

        Keys are the `prefix` first positions of depth 0, and the drafts themselves. N is the number of drafts, or
        `padded`: what stands behind the drafts then is seen by none of them, and sees the first position.
        """
        count = len(drafts)
        mask = self._verified.new_full((padded or count, prefix + (padded or count)), float("-inf"))
        mask[:, 0] = 0
        mask[:count, :prefix] = self._verified[drafts.anchor, :prefix]
        rows = torch.arange(count, device=mask.device)
        for back in range(int(drafts.depth.max()) if count else 0):
            seeing = rows[drafts.depth > back]
            mask[seeing, prefix + seeing - back] = 0
        return mask[None, None]
