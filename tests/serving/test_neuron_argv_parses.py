"""vLLM's own parser reads the arguments of the recipes for vLLM Neuron, which is a plugin of vLLM.

It judges names and values only: what is in `additional-config` the plugin reads, and that runs on Trainium.
The flags of the fork of vLLM V0 are older than the vLLM that is installed here.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from forked_vllm import ForkedVllm

from toolkit.engines.arguments import environment
from toolkit.loading import load
from toolkit.recipe.known import catalogue
from toolkit.recipe.recipe import Recipe

pytestmark = pytest.mark.serving

ENTRYPOINT = Path(__file__).parents[2] / "containers" / "on-vllm" / "entrypoint.py"
READ = [
    "additional_config",
    "async_scheduling",
    "disable_hybrid_kv_cache_manager",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "hf_overrides",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "num_gpu_blocks_override",
    "speculative_config",
    "tensor_parallel_size",
]


def arms() -> list[Recipe]:
    """The recipes for vLLM Neuron, and their baselines."""
    recipes = [recipe for recipe in map(load, catalogue()) if recipe.engine.name == "vllm-neuron"]
    return [arm for recipe in recipes for arm in (recipe, recipe.baseline())]


def meant(recipe: Recipe) -> dict[str, Any]:
    """Of what is read, the values that the recipe gives; a `no-` flag is its name with False."""
    flags = recipe.flags
    turned_off = {flag.removeprefix("no-"): False for flag in flags if flag.startswith("no-")}
    given = {flag.replace("-", "_"): value for flag, value in {**flags, **turned_off}.items()}
    return {name: given[name] for name in READ if name in given}


def test_vllm_reads_the_flags_as_they_were_meant(tmp_path: Path, vllm: ForkedVllm) -> None:
    options_of = runpy.run_path(str(ENTRYPOINT))["vllm_options"]
    (tmp_path / "config.json").touch()
    command_lines = [[token for option in options_of(environment(arm), tmp_path) for token in option] for arm in arms()]

    read = vllm.run("parse_names", command_lines=command_lines, names=READ)

    expected = [meant(arm) for arm in arms()]
    assert [{name: found[name] for name in wanted} for found, wanted in zip(read, expected, strict=True)] == expected
