"""Configs as the model classes of vLLM read them."""

from __future__ import annotations

from collections import Counter

import pytest
from models import GEMMA_4_31B, GPT_OSS_20B, GPT_OSS_HEAD, LLAMA_8B, QWEN3_CODER_30B, facts

from toolkit.errors import ToolkitError
from toolkit.sizing.shape import Attention, shape_of

SLIDING = {**LLAMA_8B, "sliding_window": 4096}


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (LLAMA_8B, "full full full full"),
        (QWEN3_CODER_30B, "full full full full"),
        (GPT_OSS_20B, "sliding full sliding full"),
        (SLIDING, "sliding sliding sliding sliding"),
        ({**SLIDING, "use_sliding_window": False}, "full full full full"),
        ({**SLIDING, "sliding_window_pattern": 4}, "sliding sliding sliding full"),
        ({**SLIDING, "layer_types": ["full_attention", "sliding_attention"] * 16}, "full sliding full sliding"),
        (
            {**LLAMA_8B, "attention_chunk_size": 8192, "layer_types": ["chunked_attention", "full_attention"] * 16},
            "chunked full chunked full",
        ),
    ],
)
def test_kinds_of_attention(config: dict[str, object], kinds: str) -> None:
    assert [layer.kind for layer in shape_of(facts(config)).layers[:4]] == kinds.split()


def test_global_layers_have_heads_of_their_own() -> None:
    assert Counter(shape_of(facts(GEMMA_4_31B)).layers) == {
        Attention(16, 256, 256, "sliding", 1024): 50,
        Attention(4, 512, 512): 10,
    }


def test_layers_that_share_a_cache_have_none() -> None:
    text = {**GEMMA_4_31B["text_config"], "num_kv_shared_layers": 20}  # type: ignore[dict-item]
    assert len(shape_of(facts({"text_config": text})).cached_layers) == 40


def test_latent_attention_keeps_one_vector() -> None:
    config = {**LLAMA_8B, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert shape_of(facts(config)).layers[0] == Attention(1, 576, 0)


def test_a_head_is_told_from_a_model() -> None:
    assert not shape_of(facts(LLAMA_8B)).is_head
    assert shape_of(facts(LLAMA_8B)).taps == 0
    assert shape_of(facts(GPT_OSS_HEAD)).is_head
    assert shape_of(facts(GPT_OSS_HEAD)).taps == 3
    assert shape_of(facts({**GPT_OSS_HEAD, "eagle_aux_hidden_state_layer_ids": [2, 10, 18, 26, 34]})).taps == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": None}, ": its config has no `num_hidden_layers`"),
        ({"num_attention_heads": None}, ": its config has no `num_attention_heads`"),
        ({"layer_types": ["conv"] * 32}, "cannot estimate the memory of layers of type `conv`"),
        ({"compress_ratios": [4] * 32}, "cannot estimate the memory of attention that compresses its cache"),
        ({"layer_types": ["linear_attention"] * 32}, "cannot estimate the memory of its layers without attention"),
    ],
)
def test_what_the_model_does_not_know_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ToolkitError, match=message):
        shape_of(facts({**LLAMA_8B, **changes}))
