"""What a head learns from: the target's hidden states and the tokens it would say."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM


@dataclass(frozen=True)
class Observed:
    """One batch of texts as the target sees it.

    tokens:     [B, T] token ids
    aux_hidden: [B, T, 3H] three of the target's hidden states, side by side
    greedy:     [B, T] the token that the target holds most likely after each position
    """

    tokens: Tensor
    aux_hidden: Tensor
    greedy: Tensor


@torch.no_grad()
def observe(target: Qwen3ForCausalLM, tokens: Tensor, aux_layers: tuple[int, int, int]) -> Observed:
    """Runs the target over `tokens` [B, T]."""
    output = target(input_ids=tokens, output_hidden_states=True)
    aux_hidden = torch.cat([output.hidden_states[layer] for layer in aux_layers], dim=-1)
    return Observed(tokens, aux_hidden, output.logits.argmax(dim=-1))
