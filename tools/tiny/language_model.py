"""Small Qwen3 language models: the target, and the draft model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM


@dataclass(frozen=True)
class LanguageModelSize:
    """What differs between the models here; vocabulary, context and token ids come from the tokenizer."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int = 64


def qwen3(size: LanguageModelSize, *, vocab_size: int, context: int, eos_token_id: int) -> Qwen3ForCausalLM:
    """An untrained Qwen3 whose output layer is its embedding; `context` is in tokens."""
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=size.hidden_size,
        intermediate_size=size.intermediate_size,
        num_hidden_layers=size.num_hidden_layers,
        num_attention_heads=size.num_attention_heads,
        num_key_value_heads=size.num_key_value_heads,
        head_dim=size.head_dim,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        eos_token_id=eos_token_id,
    )
    return Qwen3ForCausalLM(config)


def next_token_loss(model: Qwen3ForCausalLM, tokens: Tensor) -> Tensor:
    """Cross-entropy of each next token of `tokens` [B, T]."""
    logits = model(input_ids=tokens).logits[:, :-1]
    return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
