"""Does what a recipe says of experts and of recurrent states fit its target?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog.lookup import older
from toolkit.engines.vllm.facts import flag_known, names, short_for
from toolkit.engines.vllm.fields import unlike
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.recipe import Recipe

# Keys of a config.json that count experts (vLLM 0.33.0, transformers_utils/model_arch_config_convertor.py).
EXPERT_KEYS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_PARALLEL, _BACKEND, _REPLAY = "enable-expert-parallel", "moe-backend", "use-replayssm"
# "AuxOutput Connector only supports MoE models" (config/vllm.py).
_ROUTED, _ROUTED_CHECKED_SINCE = "enable-return-routed-experts", "0.31.0"
# Keys of a config.json that say in which layers those are (config/engram.py).
_ENGRAM, _ENGRAMS = "engram-config", ("engram_layer_ids", "ple_layer_ids")
_ROUNDING, _STATE, _STATE_KEYS = (
    "enable-mamba-cache-stochastic-rounding",
    "mamba-ssm-cache-dtype",
    ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"),
)


def check_experts(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Findings on flags of experts, and on those of recurrent states."""
    args, config = recipe.engine.args, {**target.config, **target.text_config}
    architecture = target.architecture
    able = names("replayssm", recipe.engine.version)
    if args.get(_REPLAY) is True and able and architecture in {*names("text", recipe.engine.version)} - {*able}:
        message = f"`{_REPLAY}` is not for models such as {architecture}"
        yield Finding("engine.combination", message, f"engine.args.{_REPLAY}", hint="Remove the flag.")
    if "num_hidden_layers" not in config:  # a part of it is known, which may lack the experts
        return
    has_experts = any(config.get(key) for key in (*EXPERT_KEYS, "block_configs"))
    if args.get(_PARALLEL) is True and not has_experts:
        message = "expert parallelism is for models with experts, and the target's config.json has none"
        hint = "Remove the flag; `tensor-parallel-size` divides a dense model."
        yield Finding("engine.experts", message, f"engine.args.{_PARALLEL}", hint=hint)
    if args.get(_ROUTED) is True and not has_experts and not older(recipe.engine.version, _ROUTED_CHECKED_SINCE):
        message = f"`{_ROUTED}` is for models with experts, and the target's config.json has none"
        yield Finding("engine.experts", message, f"engine.args.{_ROUTED}", hint="Remove the flag.")
    engrams = any(config.get(key) for key in _ENGRAMS) or "layer_ids" in str(args.get("hf-overrides"))
    written = next((flag for flag in args if _ENGRAM in (flag, short_for(recipe.engine.version, flag))), "")
    wants_them = args.get(written) not in (None, "None", "null") and flag_known(recipe.engine.version, _ENGRAM)
    if wants_them and not engrams:
        message = f"`{_ENGRAM}` is for models with Engram embeddings, and the target's config.json has none"
        yield Finding("engine.combination", message, f"engine.args.{written}", hint="Remove the flag.")
    backend = args.get(_BACKEND, "auto")
    if has_experts and backend != "auto" and "quantization" not in args:
        yield from _backend(recipe, config, str(backend))
    kept = args.get(_STATE) or next(filter(None, map(config.get, _STATE_KEYS)), "auto")
    if args.get(_ROUNDING) is True and kept != "float16":
        message = f"stochastic rounding is for a state in float16, and `{_STATE}` is {kept}"
        path, hint = f"engine.args.{_ROUNDING}", f"Add `{_STATE}: float16`, or remove the flag."
        yield Finding("engine.combination", message, path, hint=hint)


def _backend(recipe: Recipe, config: Mapping[str, Any], backend: str) -> Iterator[Finding]:
    """vLLM has a table of kernels for each type of weights (model_executor/layers/fused_moe/oracle)."""
    quantization = config.get("quantization_config") or {}
    method = str(quantization.get("quant_method", "")) if isinstance(quantization, Mapping) else "?"
    if "expert_dtype" in {**config, **quantization}:  # its experts have a type of their own (DeepSeek-V4)
        return
    able = names(f"moe_backend_{method or 'unquantized'}", recipe.engine.version)
    if able and backend not in able:
        what = f"experts in {method}" if method else "experts that are not quantized"
        message = f"`{_BACKEND}: {backend}` cannot do {what}"
        hint = unlike(backend, able).hint
        yield Finding("engine.experts", message, f"engine.args.{_BACKEND}", hint=hint)
