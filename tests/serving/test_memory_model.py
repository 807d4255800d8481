"""The memory model against a real vLLM: the same blocks, KV tokens and concurrency, and the weights that it loads.

The models are shapes without weights (`load_format="dummy"`), started one after the other in one process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toolkit.recipe.facts import ModelFacts
from toolkit.sizing.fit import cache_of
from toolkit.sizing.settings import Settings
from toolkit.sizing.shape import Shape, shape_of
from toolkit.sizing.weights import rank_bytes

pytestmark = pytest.mark.serving

KV_CACHE_BYTES = 64 * 1024**2
MAX_MODEL_LEN, TOKENS_PER_STEP = 2048, 256

START = """
import gc, json, sys
from vllm import LLM
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.model_executor.layers import utils

# On a CPU, layers swap their weights for packed ones that no longer count as parameters: keep them.
def keep_weights(layer, remove_weight, pack=utils.dispatch_cpu_unquantized_gemm):
    pack(layer, remove_weight=False)

utils.dispatch_cpu_unquantized_gemm = keep_weights

def size(model):
    return sum({p.data_ptr(): p.numel() * p.element_size() for p in model.parameters()}.values())

for arguments in json.load(sys.stdin):
    llm = LLM(**arguments)
    cache = llm.llm_engine.vllm_config.cache_config
    core = llm.llm_engine.engine_core.engine_core
    runner = core.model_executor.driver_worker.worker.model_runner
    drafter = getattr(runner, "drafter", None)
    print("RESULT" + json.dumps({
        "blocks": cache.num_gpu_blocks,
        "tokens": cache.kv_cache_size_tokens,
        "concurrency": cache.kv_cache_max_concurrency,
        "target_bytes": size(runner.model),
        "drafter_bytes": size(drafter.model) if drafter else 0,
    }), flush=True)
    core.shutdown()
    del llm, core, runner, drafter
    cleanup_dist_env_and_memory()
    gc.collect()
"""

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


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What vLLM says of every case."""
    root = tmp_path_factory.mktemp("shapes")
    arguments = [llm_arguments(case, root / str(number)) for number, case in enumerate(CASES.values())]
    done = subprocess.run(
        [sys.executable, "-c", START],
        input=json.dumps(arguments),
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "HF_HUB_OFFLINE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
        },
        capture_output=True,
        text=True,
        timeout=280,
    )
    lines = [line.removeprefix("RESULT") for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert len(lines) == len(CASES), done.stderr[-4000:]
    return dict(zip(CASES, map(json.loads, lines), strict=True))


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


@pytest.mark.parametrize("name", CASES)
def test_the_kv_cache_is_the_engines(name: str, measured: dict[str, dict[str, Any]]) -> None:
    case = CASES[name]
    settings = Settings(MAX_MODEL_LEN, 4, TOKENS_PER_STEP, 0, dtype=case.dtype, block_size=case.block_size)
    planned = cache_of(*shapes(case), settings, on_cpu=True)
    assert {
        "blocks": planned.blocks(KV_CACHE_BYTES),
        "tokens": planned.tokens(KV_CACHE_BYTES, MAX_MODEL_LEN),
        "concurrency": planned.max_concurrency(KV_CACHE_BYTES, MAX_MODEL_LEN),
    } == {key: measured[name][key] for key in ("blocks", "tokens", "concurrency")}


@pytest.mark.parametrize("name", CASES)
def test_the_weights_are_the_engines(name: str, measured: dict[str, dict[str, Any]]) -> None:
    case = CASES[name]
    assert rank_bytes(facts(case.target), 1, case.dtype) == pytest.approx(measured[name]["target_bytes"], rel=0.01)
    if case.drafter:
        drafter = rank_bytes(facts(case.drafter), 1, case.dtype)
        assert drafter == pytest.approx(measured[name]["drafter_bytes"], rel=0.05)
