"""The KV cache, against what vLLM logged of real models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from models import (
    GEMMA_4_31B,
    GPT_OSS_20B,
    GPT_OSS_120B,
    GPT_OSS_HEAD,
    LLAMA_8B,
    LLAMA_8B_HEAD,
    QWEN3_6_35B,
    QWEN3_8_27B,
    QWEN3_14B,
    QWEN3_CODER_30B,
    facts,
)

from toolkit.engines.vllm.kv_cache import Group, KVCache, States, plan, value_bytes
from toolkit.errors import ToolkitError
from toolkit.sizing.shape import Attention, State, shape_of

GIB = 1024**3
FULL, SLIDING = Attention(2, 64, 64), Attention(2, 64, 64, "sliding", 128)


def cache(*configs: Mapping[str, Any], tokens_per_step: int = 2048, **settings: Any) -> KVCache:
    layers = [layer for config in configs for layer in shape_of(facts(config)).cached_layers]
    return plan(layers, **{"value_bytes": 2, "block_size": 16, "in_flight_tokens": tokens_per_step, **settings})


@pytest.mark.parametrize(
    ("planned", "memory_gib", "max_model_len", "logged_tokens", "logged_concurrency"),
    [
        # Qwen3-14B, one L40S, vLLM 0.28
        (cache(QWEN3_14B), 11.57, 40960, 75_824, 1.85),
        # Qwen3-Coder-30B-A3B, four L40S
        (cache(QWEN3_CODER_30B, tensor_parallel=4), 23.74, 32768, 1_037_152, 31.65),
        # Llama-3.1-8B and a one-layer EAGLE head, one H100
        (cache(LLAMA_8B, LLAMA_8B_HEAD), 51.63, 131072, 410_128, 3.13),
    ],
)
def test_what_vllm_logs(
    planned: KVCache, memory_gib: float, max_model_len: int, logged_tokens: int, logged_concurrency: float
) -> None:
    memory = int(memory_gib * GIB)  # logged with two digits
    assert planned.tokens(memory, max_model_len) == pytest.approx(logged_tokens, rel=0.001)
    assert planned.max_concurrency(memory, max_model_len) == pytest.approx(logged_concurrency, abs=0.005)


# vLLM 0.26.0 on an H200 with `kv-cache-memory-bytes` of 6 GiB (tests/benchmarks/gpu/h200-2026-11-26.md).
SHAPES = json.loads((Path(__file__).parents[2] / "benchmarks/gpu/shapes.json").read_text(encoding="utf-8"))["shapes"]


@pytest.mark.parametrize(
    ("shape", "head", "logged_tokens"),
    [
        ("qwen3-8b", None, 43_680),
        ("qwen3-8b", "eagle3", 42_496),
        ("qwen3-8b", "p-eagle", 39_312),
        ("gpt-oss-20b", None, 130_055),
        ("gpt-oss-20b", "eagle3", 120_046),
        ("gpt-oss-20b", "p-eagle", 97_541),
    ],
)
def test_what_vllm_logs_of_pairs_on_a_gpu(shape: str, head: str | None, logged_tokens: int) -> None:
    """To the token: heads of one and of four layers, targets with and without sliding windows."""
    configs = [SHAPES[shape]["target"], *([SHAPES[shape]["heads"][head]] if head else [])]
    assert cache(*configs, tokens_per_step=8192).tokens(6 * GIB, 1024) == logged_tokens


KEPT = States(2, prefix_caching=True)


@pytest.mark.parametrize(
    ("planned", "memory_gib", "max_model_len", "logged_tokens", "block_size"),
    [
        # Qwen3.6-35B-A3B, one RTX 5090, vLLM 0.24 (noonghunna/club-3090#612)
        (cache(QWEN3_6_35B, value_bytes=1, states=KEPT), 5.98, 131072, 567_978, 2096),
        # Qwen3.8-27B, two GPUs (mitchross/talos-argocd-proxmox#1995)
        (cache(QWEN3_8_27B, value_bytes=1, states=KEPT, tensor_parallel=2), 4.99, 131072, 302_921, 1568),
    ],
)
def test_what_vllm_logs_of_layers_with_states(
    planned: KVCache, memory_gib: float, max_model_len: int, logged_tokens: int, block_size: int
) -> None:
    """A block of attention is as large as a state; a request has two states where prefixes are cached."""
    assert planned.tokens(int(memory_gib * GIB), max_model_len) == logged_tokens
    assert {group.block_size for group in planned.groups if not group.attention.state} == {block_size}
    assert [group.attention.kind for group in planned.groups] == ["state"] * 3 + ["full"]


def test_what_vllm_logs_of_layers_with_states_and_a_drafting_layer_of_the_targets_own() -> None:
    """Qwen3.6-27B on two GPUs, fp8 cache, `mtp` with three draft tokens (noonghunna/club-3090#642)."""
    own = {**QWEN3_8_27B, "num_hidden_layers": 1, "layer_types": ["full_attention"]}
    kept = States(2, draft_tokens=3, prefix_caching=True)
    planned = cache(QWEN3_8_27B, own, value_bytes=1, states=kept, tensor_parallel=2)
    assert planned.tokens(int(11.05 * GIB), 262_144) == pytest.approx(623_873, rel=0.003)  # a block more or less


def test_draft_tokens_have_states_of_their_own() -> None:
    alone, drafting = (cache(QWEN3_6_35B, states=States(2, draft_tokens=tokens)) for tokens in (0, 3))
    assert [group.states for group in (*alone.groups, *drafting.groups)] == [1] * 4 + [4] * 4
    assert drafting.bytes_for(1) > 2.5 * alone.bytes_for(1)


@pytest.mark.parametrize(
    ("config", "state"),
    [
        # NVIDIA's Nemotron 3 Nano and IBM's Granite 4 H, as their config.json files have them
        (
            {
                "model_type": "nemotron_h",
                "hybrid_override_pattern": "MEM*E-M",
                "num_hidden_layers": 7,
                "mamba_num_heads": 64,
                "mamba_head_dim": 64,
                "ssm_state_size": 128,
                "n_groups": 8,
                "conv_kernel": 4,
            },
            State(64 * 64 + 2 * 8 * 128, 3, 64, 64 * 128, 4096, "float32"),
        ),
        (
            {
                "layer_types": ["mamba", "attention", "mamba", "mamba"],
                "num_hidden_layers": 4,
                "mamba_n_heads": 48,
                "mamba_d_head": 64,
                "mamba_d_state": 128,
                "mamba_n_groups": 1,
                "mamba_d_conv": 4,
            },
            State(48 * 64 + 2 * 128, 3, 48, 64 * 128, 3072),
        ),
    ],
)
def test_mamba_layers_keep_states(config: dict[str, Any], state: State) -> None:
    layers = shape_of(facts({**LLAMA_8B, **config})).layers
    assert [layer.state for layer in layers] in ([state, state, None, state], [state, None, state, state])


def test_sparse_attention_has_an_index_beside_its_latent() -> None:
    """GLM-5's have 132 bytes a token (LMCache issue 3339); GLM-5.2 has 21 of them in 78 layers (ROCm/ATOM 2142)."""
    glm = {**QWEN3_14B, "num_hidden_layers": 78, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    sparse = {**glm, "index_topk": 2048, "index_head_dim": 128}
    shared = {**sparse, "index_topk_freq": 4}
    listed = {**sparse, "index_topk_pattern": "F" * 21 + "S" * 57}
    dense, *indexed = (cache(config, block_size=64) for config in (glm, sparse, shared, listed))
    assert [one.bytes_per_block - dense.bytes_per_block for one in indexed] == [64 * 132 * n for n in (78, 21, 21)]


def test_windows_make_a_long_request_cheaper() -> None:
    """gpt-oss-20b: vLLM 0.19 said that 131,072 tokens need 3.1 GiB."""
    assert cache(GPT_OSS_20B).bytes_for(131072) / GIB == pytest.approx(3.1, abs=0.05)


def test_a_logged_number_of_blocks() -> None:
    """gpt-oss-120b, vLLM 0.11.2: 8.99 GiB, two groups of 65,480 tokens in blocks of 16."""
    planned = cache(GPT_OSS_120B)
    assert [group.layers for group in planned.groups] == [18, 18]
    assert planned.blocks(int(8.99 * GIB)) / 2 * 16 == pytest.approx(130_960, rel=0.001)


@pytest.mark.parametrize(
    ("target", "drafter_layers", "factor", "groups"),
    [
        (GPT_OSS_20B, 1, 1.5, {12, 13}),
        (GPT_OSS_20B, 4, 1.5, {12, 16}),  # padded to 16: one group for all drafter layers
        (GPT_OSS_20B, 4, 1.25, {12, 8}),  # before 0.18.1: the head's layers fall into two groups
        (GPT_OSS_120B, 4, 1.25, {18, 22}),
    ],
)
def test_a_head_joins_the_full_layers(
    target: dict[str, Any], drafter_layers: int, factor: float, groups: set[int]
) -> None:
    head = {**GPT_OSS_HEAD, "num_hidden_layers": drafter_layers}
    planned = cache(target, head, group_factor=factor)
    assert {group.layers for group in planned.groups} == groups
    assert planned.bytes_per_block == (12 if groups == {12, 8} else max(groups)) * 2 * 8 * 64 * 2 * 16


def test_smaller_pages_take_more_tokens() -> None:
    planned = cache(GEMMA_4_31B)
    sliding, full = (Attention(16, 256, 256, "sliding", 1024), Attention(4, 512, 512))
    assert planned.groups == (*[Group(sliding, 10, 16)] * 5, Group(full, 10, 32))
    assert planned.bytes_per_block == 10 * 16 * 256 * 2 * 2 * 16


def test_pages_that_do_not_come_out_even_are_padded() -> None:
    planned = plan([FULL, Attention(3, 64, 64, "sliding", 128)], value_bytes=2, block_size=16, in_flight_tokens=64)
    assert {group.block_size for group in planned.groups} == {16}
    assert planned.bytes_per_block == 3 * 128 * 2 * 16


@pytest.mark.parametrize(("full", "layers_per_group"), [(11, [11, 8]), (12, [6, 6, 8])])
def test_kinds_of_layers_are_padded_to_one_group_below_one_and_a_half_times(
    full: int, layers_per_group: list[int]
) -> None:
    planned = plan([FULL] * full + [SLIDING] * 8, value_bytes=2, block_size=16, in_flight_tokens=64)
    assert [group.layers for group in planned.groups] == layers_per_group


def test_drafters_of_another_size_share_the_table_where_all_attention_is_full() -> None:
    planned = plan([FULL] * 4 + [Attention(1, 32, 32)] * 2, value_bytes=2, block_size=16, in_flight_tokens=64)
    assert len(planned.groups) == 1
    assert planned.bytes_per_block == 16 * 2 * (4 * 2 * 128 + 2 * 64)


def test_without_the_hybrid_cache_every_layer_keeps_every_token() -> None:
    assert cache(GPT_OSS_20B, hybrid=False).blocks_per_request(1600) == 100
    assert cache(GPT_OSS_20B).blocks_per_request(160_000) == 10_000 + 137


def test_a_window_keeps_the_tokens_in_flight() -> None:
    def blocks(tokens: int, in_flight: int, attention: Attention = SLIDING) -> int:
        return Group(attention, 1, 16).blocks_per_request(tokens, in_flight)

    assert blocks(10_000, 64) == (127 + 64 + 15) // 16 + 1
    assert blocks(100, 64) == 7 + 1
    assert blocks(10_000, 64, Attention(2, 64, 64, "chunked", 128)) == (128 + 64) // 16


def test_vllm_reserves_one_block() -> None:
    planned = cache(QWEN3_14B)
    assert planned.bytes_for(1600) == (100 + 1) * planned.bytes_per_block


def test_kv_heads_are_copied_where_there_are_fewer_than_accelerators() -> None:
    four, eight = (cache(QWEN3_CODER_30B, tensor_parallel=size).bytes_per_block for size in (4, 8))
    assert four == eight


def test_the_largest_context_is_the_longest_that_still_fits() -> None:
    planned, memory = cache(GPT_OSS_20B), GIB
    longest = planned.largest_context(memory, 131072)
    assert planned.bytes_for(longest) <= memory < planned.bytes_for(longest + 1)
    assert planned.largest_context(100 * GIB, 131072) == 131072
    assert planned.largest_context(0, 131072) == 0


@pytest.mark.parametrize(("flag", "size"), [("auto", 4), ("fp8", 1), ("bfloat16", 2)])
def test_kv_cache_dtype(flag: str, size: int) -> None:
    assert value_bytes(flag, dtype_bytes=4) == size


def test_an_unknown_kv_cache_dtype_is_named() -> None:
    with pytest.raises(ToolkitError, match="cannot estimate memory with kv-cache-dtype nvfp4"):
        value_bytes("nvfp4", dtype_bytes=2)
