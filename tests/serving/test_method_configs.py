"""A real vLLM takes what the toolkit writes for each drafting method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from forked_vllm import ForkedVllm
from pairs import write_recipe

from toolkit.catalog import methods
from toolkit.engines.arguments import environment
from toolkit.loading import load

pytestmark = pytest.mark.serving

_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 1024,
    "torch_dtype": "float32",
}
Config = Mapping[str, Any]
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **_SIZES}
MIMO = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": 1, **_SIZES}
DSPARK = {**LLAMA, "architectures": ["Qwen3DSparkModel"], "model_type": "qwen3"}

# Target, drafter, the recipe's `speculation` and its method.
CASES: list[tuple[Config, Config | None, str, str]] = [
    (LLAMA, None, "method: ngram, prompt_lookup_max: 4", "ngram"),
    (LLAMA, None, "method: ngram_gpu, prompt_lookup_min: 2", "ngram_gpu"),
    (LLAMA, LLAMA, "method: draft-model, use_heterogeneous_vocab: true", "draft-model"),
    (LLAMA, DSPARK, "method: dspark, enable_adaptive_verification: true", "dspark"),
    (MIMO, None, "method: mtp, max_model_len: 512", "mtp"),
    (MIMO, None, "method: mimo_mtp, rejection_sample_method: block", "mimo_mtp"),
    (LLAMA, LLAMA, "method: eagle, draft_sample_method: probabilistic", "eagle"),
    (LLAMA, LLAMA, "method: draft-model, attention_backend: CPU_ATTN, enforce_eager: true", "draft-model"),
    (LLAMA, DSPARK, "method: dspark, kv_cache_dtype: auto, moe_backend: triton", "dspark"),
]


def test_vllm_reads_the_configurations_as_the_table_has_them(vllm: ForkedVllm, tmp_path: Path) -> None:
    """Method, K and draft slots; no weights are needed for that."""
    read = vllm.run("speculation", cases=[_case(tmp_path / str(number), *case) for number, case in enumerate(CASES)])

    expected = []
    for _, _, speculation, name in CASES:
        facts = methods.method(name)
        k = facts.default_num_speculative_tokens
        expected.append(
            [
                speculation,
                facts.engines["vllm"].method.replace("mimo_mtp", "mtp"),
                k,
                facts.engines["vllm"].draft_slots(k),
            ]
        )
    assert [[case[2], *found] for case, found in zip(CASES, read, strict=True)] == expected


def _case(root: Path, target: Config, drafter: Config | None, speculation: str, _: str) -> dict[str, Any]:
    root.mkdir()
    _folder(root / "target", target)
    if drafter:
        _folder(root / "drafter", drafter)
        speculation += ", model: ./drafter"
    recipe = load(write_recipe(root, RECIPE % speculation))
    written = json.loads(environment(recipe)["SM_VLLM_SPECULATIVE_CONFIG"])
    return {
        "target": str(root / "target"),
        "speculative_config": {**written, **({"model": str(root / "drafter")} if drafter else {})},
    }


RECIPE = """\
name: a
target: {model: ./target}
speculation: {%s}
engine: {version: 0.32.0}
platform: {name: local}
"""


def _folder(path: Path, config: Mapping[str, Any]) -> str:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return str(path)
