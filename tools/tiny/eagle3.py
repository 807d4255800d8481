"""EAGLE-3 (arXiv 2503.01840): a head that drafts one token after the other from its own hidden states.

Trained by the paper's training-time test: several draft steps in a row, each fed with the hidden state that the head
made one step before instead of the target's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tools.tiny.head import DraftHead
from tools.tiny.positions import DraftPositions, visible
from tools.tiny.targets import Observed


class Eagle3Head(DraftHead):
    """A draft head that is called once per draft token."""

    def draft(self, observed: Observed, positions: DraftPositions) -> Tensor:
        """Logits of all `positions`, one depth after the other; each is fed the true token before the one it drafts."""
        caches = self.empty_caches()
        hidden = self.fc(observed.aux_hidden[:, positions.at(0).anchor])
        logits = []
        for depth in range(positions.depths):
            step = positions.at(depth)
            embeds = self.embed_tokens(observed.tokens[:, step.position + 1])
            mask = visible(step, positions.up_to(depth))
            hidden = self.decode(embeds, hidden[:, : len(step)], step.position, mask, caches)
            logits.append(self.logits(hidden))
        return torch.cat(logits, dim=1)
