"""What public issues of vLLM report to fail or to be slow, and the files of the models show before a deployment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.vllm.setting_checks import RUNNER_VARIABLE, fewer_accepted, runs_on_v1
from toolkit.errors import ToolkitError
from toolkit.findings import Finding, Severity
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.sizing.shape import shape_of

_DRAFTER, _LENGTH = "speculation.model", "engine.max_model_len"
_BACKEND, _BACKEND_VARIABLE = "attention-backend", "VLLM_ATTENTION_BACKEND"
_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
# Pages of layers without attention are padded to those of a drafter there: v1/core/kv_cache_utils.py.
_PADDED_PAGES_SINCE = "0.32.0"
# 0.26.0 refuses fewer draft tokens than a DSpark block has, 0.32.0 does not: config/speculative.py.
_WHOLE_BLOCKS_SINCE, _WHOLE_BLOCKS_UNTIL = "0.26.0", "0.32.0"
_HOPPER, _BLACKWELL = 9.0, 10.0


def check_threads(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on drafter, attention backend, KV cache and prefix caching."""
    yield from _sinks(recipe, models.target)
    if recipe.speculation is None:
        return
    yield from _stored_scales(recipe, models.target)
    yield from _prefix_cache(recipe, models.target)
    yield from _whole_blocks(recipe, models.drafter or models.target)
    if runs_on_v1(recipe) and not runs_on_v1(recipe, dense=_is_dense(models.target)):
        yield from fewer_accepted(recipe)  # otherwise check_settings tells
    if models.drafter:
        yield from _positions(recipe, models)
        yield from _one_kind_of_layers(recipe, models.drafter)
        yield from _pages(recipe, models.target)


def _positions(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """A drafter with fewer positions than requests; `check_head_version` covers EAGLE-3 and P-EAGLE heads."""
    assert recipe.speculation
    assert models.drafter
    positions = models.drafter.text_config.get("max_position_embeddings")
    length = recipe.engine.max_model_len or models.target.text_config.get("max_position_embeddings")
    if recipe.speculation.facts.format or not isinstance(positions, int) or not isinstance(length, int):
        return
    if positions >= length:
        return
    if recipe.method == "dflash" and not runs_on_v1(recipe, dense=_is_dense(models.target)):
        message = f"the drafter has {positions} positions, and a longer request ends the engine (vLLM issue 57941)"
        hint = f'Set `max_model_len: {positions}` or less, or `{RUNNER_VARIABLE}: "0"` in engine.env.'
        yield Finding("pair.positions", message, _LENGTH, hint=hint)
    else:
        message = f"the drafter has {positions} positions: beyond them, requests run without speculation"
        yield Finding("pair.positions", message, _LENGTH, hint="Use a drafter for longer texts.", severity="warning")


def _one_kind_of_layers(recipe: Recipe, drafter: ModelFacts) -> Iterator[Finding]:
    """The V1 runner asserts that "all drafting layers should belong to the same kv cache group" (issue 33133)."""
    assert recipe.speculation
    kinds = _kinds(drafter)
    if recipe.speculation.facts.kind == "model" and len(kinds) > 1:
        names = " and ".join(sorted(kinds))
        message = f"the draft model has {names} layers, and {recipe.engine.name} drafts with layers of one kind"
        hint = "Use a draft model with one kind of attention, or a head (vLLM issues 33133, 49112)."
        severity: Severity = "error" if runs_on_v1(recipe) else "warning"
        yield Finding("engine.kv-groups", message, _DRAFTER, hint=hint, severity=severity)


def _kinds(model: ModelFacts) -> set[str]:
    """The kinds of a model's layers; empty if its config does not tell."""
    if not _all_attention(model.text_config):
        return {str(kind).replace("_", " ") for kind in model.text_config.get("layer_types") or ()}
    try:
        return {f"{layer.kind} attention" for layer in shape_of(model).cached_layers}
    except ToolkitError:  # check_memory reports this
        return set()


def _all_attention(config: Mapping[str, Any]) -> bool:
    """Whether every layer has attention: no convolution, no linear attention and no other state."""
    kinds = config.get("layer_types")
    return not isinstance(kinds, list) or _ATTENTION.issuperset(map(str, kinds))


def _is_dense(target: ModelFacts) -> bool:
    """Whether every layer has attention and one MLP; of a model that cannot be read, nothing is assumed."""
    try:
        return _all_attention(target.text_config) and not shape_of(target).experts
    except ToolkitError:  # check_memory reports this
        return False


def _pages(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Such a target's state has a page size of its own, and a drafter's KV cache another (issues 46480, 43626)."""
    assert recipe.speculation
    has_cache = recipe.method == "dflash" or recipe.speculation.facts.kind == "model"
    old = lookup.older(recipe.engine.version, _PADDED_PAGES_SINCE)
    if has_cache and old and not _all_attention(target.text_config):
        message = "with this target, which has layers without attention, such drafters failed at the start on some GPUs"
        hint = f"Set `version: {_PADDED_PAGES_SINCE}` or newer, or use `method: mtp` (vLLM issues 46480, 43626)."
        yield Finding("engine.kv-groups", message, "engine.version", hint=hint, severity="warning")


def _whole_blocks(recipe: Recipe, drafter: ModelFacts) -> Iterator[Finding]:
    """DSpark's guard of vLLM 0.26 (issue 50012)."""
    assert recipe.speculation
    block, tokens = drafter.text_config.get("dspark_block_size"), recipe.speculation.num_speculative_tokens
    version = recipe.engine.version
    guarded = lookup.older(version, _WHOLE_BLOCKS_UNTIL) and not lookup.older(version, _WHOLE_BLOCKS_SINCE)
    if recipe.method == "dspark" and isinstance(block, int) and tokens < block and guarded:
        refuses = f"{recipe.engine.name} 0.26.0 refuses that"
        message = f"K={tokens} is less than the drafter's block of {block}, and {refuses}"
        hint = f"Set it to {block}, or `version: {_WHOLE_BLOCKS_UNTIL}` or newer (vLLM issue 50012)."
        yield Finding("pair.block", message, "speculation.num_speculative_tokens", hint=hint, severity="warning")


def _older_gpus(recipe: Recipe, capability: float) -> list[str]:
    """The instance types whose GPUs have a lower compute capability."""
    instances = [recipe.platform_rules.instance(name) for name in recipe.platform.types]
    return [one.name for one in instances if one and 0 < float(one.compute_capability or 0) < capability]


def _stored_scales(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """A checkpoint with scales for an FP8 KV cache turns that on, also where kernels lack it (issue 44879)."""
    quantization = target.config.get("quantization_config")
    scales = isinstance(quantization, Mapping) and quantization.get("kv_cache_scheme")
    older = _older_gpus(recipe, _HOPPER)
    if scales and older and "kv-cache-dtype" not in recipe.engine.args:
        message = (
            f"the target stores scales for a KV cache in FP8; on {older[0]} speculation was reported to crash with it"
        )
        hint = "Set `kv-cache-dtype: bfloat16` in engine.args (vLLM issue 44879)."
        yield Finding("engine.kv-scales", message, "target.model", hint=hint, severity="warning")


def _sinks(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """gpt-oss has attention sinks; FlashInfer supports them on Blackwell only (v1/attention/backends/flashinfer.py)."""
    by_flag = recipe.engine.args.get(_BACKEND)
    backend = by_flag or recipe.engine.env.get(_BACKEND_VARIABLE)
    if target.text_config.get("model_type") != "gpt_oss" or str(backend).upper() != "FLASHINFER":
        return
    if older := _older_gpus(recipe, _BLACKWELL):
        message = f"on {older[0]}, FlashInfer does not support the attention sinks of this target"
        path = f"engine.args.{_BACKEND}" if by_flag else f"engine.env.{_BACKEND_VARIABLE}"
        yield Finding("engine.attention-backend", message, path, hint="Remove it: the engine chooses one that does.")


def _prefix_cache(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Reported for Gemma 4 with DFlash and EAGLE-3 (issue 40624) and for linear attention (54360, 51198)."""
    args = recipe.engine.args
    off = args.get("no-enable-prefix-caching") in (True, "true") or args.get("enable-prefix-caching") is False
    assert recipe.speculation
    if off or recipe.speculation.facts.kind not in ("head", "target") or not _uneven(target.text_config):
        return
    message = "with speculation, a target with these kinds of layers may find nothing in its prefix cache"
    hint = "Look at `toolkit metrics` after two requests with the same prompt (vLLM issues 40624, 54360)."
    yield Finding("quality.prefix-cache", message, "target.model", hint=hint, severity="info")


def _uneven(config: Mapping[str, Any]) -> bool:
    """Whether layers have linear attention, or kinds of attention that do not occur equally often."""
    kinds = config.get("layer_types")
    counts = Counter(kinds) if isinstance(kinds, list) else Counter()
    return "linear_attention" in counts or len(set(counts.values())) > 1
