"""What public issues of vLLM report to fail or to be slow, and settings or files show before a deployment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.lock import Lock
from toolkit.recipe.resolve import Recipe
from toolkit.sizing.shape import shape_of

_DRAFTER, _LENGTH = "speculation.model", "engine.max_model_len"
_BACKEND, _BACKEND_VARIABLE = "attention-backend", "VLLM_ATTENTION_BACKEND"
_CAPTURE = "max-cudagraph-capture-size"
# vLLM pull request 57964: the default runner since then has no limit for the positions of a DFlash drafter.
_V2_RUNNER_SINCE, _RUNNER_VARIABLE = "0.29.0", "VLLM_USE_V2_MODEL_RUNNER"
_BLACKWELL = 10.0


def check_threads(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on drafter, attention backend, CUDA graphs and prefix caching."""
    yield from _sinks(recipe, models.target)
    if recipe.speculation is None:
        return
    yield from _runner(recipe)
    yield from _capture(recipe)
    yield from _prefix_cache(recipe, models.target)
    if models.drafter:
        yield from _positions(recipe, models)
        yield from _one_kind_of_layers(recipe, models.drafter)


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
    on_v1 = lookup.older(recipe.engine.version, _V2_RUNNER_SINCE) or recipe.engine.env.get(_RUNNER_VARIABLE) == "0"
    if recipe.method == "dflash" and not on_v1:
        message = f"the drafter has {positions} positions, and a longer request ends the engine (vLLM issue 57941)"
        hint = f'Set `max_model_len: {positions}` or less, or `{_RUNNER_VARIABLE}: "0"` in engine.env.'
        yield Finding("pair.positions", message, _LENGTH, hint=hint)
    else:
        message = f"the drafter has {positions} positions: beyond them, requests run without speculation"
        yield Finding("pair.positions", message, _LENGTH, hint="Use a drafter for longer texts.", severity="warning")


def _one_kind_of_layers(recipe: Recipe, drafter: ModelFacts) -> Iterator[Finding]:
    """vLLM asserts that "all drafting layers should belong to the same kv cache group" (issue 33133)."""
    assert recipe.speculation
    try:
        kinds = {(layer.kind, layer.reach) for layer in shape_of(drafter).cached_layers}
    except ToolkitError:  # check_memory reports this
        return
    if recipe.speculation.facts.kind == "model" and len(kinds) > 1:
        names = " and ".join(sorted({kind for kind, _ in kinds}))
        message = (
            f"the draft model has layers with {names} attention, and {recipe.engine.name} drafts with one kind only"
        )
        hint = "Use a draft model with one kind of attention, or a head (vLLM issue 33133)."
        yield Finding("engine.kv-groups", message, _DRAFTER, hint=hint)


def _sinks(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """gpt-oss has attention sinks; FlashInfer supports them on Blackwell only (v1/attention/backends/flashinfer.py)."""
    by_flag = recipe.engine.args.get(_BACKEND)
    backend = by_flag or recipe.engine.env.get(_BACKEND_VARIABLE)
    if target.text_config.get("model_type") != "gpt_oss" or str(backend).upper() != "FLASHINFER":
        return
    found = [recipe.platform.rules.instance(name) for name in recipe.platform.instance_types]
    older = [one.name for one in found if one and 0 < float(one.compute_capability or 0) < _BLACKWELL]
    if older:
        message = f"on {older[0]}, FlashInfer does not support the attention sinks of this target"
        path = f"engine.args.{_BACKEND}" if by_flag else f"engine.env.{_BACKEND_VARIABLE}"
        yield Finding("engine.attention-backend", message, path, hint="Remove it: the engine chooses one that does.")


def _runner(recipe: Recipe) -> Iterator[Finding]:
    """EAGLE-3 heads accepted fewer drafts on the V2 runner (issue 40551, open)."""
    if recipe.method != "eagle3" or not recipe.platform.rules.has_instance_types:
        return
    written = recipe.engine.env.get(_RUNNER_VARIABLE)
    if written == "1" or (written is None and not lookup.older(recipe.engine.version, _V2_RUNNER_SINCE)):
        message = "EAGLE-3 heads were reported to accept fewer drafts on the V2 model runner (vLLM issue 40551)"
        hint = f'Compare with `{_RUNNER_VARIABLE}: "0"` in engine.env: toolkit bench.'
        yield Finding("quality.runner", message, "engine.version", hint=hint, severity="warning" if written else "info")


def _capture(recipe: Recipe) -> Iterator[Finding]:
    assert recipe.speculation
    written = recipe.engine.args.get(_CAPTURE)
    per_request = recipe.speculation.num_speculative_tokens + 1
    needed = recipe.engine.max_num_seqs * per_request
    if isinstance(written, int) and not isinstance(written, bool) and 0 < written < needed:
        message = (
            f"CUDA graphs for {written} tokens cover {written // per_request} requests of {per_request} tokens a step; "
            f"larger batches, up to {recipe.engine.max_num_seqs}, run without and are slower"
        )
        hint = f"Set it to {needed}, or lower engine.max_num_seqs."
        yield Finding("engine.capture-size", message, f"engine.args.{_CAPTURE}", hint=hint, severity="warning")


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
