"""Which drafts a P-EAGLE head learns from one sequence, what each sees, and how a long sequence is partitioned.

A draft starts at an anchor `a`, the position of the last known token. Its tokens stand at `a + d` for the depths
d = 0, 1, …; depth 0 is next-token prediction (NTP) with the target's own hidden state, deeper ones have none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from speculators.models.peagle.data import generate_cod_sample_indices
from torch import Tensor


@dataclass(frozen=True)
class Drafts:
    """Draft positions of depth 1 and more, each of shape [N], ordered by anchor and then by depth.

    A draft's depths are 1, 2, … without a gap, so its positions lie side by side.
    """

    anchor: Tensor
    depth: Tensor

    def __len__(self) -> int:
        return len(self.anchor)

    @property
    def position(self) -> Tensor:
        """Position in the sequence."""
        return self.anchor + self.depth


@dataclass(frozen=True)
class Segment:
    """Positions `start` to before `end` of depth 0, and `drafts` whose anchors lie before `end`."""

    start: int
    end: int
    drafts: Drafts


def sample_drafts(loss_mask: Tensor, depths: int, keep: float, keep_least: float) -> Drafts:
    """Conditional drop (COD) of the P-EAGLE paper: about `n * max(keep ** d, keep_least)` drafts reach depth d.

    `loss_mask` [tokens] is 1 where a token is learned. Random numbers come from torch's generator.
    """
    anchor, depth = generate_cod_sample_indices(
        len(loss_mask), loss_mask[None], depths, down_sample_ratio=keep, down_sample_ratio_min=keep_least
    )
    deep = (depth > 0) & (anchor >= 0)
    anchor, depth = anchor[deep], depth[deep]
    order = torch.argsort(anchor * depths + depth)
    return Drafts(anchor[order], depth[order])


def partition(drafts: Drafts, length: int, segments: int) -> list[Segment]:
    """Intra-sequence partition of the P-EAGLE paper, for sequences whose positions do not fit into memory at once.

    With S(p) the segment of position p, a draft position of depth d at p belongs to

        segment(p, d) = S(p)                   for d = 0 and d = 1
        segment(p, d) = segment(p - 1, d - 1)  for d >= 2, the segment of its predecessor

    so all of a draft deeper than 0 is in the segment of its position a + 1, and sees nothing else but the cumulative
    prefix of depth 0, positions 0 to a. Boundaries are where every segment gets about as many positions as any other;
    of a short sequence some segments have none.
    """
    per_position = torch.bincount(drafts.anchor + 1, minlength=length) + 1
    load = per_position.cumsum(0) - per_position
    segment_of = load * segments // int(per_position.sum())
    segment_of_draft = segment_of[drafts.anchor + 1]
    numbers = torch.arange(segments + 1, device=segment_of.device)
    ends = torch.searchsorted(segment_of, numbers).tolist()
    draft_ends = torch.searchsorted(segment_of_draft, numbers).tolist()
    return [
        Segment(ends[number], ends[number + 1], _between(drafts, draft_ends[number], draft_ends[number + 1]))
        for number in range(segments)
    ]


def _between(drafts: Drafts, start: int, end: int) -> Drafts:
    return Drafts(drafts.anchor[start:end], drafts.depth[start:end])


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

    def causal(self, length: int, window: int | None = None) -> Tensor:
        """The mask of depth 0, [1, 1, length, length]; with a sliding window only the last `window` positions."""
        mask = self._verified[:length, :length]
        if window is not None:
            positions = torch.arange(length, device=mask.device)
            mask = mask.masked_fill(_outside(positions, positions, window), float("-inf"))
        return mask[None, None]

    def of(self, drafts: Drafts, prefix: int, padded: int | None = None, window: int | None = None) -> Tensor:
        """What is added to attention scores, [1, 1, N, prefix + N]: 0 where a position sees, else minus infinity.

        Keys are the `prefix` first positions of depth 0, and the drafts themselves. N is the number of drafts, or
        `padded`: what stands behind the drafts then is seen by none of them, and sees the first position.
        """
        count = len(drafts)
        mask = self._verified.new_full((padded or count, prefix + (padded or count)), float("-inf"))
        mask[:, 0] = 0
        seen = self._verified[drafts.anchor, :prefix]
        if window is not None:
            keys = torch.arange(prefix, device=mask.device)
            seen = seen.masked_fill(_outside(drafts.position, keys, window), float("-inf"))
        mask[:count, :prefix] = seen
        rows = torch.arange(count, device=mask.device)
        furthest = int(drafts.depth.max()) if count else 0
        for back in range(furthest if window is None else min(furthest, window)):
            seeing = rows[drafts.depth > back]
            mask[seeing, prefix + seeing - back] = 0
        return mask[None, None]


def _outside(positions: Tensor, keys: Tensor, window: int) -> Tensor:
    """Which keys a sliding window hides from each position: [positions, keys]."""
    return keys[None] <= positions[:, None] - window
