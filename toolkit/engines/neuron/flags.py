"""Flags and environment of the engines for Trainium, by generation.

Sources: awsdocs-neuron (vllm-neuron features guide, configuration reference and EAGLE-3 tutorials, NxD Inference's vLLM
user guide and its tutorial on speculative decoding), github vllm-project/vllm-neuron (examples of DFlash) and
aws-neuron/aws-neuron-eks-samples, and the loaders' own source. Unverified: none of it was run on Trainium.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.catalog.trainium import family
from toolkit.engines.arguments import drafter_path
from toolkit.engines.neuron.generations import ami_release, generation_of, too_new_driver
from toolkit.engines.vllm.flags import limits, run_no_model_code, switched_off
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import EngineSection, SpeculationSection

# Older versions are the fork of vLLM V0. From this version on, a vLLM V1 plugin reads --additional-config.
PLUGIN_SINCE = "0.10.0"
# Tokens in a KV cache block of vllm-neuron: its own default (configuration reference).
_BLOCK_TOKENS = 32
# One KV cache block is never used for requests (vLLM, v1/core/block_pool.py).
_NULL_BLOCKS = 1
# vLLM's default of 600 s is too short for GPT-OSS (quickstart); vllm-neuron's examples of DFlash use this value.
_COMPILE_SECONDS = "3600"
# The native route is the default from this version on, but only where it is named are its traces kept below
# VLLM_CACHE_ROOT (how-to-precompile-cache, 2026-10-13).
_PRECOMPILE_SINCE = "0.29.0"
# Features that DFlash does not support yet (features guide, DFlash).
_DFLASH_FLAGS = (
    "no-async-scheduling",
    "no-enable-chunked-prefill",
    "no-enable-prefix-caching",
    "disable-hybrid-kv-cache-manager",
)
CONFIG_FLAGS = ("additional-config", "override-neuron-config")
"""Flags with mappings, in which the toolkit's and the recipe's keys are merged."""


def is_fork(recipe: Recipe) -> bool:
    """Whether the engine is the fork of vLLM V0."""
    return recipe.engine.name == "nxd-inference" and lookup.older(recipe.engine.version, PLUGIN_SINCE)


def vllm_version(recipe: Recipe) -> str:
    """The version of vLLM, with which that of every engine here begins."""
    return ".".join(recipe.engine.version.split(".")[:3])


def neuron_flags(recipe: Recipe) -> dict[str, Any]:
    """All flags besides engine.args, which take precedence."""
    drafter = drafter_path(recipe)
    if is_fork(recipe):
        flags = _fork(recipe, drafter)
    elif recipe.engine.name == "nxd-inference":
        flags = _plugin(recipe, drafter)
    else:
        flags = _vllm_neuron(recipe, drafter)
    args = recipe.engine.args
    written = {flag: args[flag] for flag in flags.keys() & args.keys()}
    own = {flag: value for flag in CONFIG_FLAGS if isinstance(value := written.get(flag), dict)}
    together = {flag: _merge(flags[flag], value) for flag, value in own.items()}
    return {**limits(recipe), **flags, **written, **together}


def neuron_variables(recipe: Recipe) -> dict[str, str]:
    """Environment that a generation needs, unless engine.env sets it, with the drivers that its runtime works with."""
    off = switched_off(recipe, vllm_version(recipe))
    needed = {**run_no_model_code(recipe), **off, **_driver_variables(recipe)}
    if is_fork(recipe):
        needed |= {"VLLM_USE_V1": "0", "VLLM_NEURON_FRAMEWORK": "neuronx-distributed-inference"}
    elif recipe.engine.name == "vllm-neuron":
        names = ("VLLM_NEURON_COMPILATION_TIMEOUT", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS")
        needed |= dict.fromkeys(names, _COMPILE_SECONDS)
        if not lookup.older(recipe.engine.version, _PRECOMPILE_SINCE):
            needed["VLLM_NEURON_BACKEND"] = "neuron_native"
    return {**needed, **{name: value for name, value in recipe.engine.env.items() if name in needed}}


def _driver_variables(recipe: Recipe) -> dict[str, str]:
    """What the container compares the host's driver with: the oldest, the first that is too new, and a fitting AMI."""
    generation, on = generation_of(recipe.engine), family(recipe.platform.types[0])
    if generation is None:
        return {}
    too_new = too_new_driver(generation)
    told = {
        "TOOLKIT_NEURON_DRIVER": generation.drivers.get(on),
        "TOOLKIT_NEURON_DRIVER_BELOW": too_new,
        "TOOLKIT_NEURON_AMI": str(ami_release(generation, on)) if too_new else None,
    }
    return {name: value for name, value in told.items() if value}


def _fork(recipe: Recipe, drafter: str) -> dict[str, Any]:
    """Flags of the V0 fork, as in NxD Inference's tutorial.

    `method` only has to pass vLLM's own check; an EAGLE head would need `enable_eagle_speculation`. The drafter's own
    `max_model_len` need not be longer than the requests.
    """
    config: dict[str, Any] = {"save_sharded_checkpoint": True}
    if recipe.speculation is None:
        return {"override-neuron-config": config}
    speculative = {**_speculative(recipe.speculation, drafter), "method": "eagle"}
    if recipe.engine.max_model_len:
        speculative["max_model_len"] = recipe.engine.max_model_len
    config["enable_fused_speculation"] = True
    return {"override-neuron-config": config, "speculative-config": speculative}


def _plugin(recipe: Recipe, drafter: str) -> dict[str, Any]:
    """Flags of NxD Inference under vLLM V1. Its KV cache is contiguous: one block for each request.

    Its loader drafts with whatever is named (fused); that it is an EAGLE-3 head, only NxD Inference's own keys say.
    """
    config: dict[str, Any] = {"save_sharded_checkpoint": True}
    flags = {
        "additional-config": {"override_neuron_config": config},
        "num-gpu-blocks-override": recipe.engine.max_num_seqs,
    }
    if recipe.speculation is None:
        return flags
    config |= dict.fromkeys(("enable_fused_speculation", "enable_eagle_speculation", "is_eagle3"), True)
    return {**flags, "speculative-config": _speculative(recipe.speculation, drafter)}


def _vllm_neuron(recipe: Recipe, drafter: str) -> dict[str, Any]:
    """Flags of vllm-neuron. Rejection sampling on the device is greedy. A baseline keeps all flags but the drafter."""
    speculation = recipe.speculation
    alike = speculation or recipe.baseline_of
    if alike and alike.method == "dflash":
        flags = _dflash(recipe.engine, alike.num_speculative_tokens)
    else:
        flags = {"additional-config": {"neuron_config": {"on_device_sampling_config": {"all_greedy": True}}}}
    return {**flags, "speculative-config": _speculative(speculation, drafter)} if speculation else flags


def dflash_blocks(length: int, requests: int, k: int) -> int:
    """The blocks that a KV cache needs for that many requests of `length` tokens, each with K draft tokens."""
    return -(-(length + k) // _BLOCK_TOKENS) * requests + _NULL_BLOCKS


def _dflash(engine: EngineSection, k: int) -> dict[str, Any]:
    """Flags for DFlash: bfloat16 and no greedy sampling, because nothing else was validated.

    Prompts are processed whole. A larger KV cache slows writing to it, and its default is all free memory.
    """
    flags: dict[str, Any] = {**dict.fromkeys(_DFLASH_FLAGS, True), "dtype": "bfloat16"}
    flags["additional-config"] = {"neuron_config": {"quantization": "bf16"}}
    if engine.max_model_len:
        flags["num-gpu-blocks-override"] = dflash_blocks(engine.max_model_len, engine.max_num_seqs, k)
        flags["max-num-batched-tokens"] = engine.max_num_batched_tokens or engine.max_model_len
    return flags


def _speculative(speculation: SpeculationSection, drafter: str) -> dict[str, Any]:
    """The speculative configuration. `revision` pins a drafter that the engine itself downloads."""
    source = speculation.drafter
    pin = {"revision": source.revision} if source and source.revision and drafter == source.model else {}
    return {
        "method": speculation.method,
        **({"model": drafter} if drafter else {}),
        "num_speculative_tokens": speculation.num_speculative_tokens,
        **pin,
    }


def _merge(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings, merged recursively."""
    merged = dict(ours)
    for key, value in theirs.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
