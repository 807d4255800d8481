"""The memory model against a real vLLM: the same blocks, KV tokens and concurrency, the weights that it loads, and what
its process grows by.

The models are shapes without weights (`load_format="dummy"`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from forked_vllm import ForkedVllm

from toolkit.engines.vllm.memory import cache_of
from toolkit.engines.vllm.settings import Settings
from toolkit.recipe.facts import ModelFacts
from toolkit.sizing.shape import Shape, shape_of
from toolkit.sizing.weights import DTYPE_BYTES, rank_bytes

pytestmark = pytest.mark.serving

KV_CACHE_BYTES = 64 * 1024**2
MAX_MODEL_LEN, TOKENS_PER_STEP = 2048, 256

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
QWEN = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": True}
HYBRID = {**LLAMA, "sliding_window": 256, "layer_types": ["sliding_attention", "full_attention"] * 2}
GEMMA = {
    **LLAMA,
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_hidden_layers": 6,
    "tie_word_embeddings": True,
    "sliding_window": 256,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
}
HEAD = {
    **LLAMA,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 512,
    "num_aux_hidden_states": 3,
    "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
    "ptd_token_id": 3,
}


@dataclass(frozen=True)
class Case:
    """A model, how it is served, and what drafts for it."""

    target: Mapping[str, Any]
    drafter: Mapping[str, Any] | None = None
    speculation: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "bfloat16"
    block_size: int | None = None


EAGLE3 = {"method": "eagle3", "num_speculative_tokens": 3}
P_EAGLE = {"method": "eagle3", "num_speculative_tokens": 4, "parallel_drafting": True}
DRAFT_MODEL = {"method": "draft_model", "num_speculative_tokens": 3}

CASES = {
    "grouped heads, float32": Case(QWEN, dtype="float32"),
    "one KV head per head, small blocks": Case({**LLAMA, "num_key_value_heads": 4}, block_size=32),
    "windows": Case(HYBRID, block_size=32),
    "five windows to one": Case(GEMMA),
    "EAGLE-3 head": Case(LLAMA, HEAD, EAGLE3, dtype="float32"),
    "windows and an EAGLE-3 head": Case(HYBRID, HEAD, EAGLE3, block_size=64),
    "windows and a P-EAGLE head": Case(HYBRID, HEAD, P_EAGLE),
    "P-EAGLE head of two layers": Case(LLAMA, {**HEAD, "num_hidden_layers": 2}, P_EAGLE),
    "P-EAGLE head with heads of its own": Case(LLAMA, {**HEAD, "num_key_value_heads": 4}, P_EAGLE),
    "draft model": Case(
        QWEN, {**QWEN, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}, DRAFT_MODEL
    ),
}


LARGE = {
    **LLAMA,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 8192,
}
LARGE_QWEN = {**LARGE, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": True}
LARGE_CASES = {
    "bfloat16": Case(LARGE),
    "float32, tied": Case(LARGE_QWEN, dtype="float32"),
    "draft model": Case(LARGE, {**LARGE, "hidden_size": 512, "head_dim": 32, "num_hidden_layers": 4}, DRAFT_MODEL),
}
LARGE_KV_CACHE_BYTES = 256 * 1024**2


@dataclass(frozen=True)
class Started:
    """A case, and what vLLM says of it."""

    case: Case
    sizes: Mapping[str, Any]


@pytest.fixture(scope="module", params=CASES)
def started(request: pytest.FixtureRequest, vllm: ForkedVllm, tmp_path_factory: pytest.TempPathFactory) -> Started:
    case = CASES[request.param]
    return Started(case, vllm.run("sizes", arguments=llm_arguments(case, tmp_path_factory.mktemp("shape"))))


@pytest.fixture(scope="module")
def grown(vllm: ForkedVllm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the process grew by with every large case."""
    root = tmp_path_factory.mktemp("large")
    first = llm_arguments(Case(LLAMA), root / "first")
    arguments = [llm_arguments(case, root / str(number)) for number, case in enumerate(LARGE_CASES.values())]
    large = [{**one, "kv_cache_memory_bytes": LARGE_KV_CACHE_BYTES} for one in arguments]
    return dict(zip(LARGE_CASES, vllm.run("growth", first=first, arguments=large), strict=True))


def llm_arguments(case: Case, folder: Path) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": write_config(folder / "target", case.target),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "dtype": case.dtype,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": 4,
        "max_num_batched_tokens": TOKENS_PER_STEP,
        "kv_cache_memory_bytes": KV_CACHE_BYTES,
        "block_size": case.block_size,
    }
    if case.drafter:
        arguments["speculative_config"] = {**case.speculation, "model": write_config(folder / "drafter", case.drafter)}
    return arguments


def write_config(folder: Path, config: Mapping[str, Any]) -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def facts(config: Mapping[str, Any]) -> ModelFacts:
    return ModelFacts("a model", "a test", config, tensors=None, tokenizer=None)


def shapes(case: Case) -> tuple[Shape, Shape | None]:
    return shape_of(facts(case.target)), shape_of(facts(case.drafter)) if case.drafter else None


def test_the_kv_cache_is_the_engines(started: Started) -> None:
    case = started.case
    settings = Settings(MAX_MODEL_LEN, 4, TOKENS_PER_STEP, 0, dtype=case.dtype, block_size=case.block_size)
    planned = cache_of(*shapes(case), settings, on_cpu=True)
    assert {
        "blocks": planned.blocks(KV_CACHE_BYTES),
        "tokens": planned.tokens(KV_CACHE_BYTES, MAX_MODEL_LEN),
        "concurrency": planned.max_concurrency(KV_CACHE_BYTES, MAX_MODEL_LEN),
    } == {key: started.sizes[key] for key in ("blocks", "tokens", "concurrency")}


def test_the_weights_are_the_engines(started: Started) -> None:
    case = started.case
    assert rank_bytes(facts(case.target), 1, case.dtype) == pytest.approx(started.sizes["target_bytes"], rel=0.01)
    if case.drafter:
        drafter = rank_bytes(facts(case.drafter), 1, case.dtype)
        assert drafter == pytest.approx(started.sizes["drafter_bytes"], rel=0.05)


@pytest.mark.parametrize("name", LARGE_CASES)
def test_the_process_grows_by_weights_and_kv_cache(name: str, grown: dict[str, dict[str, Any]]) -> None:
    """On a CPU with arithmetic in their dtype the token tables are there twice: as they are, and packed for it.

    vllm/model_executor/layers/vocab_parallel_embedding.py packs them and keeps what it has packed.
    """
    case = LARGE_CASES[name]
    settings = Settings(MAX_MODEL_LEN, 4, TOKENS_PER_STEP, 0, dtype=case.dtype)
    cache = cache_of(*shapes(case), settings, on_cpu=True)
    kv_cache = cache.blocks(LARGE_KV_CACHE_BYTES) * cache.bytes_per_block
    assert kv_cache == grown[name]["kv_cache"]
    models = [case.target, *([case.drafter] if case.drafter else [])]
    weights = sum(rank_bytes(facts(model), 1, case.dtype) for model in models)
    tables = sum(2 * model["vocab_size"] * model["hidden_size"] * DTYPE_BYTES[case.dtype] for model in models)
    packed = tables if grown[name]["packs"] else 0
    assert grown[name]["grown"] == pytest.approx(weights + kv_cache + packed, rel=0.02)
