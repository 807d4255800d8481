"""Can vLLM load this EAGLE-3 or P-EAGLE head, and does it fit the target?

Formats and messages: vLLM 0.33.0, model_executor/models/llama_eagle3.py and transformers_utils/configs/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.vllm.facts import drafter_known, facts
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import EngineSection
from toolkit.training.job import EAGLE_3_1

HEAD_FORMAT = "eagle3"
"""The name of this head format in methods.json."""

_DRAFTER = "speculation.model"
# amazon/GPT-OSS-20B-P-EAGLE does; of its siblings no file was read.
_STORE_FULL_MAPS = "amazon/"
_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
_DEFAULT_AUX_LAYERS = 3
_AUX_LAYERS = "auxiliary layers x hidden size of the target"


def check_head(recipe: Recipe, target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    """Findings on a head's format, which is the same for all engines that are built on vLLM."""
    tensors = head.tensors or {}
    if prefixed := [name for name in tensors if name.startswith("model.")]:
        message = f"{len(prefixed)} tensors start with `model.` (`{prefixed[0]}`); vLLM adds that prefix itself"
        hint = _convert(head, "Remove the prefix from their names")
        yield Finding("pair.tensor-prefix", message, _DRAFTER, hint=hint)
        return
    yield from _hidden_size(target, head)
    yield from _aux_layers(target, head)
    yield from _vocabulary(target, head)
    if recipe.speculation and recipe.speculation.facts.parallel:
        yield from _mask_hidden(target, head)


def check_head_version(engine: EngineSection, target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    """Findings on a head that depend on vLLM's version; empty if its tensors have wrong names."""
    if any(name.startswith("model.") for name in head.tensors or {}):
        return
    yield from _architecture(engine, head)
    yield from _norms(engine, head)
    yield from _full_map(engine, target, head)
    length = engine.max_model_len or target.text_config.get("max_position_embeddings")
    yield from _positions(engine, _known_positions(head), length)


def _architecture(engine: EngineSection, head: ModelFacts) -> Iterator[Finding]:
    if "speculators_config" in head.config:
        yield from _speculators(engine, head)
        return
    architecture = loaded_architecture(head)
    if architecture and drafter_known(engine.version, architecture) is False:
        named = head.config["architectures"][0]
        message = (
            f"{engine.name} {engine.version} does not know the drafter `{architecture}` (config.json names `{named}`)"
        )
        hint = _convert(head, "Set `architectures` to [LlamaForCausalLMEagle3]")
        yield Finding("pair.architecture", message, _DRAFTER, hint=hint)


def loaded_architecture(head: ModelFacts) -> str:
    """The class that vLLM looks up for it; empty where its config.json names none."""
    named = head.architecture
    return named if not named or named.startswith("Eagle3") or named.endswith("Eagle3") else f"Eagle3{named}"


def _speculators(engine: EngineSection, head: ModelFacts) -> Iterator[Finding]:
    if head.config.get("speculators_model_type") != "peagle":
        return
    known = facts()
    qwen3 = head.text_config.get("model_type") == "qwen3"
    since = known.speculators_qwen3_arch_since if qwen3 else known.speculators_peagle_since
    if lookup.older(engine.version, since):
        message = f"a P-EAGLE head in this speculators format needs {engine.name} {since} or newer"
        yield Finding("pair.speculators-format", message, "engine.version", hint=f"Set `version: {since}` or newer.")
    elif head.config.get("fc_norm"):
        message = f"{engine.name} ignores `fc_norm` in a P-EAGLE head of this format, and cannot load its norms"
        hint = f"Convert the head: toolkit convert {head.model} --out DIR"
        yield Finding("pair.speculators-format", message, _DRAFTER, hint=hint)


def _norms(engine: EngineSection, head: ModelFacts) -> Iterator[Finding]:
    named = [f"`{key}`" for key in EAGLE_3_1 if head.config.get(key)]
    since = facts().head_norms_since
    if named and lookup.older(engine.version, since):
        message = f"{engine.name} {engine.version} lacks norms that this head was trained with ({', '.join(named)})"
        yield Finding("pair.norms", message, "engine.version", hint=f"Set `version: {since}` or newer.")


def _hidden_size(target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    expected = head.config.get("target_hidden_size") or head.text_config.get("target_hidden_size") or head.hidden_size
    if expected != target.hidden_size:
        message = (
            f"the head was trained for a target with hidden size {expected}, and this target has {target.hidden_size}"
        )
        yield Finding("pair.hidden-size", message, _DRAFTER, hint="Use a head that was trained for this target.")
        return
    if head.tensors is None:
        return
    fc, width = head.tensors.get("fc.weight"), _fc_width(target, head)
    if fc is None or fc.shape[-1:] != (width,):
        problem = "is missing" if fc is None else f"is {fc}"
        message = f"tensor `fc.weight` {problem}; it must take {width} values ({_AUX_LAYERS})"
        hint = "Use an EAGLE-3 style head that was trained for this target."
        yield Finding("pair.fc-width", message, _DRAFTER, hint=hint)


def _aux_layers(target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    layers = target.text_config.get("num_hidden_layers")
    listed = head.config.get(_LAYER_IDS) or _eagle_config(head).get(_LAYER_IDS)
    if not isinstance(layers, int) or not isinstance(listed, list):
        return
    if outside := [layer for layer in listed if not (isinstance(layer, int) and 0 <= layer <= layers)]:
        message = f"the head reads layer {outside[0]!r} of the target, which has {layers} layers"
        hint = f"Correct `{_LAYER_IDS}`, or use a head that was trained for this target."
        yield Finding("pair.aux-layers", message, _DRAFTER, hint=hint)


def _vocabulary(target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    if head.vocab_size != target.vocab_size:
        message = f"the head has {head.vocab_size} tokens in its vocabulary, the target {target.vocab_size}"
        yield Finding("pair.vocab-size", message, _DRAFTER, hint="Use a head that was trained for this target.")
        return
    if head.tensors is None:
        return
    drafted = _drafted(head)
    lm_head = head.tensors.get("lm_head.weight")
    if lm_head is not None and lm_head.shape[:1] != (drafted,):
        message = f"`lm_head.weight` is {lm_head}, but by its config.json the head drafts from {drafted} tokens"
        hint = "Set `draft_vocab_size` in the head's config.json."
        yield Finding("pair.draft-vocab-size", message, _DRAFTER, hint=hint)
    if drafted != target.vocab_size and "d2t" not in head.tensors:
        message = (
            f"the head drafts from {drafted} of {target.vocab_size} tokens but has no `d2t` to map them to the target's"
        )
        yield Finding("pair.d2t", message, _DRAFTER, hint="Export the head again, together with `d2t`.")


def _full_map(engine: EngineSection, target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    drafted, refused_from = _drafted(head), facts().full_vocabulary_map_until
    if lookup.older(engine.version, refused_from) or not drafted == head.vocab_size == target.vocab_size:
        return
    if head.tensors is None and head.model.startswith(_STORE_FULL_MAPS):
        message = (
            f"a head of this publisher drafts from all {drafted} tokens and stores a `d2t`, which {engine.name} "
            f"{engine.version} refuses; the lock does not know whether this one does"
        )
        hint = f"Set a `version` before {refused_from}, or read the head's files: toolkit lock RECIPE"
        yield Finding("pair.d2t", message, _DRAFTER, hint=hint, severity="warning")
    if head.tensors is not None and "d2t" in head.tensors:
        message = f"the head drafts from all {drafted} tokens, and {engine.name} {engine.version} then refuses a `d2t`"
        hint = _convert(head, f"Set a `version` before {refused_from}, remove `d2t` from the head")
        yield Finding("pair.d2t", message, _DRAFTER, hint=hint)


def _drafted(head: ModelFacts) -> Any:
    """The number of tokens that the head drafts from."""
    return head.config.get("draft_vocab_size") or head.text_config.get("draft_vocab_size") or head.vocab_size


def check_listed_positions(recipe: Recipe) -> Iterator[Finding]:
    """A finding on a public head whose positions the catalogue knows, for a recipe without a lock."""
    listed = lookup.head(recipe.drafter.model) if recipe.drafter else None
    if listed and listed.positions and recipe.engine.max_model_len:
        yield from _positions(recipe.engine, listed.positions, recipe.engine.max_model_len)


def _positions(engine: EngineSection, positions: Any, length: Any) -> Iterator[Finding]:
    fixed = facts().max_position_crash_until
    if not isinstance(positions, int) or not isinstance(length, int) or positions >= length:
        return
    if lookup.older(engine.version, fixed):
        message = (
            f"the head supports {positions} positions, and a longer request crashes {engine.name} {engine.version}"
        )
        hint = f"Set `max_model_len: {positions}` or less, or `version: {fixed}` or newer."
        yield Finding("pair.positions", message, "engine.max_model_len", hint=hint)


def _known_positions(head: ModelFacts) -> Any:
    """The positions in the head's config, or in the catalogue if the lock has no such key."""
    listed = lookup.head(head.model)
    return head.text_config.get("max_position_embeddings") or (listed.positions if listed else None)


def _mask_hidden(target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    if head.tensors is None:
        return
    mask_hidden, width = head.tensors.get("mask_hidden"), _fc_width(target, head)
    if mask_hidden is None:
        message = "the head has no `mask_hidden` tensor: it cannot draft in parallel"
        yield Finding("pair.mask-hidden", message, _DRAFTER, hint="Use a P-EAGLE head, or set `method: eagle3`.")
    elif mask_hidden.numel != width:
        message = f"`mask_hidden` has {mask_hidden.numel} values, but needs {width} ({_AUX_LAYERS})"
        yield Finding("pair.mask-hidden", message, _DRAFTER, hint="Use a head that was trained for this target.")


def _fc_width(target: ModelFacts, head: ModelFacts) -> int:
    """The number of hidden-state values that the head reads, as vLLM counts them: of three layers by default.

    For Qwen3 heads, vLLM also counts the layer ids at the top of the config; for Llama heads it does not.
    """
    count = head.config.get("num_aux_hidden_states")
    if not isinstance(count, int):
        ids = _eagle_config(head).get(_LAYER_IDS)
        if _is_qwen3(head):
            ids = head.config.get(_LAYER_IDS) or ids
        count = len(ids) if isinstance(ids, list) and ids else _DEFAULT_AUX_LAYERS
    return count * target.hidden_size


def _is_qwen3(head: ModelFacts) -> bool:
    if "speculators_config" in head.config:
        return head.text_config.get("model_type") == "qwen3"
    return any("Qwen3" in str(name) for name in head.config.get("architectures") or ())


def _eagle_config(head: ModelFacts) -> Mapping[str, Any]:
    nested = head.config.get("eagle_config")
    return nested if isinstance(nested, Mapping) else {}


def _convert(head: ModelFacts, edit: str) -> str:
    return f"{edit}, or run: toolkit convert {head.model} --out DIR"
