"""Bytes of weights, against index files and against what vLLM logs as "Model loading took"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from models import (
    FP8,
    GEMMA_4_31B,
    GPT_OSS_20B,
    GPT_OSS_120B,
    LLAMA_8B,
    LLAMA_8B_HEAD,
    QWEN3_14B,
    QWEN3_CODER_30B,
    facts,
)

from toolkit.errors import ToolkitError
from toolkit.recipe.facts import Tensor
from toolkit.sizing.shape import shape_of
from toolkit.sizing.weights import rank_bytes, read_bytes, serving_dtype, stored_bytes

GIB = 1024**3


@pytest.mark.parametrize(
    ("config", "tensor_parallel", "logged_gib"),
    [
        (LLAMA_8B, 1, 14.9888),  # vLLM issue 10517
        (QWEN3_14B, 1, 27.5185),  # a published log of vLLM 0.28
        (QWEN3_CODER_30B, 4, 14.2474),  # vLLM issue 17327, Qwen3-30B-A3B: the same sizes
        (GPT_OSS_20B, 1, 13.72),  # vLLM 0.19 on an A100, Marlin
        (GPT_OSS_120B, 1, 65.9651),  # vLLM issue 23278, Marlin
    ],
)
def test_what_vllm_logs(config: Mapping[str, Any], tensor_parallel: int, logged_gib: float) -> None:
    assert rank_bytes(facts(config), tensor_parallel, "bfloat16") / GIB == pytest.approx(logged_gib, rel=0.005)


@pytest.mark.parametrize(("config", "parameters"), [(LLAMA_8B, 8_030_261_248), (QWEN3_CODER_30B, 30_532_122_624)])
def test_all_parameters_of_a_model_are_expected(config: Mapping[str, Any], parameters: int) -> None:
    """What the hub counts in their files; norms, which are not expected, are less than a ten-thousandth."""
    assert stored_bytes(facts(config)) / 2 == pytest.approx(parameters, rel=1e-4)


def test_fp8_halves_the_layers_and_not_the_vocabulary() -> None:
    embeddings = 2 * 2 * 151936 * 2048
    whole = rank_bytes(facts(QWEN3_CODER_30B), 1, "bfloat16")
    half = rank_bytes(facts({**QWEN3_CODER_30B, **FP8}), 1, "bfloat16")
    assert half == pytest.approx((whole - embeddings) / 2 + embeddings, rel=0.001)


def test_a_known_size_corrects_the_expected_tensors() -> None:
    config = facts(LLAMA_8B, weight_bytes=20 * GIB)
    assert rank_bytes(config, 1, "bfloat16") == 20 * GIB
    assert rank_bytes(config, 2, "bfloat16") == 10 * GIB


def test_a_head_without_its_own_embedding_shares_the_targets() -> None:
    tensors = {"fc.weight": Tensor("BF16", (4096, 12288)), "t2d": Tensor("BOOL", (128256,))}
    assert rank_bytes(facts(LLAMA_8B_HEAD, tensors), 1, "bfloat16") == 2 * 4096 * 12288


SPLIT_OVER_16 = [
    ("model.norm.weight", (4096,), 2 * 4096),
    ("fc.weight", (64, 64), 2 * 64 * 64),
    ("model.layers.0.mlp.gate.weight", (16, 64), 2 * 16 * 64),
    ("model.layers.0.mlp.gate_proj.weight", (64, 64), 2 * 64 * 64 // 16),
    ("model.layers.0.self_attn.q_proj.weight", (64, 64), 2 * 64 * 64 // 16),
    ("model.layers.0.self_attn.k_proj.weight", (64, 64), 2 * 64 * 64 // 8),  # 8 KV heads: two copies of each
    ("model.embed_tokens.weight", (100, 64), 2 * 128 * 64 // 16),  # padded to 128 rows
]


@pytest.mark.parametrize(("name", "shape", "held"), SPLIT_OVER_16)
def test_what_one_of_16_accelerators_holds(name: str, shape: tuple[int, ...], held: int) -> None:
    assert rank_bytes(facts(LLAMA_8B, {name: Tensor("BF16", shape)}), 16, "bfloat16") == held


@pytest.mark.parametrize(("layer", "heads"), [(0, 16), (5, 4)], ids=["sliding", "global"])
def test_keys_are_split_by_the_heads_of_their_own_layer(layer: int, heads: int) -> None:
    tensors = {f"model.layers.{layer}.self_attn.k_proj.weight": Tensor("BF16", (64, 64))}
    assert rank_bytes(facts(GEMMA_4_31B, tensors), 16, "bfloat16") == 2 * 64 * 64 // heads


def test_the_serving_dtype_decides_but_for_quantized_tensors() -> None:
    tensors = {"norm.weight": Tensor("BF16", (10,)), "experts.scale": Tensor("F32", (10,)), "x": Tensor("U8", (10,))}
    assert rank_bytes(facts(LLAMA_8B, tensors), 1, "float32") == 40 + 40 + 10


def test_a_tied_output_layer_is_the_embedding() -> None:
    tensors = {"model.embed_tokens.weight": Tensor("BF16", (64, 8)), "lm_head.weight": Tensor("BF16", (64, 8))}
    assert rank_bytes(facts({**LLAMA_8B, "tie_word_embeddings": True}, tensors), 1, "bfloat16") == 1024


@pytest.mark.parametrize(
    ("stored", "flag", "served"),
    [
        ("bfloat16", "auto", "bfloat16"),
        ("float16", "auto", "float16"),
        ("float32", "auto", "bfloat16"),
        ("bfloat16", "float32", "float32"),
    ],
)
def test_dtype(stored: str, flag: str, served: str) -> None:
    assert serving_dtype(shape_of(facts({**LLAMA_8B, "dtype": stored})), flag) == served


def test_of_a_quantized_target_a_token_reads_what_its_files_hold() -> None:
    """Of an 8B in AWQ 5.73 GB (Hugging Face); the output layer stays as it was, of the embedding a row is read."""
    embedding = 2 * 128256 * 4096
    awq = {**LLAMA_8B, "quantization_config": {"quant_method": "awq", "bits": 4}}
    known = replace(facts(awq), weight_bytes=5_730_000_000)
    assert read_bytes(known) == pytest.approx(5_730_000_000 - embedding)
    assert read_bytes(facts(LLAMA_8B)) > 2.5 * read_bytes(known)
    with pytest.raises(ToolkitError, match="quantized with awq, is not known"):
        read_bytes(facts(awq))


def test_of_quantized_experts_a_token_reads_those_that_it_passes_through() -> None:
    plain = facts(QWEN3_CODER_30B)
    stored = stored_bytes(plain) / 3
    awq = facts({**QWEN3_CODER_30B, "quantization_config": {"quant_method": "awq"}})
    read = read_bytes(replace(awq, weight_bytes=round(stored)))
    assert 2 * 151936 * 2048 < read < read_bytes(plain) / 2


def test_unknown_types_are_named() -> None:
    with pytest.raises(ToolkitError, match="tensors of type F6"):
        rank_bytes(facts(LLAMA_8B, {"x": Tensor("F6", (8,))}), 1, "bfloat16")
    with pytest.raises(ToolkitError, match="cannot estimate memory with dtype int8"):
        serving_dtype(shape_of(facts(LLAMA_8B)), "int8")
