"""A very small target and texts for it, so that a training step takes milliseconds."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3ForCausalLM

from tools.tiny.head import HeadConfig
from tools.tiny.language_model import LanguageModelSize, qwen3
from tools.tiny.targets import Observed, observe

VOCAB, HIDDEN, TOKENS, MASK_TOKEN = 64, 32, 40, 3

torch.set_num_threads(1)  # matrices are so small here that threads only wait for each other


@pytest.fixture
def target() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    size = LanguageModelSize(HIDDEN, 64, 4, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    return qwen3(size, vocab_size=VOCAB, context=128, eos_token_id=2).eval()


@pytest.fixture
def head_config() -> HeadConfig:
    return HeadConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        aux_layers=(1, 2, 3),
        max_position_embeddings=128,
        mask_token_id=MASK_TOKEN,
        depths=4,
    )


@pytest.fixture
def observed(target: Qwen3ForCausalLM) -> Observed:
    return observe(target, torch.randint(VOCAB, (2, TOKENS)), (1, 2, 3))
