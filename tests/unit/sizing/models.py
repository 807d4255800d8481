"""Published configs, as far as memory depends on them, and what vLLM logged of those models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.recipe.facts import ModelFacts, Tensor

LLAMA_8B = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}
LLAMA_8B_HEAD = {
    **LLAMA_8B,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32000,
}
QWEN3_14B = {
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 17408,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
QWEN3_32B = {**QWEN3_14B, "num_hidden_layers": 64, "num_attention_heads": 64, "intermediate_size": 25600}
QWEN3_8B = {
    **QWEN3_14B,
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "intermediate_size": 12288,
}
QWEN3_4B = {**QWEN3_8B, "hidden_size": 2560, "intermediate_size": 9728}
QWEN3_06B = {
    **QWEN3_8B,
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "intermediate_size": 3072,
}
QWEN3_6_35B = {
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "vocab_size": 248320,
    "max_position_embeddings": 262144,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 10,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
    "dtype": "bfloat16",
}
QWEN3_8_27B = {
    **QWEN3_6_35B,
    "hidden_size": 5120,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "num_experts": 0,
    "intermediate_size": 17408,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
    "linear_num_value_heads": 48,
}
QWEN2_7B = {
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
}
QWEN25_05B = {
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
}
MISTRAL_7B = {**LLAMA_8B, "vocab_size": 32064, "max_position_embeddings": 32768}
QWEN3_CODER_30B = {
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 5472,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "use_sliding_window": False,
    "torch_dtype": "bfloat16",
}
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
GPT_OSS_120B = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "mxfp4"},
}
GPT_OSS_20B = {**GPT_OSS_120B, "num_hidden_layers": 24, "num_local_experts": 32}
GPT_OSS_HEAD = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 2880,
    "num_hidden_layers": 4,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "vocab_size": 201088,
    "draft_vocab_size": 201088,
    "max_position_embeddings": 131072,
}
GEMMA_4_31B = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "text_config": {
        "hidden_size": 5376,
        "num_hidden_layers": 60,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "num_global_key_value_heads": 4,
        "head_dim": 256,
        "global_head_dim": 512,
        "intermediate_size": 21504,
        "sliding_window": 1024,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
        "tie_word_embeddings": True,
        "vocab_size": 262144,
        "max_position_embeddings": 262144,
    },
}


def facts(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None, weight_bytes: int | None = None
) -> ModelFacts:
    """Facts as they are known from a published config alone, or with tensors."""
    return ModelFacts(
        "a model",
        "published config",
        config,
        tensors,
        tokenizer=None,
        weight_bytes=weight_bytes,
        partial=tensors is None,
    )
