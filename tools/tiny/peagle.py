"""P-EAGLE (arXiv 2602.01469): a head that drafts all tokens in one forward pass.

The first draft position has a real token and the target's hidden state. Every later one has the mask token and one
learned hidden state, the same for all, and is told apart by its position only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tools.tiny.head import AUX_HIDDEN_STATES, DraftHead, HeadConfig
from tools.tiny.positions import DraftPositions, visible
from tools.tiny.targets import Observed


class PEagleHead(DraftHead):
    """A draft head with the learned hidden state of masked positions, `mask_hidden` [1, 1, 3H]."""

    def __init__(self, config: HeadConfig, target_embedding: Tensor, target_lm_head: Tensor) -> None:
        super().__init__(config, target_embedding, target_lm_head)
        self.mask_hidden = nn.Parameter(torch.randn(1, 1, AUX_HIDDEN_STATES * config.hidden_size) * 0.02)

    def checkpoint_config(self) -> dict[str, object]:
        """As for EAGLE-3, with the mask token under both keys that vLLM has had for it, and the trained depth."""
        mask = self.config.mask_token_id
        return {
            **super().checkpoint_config(),
            "ptd_token_id": mask,
            "pard_token": mask,
            "num_depths": self.config.depths,
        }

    def draft(self, observed: Observed, positions: DraftPositions) -> Tensor:
        """Logits of all `positions`, in one pass."""
        first = positions.depth == 0
        tokens = torch.where(first, observed.tokens[:, positions.anchor + 1], self.config.mask_token_id)
        hidden = torch.where(
            first[:, None], self.fc(observed.aux_hidden[:, positions.anchor]), self.fc(self.mask_hidden)
        )
        embeds, mask = self.embed_tokens(tokens), visible(positions, positions)
        return self.logits(self.decode(embeds, hidden, positions.position, mask, self.empty_caches()))
