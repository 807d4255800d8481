"""The network that P-EAGLE and EAGLE-3 heads share.

Names and order of the operations are those of vLLM's `llama_eagle3.py`, so that `state_dict()` is the checkpoint.
Shapes: B sequences, T tokens each, N draft positions, H hidden size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.tiny.positions import DraftPositions
from tools.tiny.targets import Observed

AUX_HIDDEN_STATES = 3


@dataclass(frozen=True)
class HeadConfig:
    """Sizes of a head.

    `hidden_size` is also the target's; `aux_layers` index the target's hidden states, of which 0 is the embedding;
    `depths` is how many tokens it learns to draft.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    aux_layers: tuple[int, int, int]
    max_position_embeddings: int
    mask_token_id: int
    depths: int
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads


class DraftHead(nn.Module, ABC):
    """A Llama-like decoder over pairs of token embedding and hidden state.

    Embedding and output layer start as copies of the target's and are trained.
    """

    def __init__(self, config: HeadConfig, target_embedding: Tensor, target_lm_head: Tensor) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed_tokens.weight.data.copy_(target_embedding)
        self.fc = nn.Linear(AUX_HIDDEN_STATES * config.hidden_size, config.hidden_size, bias=False)
        self.layers = nn.ModuleList(DecoderLayer(config, first=not index) for index in range(config.num_hidden_layers))
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.lm_head.weight.data.copy_(target_lm_head)

    @abstractmethod
    def draft(self, observed: Observed, positions: DraftPositions) -> Tensor:
        """Logits [B, N, vocabulary] of all `positions`; depth d of anchor a is the token at a + d + 2."""

    def loss(self, observed: Observed, positions: DraftPositions) -> tuple[Tensor, Tensor]:
        """Cross-entropy against the target's greedy tokens, and which of them [B, N] the head gets right."""
        logits = self.draft(observed, positions).float()
        greedy = observed.greedy[:, positions.position + 1]
        return functional.cross_entropy(logits.flatten(0, 1), greedy.flatten()), logits.argmax(dim=-1) == greedy

    def checkpoint_config(self) -> dict[str, object]:
        """The config.json that vLLM reads for method `eagle3`."""
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "vocab_size": self.config.vocab_size,
            "draft_vocab_size": self.config.vocab_size,
            "hidden_size": self.config.hidden_size,
            "target_hidden_size": self.config.hidden_size,
            "intermediate_size": self.config.intermediate_size,
            "num_hidden_layers": self.config.num_hidden_layers,
            "num_attention_heads": self.config.num_attention_heads,
            "num_key_value_heads": self.config.num_attention_heads,
            "head_dim": self.config.head_dim,
            "num_aux_hidden_states": AUX_HIDDEN_STATES,
            "eagle_aux_hidden_state_layer_ids": self.config.aux_layers,
            "max_position_embeddings": self.config.max_position_embeddings,
            "rope_theta": self.config.rope_theta,
            "rms_norm_eps": self.config.rms_norm_eps,
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
        }

    def empty_caches(self) -> list[KeyValues]:
        """What `decode` needs for its first call, one per layer."""
        return [KeyValues() for _ in self.layers]

    def decode(self, embeds: Tensor, hidden: Tensor, position: Tensor, mask: Tensor, caches: list[KeyValues]) -> Tensor:
        """Hidden states [B, N, H] before the final norm, for embeddings and hidden states of that shape.

        `mask` is [N, cached + N]: the caches hold the keys of earlier calls, and grow by those of this one.
        """
        hidden = hidden.float()  # the residual stream stays in float32 under autocast
        rotary = rotary_embedding(position, self.config)
        for layer, cache in zip(self.layers, caches, strict=True):
            hidden = layer(embeds, hidden, rotary, mask, cache)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [..., vocabulary] of the next token, from what `decode` returns."""
        logits: Tensor = self.lm_head(self.norm(hidden))
        return logits


class KeyValues:
    """Keys and values of one layer that later draft positions look at; grows."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def add(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and all values so far, [B, heads, cached + N, head_dim] each."""
        self.keys.append(key)
        self.values.append(value)
        return torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)


class DecoderLayer(nn.Module):
    """One pre-norm Llama layer; the first one attends over embedding and hidden state side by side."""

    def __init__(self, config: HeadConfig, *, first: bool) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.first = first
        self.input_layernorm = RmsNorm(size, eps)
        if first:
            self.hidden_norm = RmsNorm(size, eps)
        self.self_attn = Attention(config, inputs=2 * size if first else size)
        self.post_attention_layernorm = RmsNorm(size, eps)
        self.mlp = Mlp(config)

    def forward(self, embeds: Tensor, hidden: Tensor, rotary: Rotary, mask: Tensor, cache: KeyValues) -> Tensor:
        """The residual stream [B, N, H] after this layer."""
        if self.first:
            inputs = torch.cat([self.input_layernorm(embeds), self.hidden_norm(hidden)], dim=-1)
        else:
            inputs = self.input_layernorm(hidden)
        attended = hidden + self.self_attn(inputs, rotary, mask, cache)
        output: Tensor = attended + self.mlp(self.post_attention_layernorm(attended))
        return output


class Attention(nn.Module):
    """Multi-head attention with rotary positions."""

    def __init__(self, config: HeadConfig, inputs: int) -> None:
        super().__init__()
        self.heads, self.head_dim = config.num_attention_heads, config.head_dim
        self.q_proj = nn.Linear(inputs, config.hidden_size, bias=False)
        self.k_proj = nn.Linear(inputs, config.hidden_size, bias=False)
        self.v_proj = nn.Linear(inputs, config.hidden_size, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, inputs: Tensor, rotary: Rotary, mask: Tensor, cache: KeyValues) -> Tensor:
        """What the positions of `inputs` [B, N, inputs] read from the cached ones and from each other, [B, N, H]."""
        query, key, value = (self._split(project(inputs)) for project in (self.q_proj, self.k_proj, self.v_proj))
        keys, values = cache.add(rotate(key, rotary), value)
        read = functional.scaled_dot_product_attention(rotate(query, rotary), keys, values, attn_mask=mask)
        output: Tensor = self.o_proj(read.transpose(1, 2).flatten(2))
        return output

    def _split(self, projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:-1], self.heads, self.head_dim).transpose(1, 2)


class RmsNorm(nn.Module):
    """Root-mean-square norm, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """Same shape as `hidden`."""
        return functional.rms_norm(hidden.float(), self.weight.shape, self.weight, self.eps)


class Mlp(nn.Module):
    """Gated feed-forward layer (SwiGLU)."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Same shape as `hidden`."""
        output: Tensor = self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return output


Rotary = tuple[Tensor, Tensor]


def rotary_embedding(position: Tensor, config: HeadConfig) -> Rotary:
    """Cosines and sines [N, head_dim] for `position` [N]."""
    exponent = torch.arange(0, config.head_dim, 2) / config.head_dim
    angle = position[:, None] * config.rope_theta**-exponent
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(states: Tensor, rotary: Rotary) -> Tensor:
    """Queries or keys [B, heads, N, head_dim], turned to their positions."""
    cos, sin = (part.to(states.dtype) for part in rotary)
    left, right = states.chunk(2, dim=-1)
    return states * cos + torch.cat([-right, left], dim=-1) * sin
