"""vLLM's settings that determine memory use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolkit.catalog import lookup, methods
from toolkit.engines.vllm.facts import facts, kv_group_factor
from toolkit.engines.vllm.kv_cache import GROUP_FACTOR
from toolkit.errors import ToolkitError
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import Recipe

# Read in vLLM's config/cache.py and v1/kv_cache_interface.py: 0.90 in 0.18.1 (0.19 was not looked at); windows kept the
# tokens of one step until 0.25.0, and since 0.26.0 those of both that asynchronous scheduling runs at a time.
_MEMORY_UTILIZATION, _OLD_MEMORY_UTILIZATION, _MEMORY_UTILIZATION_SINCE = 0.92, 0.90, "0.20.0"
_STEPS_IN_FLIGHT_SINCE = "0.26.0"
# Since then "Generative hybrid models support prefix caching" by default (config/model.py).
_CACHED_STATES_SINCE = "0.26.0"
# Its start-up logs say: "CUDA graph memory profiling is enabled (default since v0.21.0)".
_GRAPHS_COUNTED_SINCE = "0.21.0"
# Bytes of sampling per sequence and token of the vocabulary: sorted copies, indices and probabilities of all logits.
# Published, before 0.18: gpt-oss-120b 36.5 (1024 sequences), Qwen3-8B 38.6, Llama-3.1-8B 38; since: gpt-oss-20b 23.5,
# Qwen3-8B 22, Qwen3-32B 25 (1024 sequences), but 36 in two logs of 0.28 and 0.31.
_SAMPLER_SINCE, _SAMPLER_BYTES, _OLD_SAMPLER_BYTES = "0.18.0", 24, 36

LAYERS_VARIABLE = "VLLM_PP_LAYER_PARTITION"
"""How many layers each stage of a pipeline has (vLLM 0.32, distributed/utils.py)."""


@dataclass(frozen=True)
class Settings:
    """vLLM's settings. None means the engine's default for the device, or the model's limit.

    `sampler_bytes_per_logit` is the memory of sampling, per sequence and token of the vocabulary. `graphs_counted`: the
    memory of CUDA graphs is subtracted before the KV cache is planned; else it comes on top of the limit.
    `data_parallel` copies share the experts between them with expert parallelism; each has all else.
    `stage_layers` are the layers of each stage of a pipeline, where the recipe says them.
    `steps_in_flight` is the number of concurrent steps, whose tokens a sliding window keeps in addition.
    """

    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    num_speculative_tokens: int
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    memory_utilization: float = 0.92
    kv_cache_memory_bytes: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int = 1
    stage_layers: tuple[int, ...] = ()
    enforce_eager: bool = False
    hybrid_kv_cache: bool = True
    steps_in_flight: int = 2
    expert_parallel: bool = False
    data_parallel: int = 1
    kv_group_factor: float = GROUP_FACTOR
    prefix_caching_of_states: bool = True
    state_dtype: str = "auto"
    sampler_bytes_per_logit: int = 24
    graphs_counted: bool = True

    def too_many(self, there: int) -> str:
        """What of them needs more accelerators than there are; empty if nothing does."""
        sizes = {
            "tensor-parallel-size": self.tensor_parallel or 1,
            "pipeline-parallel-size": self.pipeline_parallel,
            "data-parallel-size": self.data_parallel,
        }
        if math.prod(sizes.values()) <= there:
            return ""
        return " times ".join(f"{flag} {size}" for flag, size in sizes.items() if size > 1)


def settings_of(recipe: Recipe | None, models: Lock) -> Settings:
    """The recipe's settings, or the engine's defaults for a lock file alone (`recipe` is None).

    Raises ToolkitError for a flag with a value of the wrong type.
    """
    if recipe is None:
        known = facts()
        most = max(item.default_num_speculative_tokens for item in methods.methods() if item.drafter == "required")
        tokens = most if models.drafter else 0
        return Settings(None, known.default_max_num_seqs, known.default_max_num_batched_tokens, tokens)
    engine, flags = recipe.engine, recipe.engine.args
    is_sized = models.drafter is not None or recipe.drafter is None
    return Settings(
        max_model_len=engine.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens or facts().default_max_num_batched_tokens,
        num_speculative_tokens=recipe.speculation.num_speculative_tokens if recipe.speculation and is_sized else 0,
        dtype=str(flags.get("dtype", "auto")),
        kv_cache_dtype=str(flags.get("kv-cache-dtype", "auto")),
        block_size=_whole_number(flags, "block-size"),
        memory_utilization=_memory_utilization(flags, engine.version),
        kv_cache_memory_bytes=_whole_number(flags, "kv-cache-memory-bytes"),
        tensor_parallel=_whole_number(flags, "tensor-parallel-size"),
        pipeline_parallel=_whole_number(flags, "pipeline-parallel-size") or 1,
        stage_layers=_stage_layers(engine.env),
        enforce_eager=_is_on(flags, "enforce-eager", False),
        hybrid_kv_cache=not _is_on(flags, "disable-hybrid-kv-cache-manager", False),
        steps_in_flight=_steps_in_flight(flags, engine.version),
        expert_parallel=_is_on(flags, "enable-expert-parallel", False),
        data_parallel=_whole_number(flags, "data-parallel-size") or 1,
        kv_group_factor=kv_group_factor(engine.version) or GROUP_FACTOR,
        prefix_caching_of_states=_is_on(
            flags, "enable-prefix-caching", not lookup.older(engine.version, _CACHED_STATES_SINCE)
        ),
        state_dtype=str(flags.get("mamba-ssm-cache-dtype", "auto")),
        sampler_bytes_per_logit=sampler_bytes_per_logit(engine.version),
        graphs_counted=not lookup.older(engine.version, _GRAPHS_COUNTED_SINCE),
    )


def sampler_bytes_per_logit(version: str) -> int:
    """Bytes of sampling per sequence and token of the vocabulary in that version of vLLM."""
    return _OLD_SAMPLER_BYTES if lookup.older(version, _SAMPLER_SINCE) else _SAMPLER_BYTES


def _whole_number(flags: Mapping[str, Any], flag: str) -> int | None:
    value = flags.get(flag)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and value.isdigit():
        return int(value)
    hint = "Write it in digits, without a unit."
    raise ToolkitError(f"engine.args.{flag}: {value!r} is not a whole number", hint=hint)


def _stage_layers(env: Mapping[str, str]) -> tuple[int, ...]:
    written = env.get(LAYERS_VARIABLE)
    if written is None:
        return ()
    try:
        return tuple(map(int, written.split(",")))
    except ValueError:
        hint = "Write the layers of each stage, such as `20,16`, or remove it."
        message = f"engine.env.{LAYERS_VARIABLE}: {written!r} is no list of whole numbers"
        raise ToolkitError(message, hint=hint) from None


def _memory_utilization(flags: Mapping[str, Any], version: str) -> float:
    flag, is_old = "gpu-memory-utilization", lookup.older(version, _MEMORY_UTILIZATION_SINCE)
    value = flags.get(flag, _OLD_MEMORY_UTILIZATION if is_old else _MEMORY_UTILIZATION)
    if (share := share_of(value)) is None:
        hint = "Write a number above 0, at most 1."
        raise ToolkitError(f"engine.args.{flag}: {value!r} is not a fraction", hint=hint)
    return share


def share_of(value: Any) -> float | None:
    """A value as a share above 0 and up to 1; None if it is none."""
    try:
        share = float(value)
    except (TypeError, ValueError):
        return None
    return share if 0 < share <= 1 else None


def _steps_in_flight(flags: Mapping[str, Any], version: str) -> int:
    together = not lookup.older(version, _STEPS_IN_FLIGHT_SINCE) and _is_on(flags, "async-scheduling", True)
    return 2 if together else 1


def _is_on(flags: Mapping[str, Any], flag: str, default: bool) -> bool:
    """Whether a flag is on, given the flag itself or its `no-` form."""
    if flags.get(f"no-{flag}") in (True, "true"):
        return False
    return flags[flag] in (True, "true") if flag in flags else default
