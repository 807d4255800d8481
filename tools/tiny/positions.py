"""Which drafts a head is trained on, and which of them see each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DraftPositions:
    """Where drafts are trained: the draft of depth d from anchor a stands at position a + d. Both of shape [N]."""

    anchor: Tensor
    depth: Tensor

    def __len__(self) -> int:
        return len(self.anchor)

    @property
    def depths(self) -> int:
        """How many tokens the longest draft has."""
        return int(self.depth.max()) + 1

    @property
    def position(self) -> Tensor:
        """Position in the sequence, for the rotary embedding."""
        return self.anchor + self.depth

    def at(self, depth: int) -> DraftPositions:
        """Only those of one depth."""
        chosen = self.depth == depth
        return DraftPositions(self.anchor[chosen], self.depth[chosen])

    def up_to(self, depth: int) -> DraftPositions:
        """Those of this depth and the shallower ones."""
        chosen = self.depth <= depth
        return DraftPositions(self.anchor[chosen], self.depth[chosen])


def sample_positions(tokens: int, depths: int, keep: float) -> DraftPositions:
    """All anchors at depth 0, and of those at each further depth the share `keep`, chosen at random.

    The conditional drop of P-EAGLE (arXiv 2602.01469): an anchor kept at a depth was kept at all shallower ones, so
    every draft sees its whole chain. Ordered by depth, and within each in the same order of anchors.
    """
    anchors = torch.randperm(tokens - depths)
    counts = [max(1, round(len(anchors) * keep**depth)) for depth in range(depths)]
    anchor = torch.cat([anchors[:count] for count in counts])
    depth = torch.repeat_interleave(torch.arange(depths), torch.tensor(counts))
    return DraftPositions(anchor, depth)


def visible(queries: DraftPositions, keys: DraftPositions) -> Tensor:
    """Attention mask [queries, keys], True where the query may look.

    As when drafting: the verified tokens (depth 0) up to the query's anchor, and the drafts of the same anchor up to
    the query's own depth.
    """
    anchor, depth = queries.anchor[:, None], queries.depth[:, None]
    verified = (keys.depth == 0) & (keys.anchor <= anchor)
    same_draft = (keys.anchor == anchor) & (keys.depth <= depth)
    return verified | same_draft
