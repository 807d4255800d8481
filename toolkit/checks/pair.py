"""Does the drafter fit the target? What would otherwise fail half an hour later, or never get a token accepted.

Formats and messages: vLLM 0.33.0, model_executor/models/llama_eagle3.py and v1/spec_decode/llm_base_proposer.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.lock import Lock
from toolkit.recipe.resolve import Recipe, Speculation

_HEAD_METHODS = ("p-eagle", "eagle3")
_PARALLEL_METHODS = ("p-eagle", "pard")
_DEFAULT_AUX_LAYERS = 3
_AUX_LAYERS = "auxiliary layers x hidden size of the target"
_DRAFTER = "speculation.model"
_K = "speculation.num_speculative_tokens"


def check_pair(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on the pair; nothing for a baseline."""
    if recipe.speculation is None or models.drafter is None:
        return
    if recipe.speculation.method in _HEAD_METHODS:
        yield from _head(recipe.speculation, models.target, models.drafter)
    else:
        yield from _draft_model(models.target, models.drafter)
    if recipe.speculation.method in _PARALLEL_METHODS:
        yield from _mask_token(models.drafter, lookup.engine(recipe.engine.name).mask_token_keys)


def _head(speculation: Speculation, target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    if prefixed := [name for name in head.tensors if name.startswith("model.")]:
        message = f"{len(prefixed)} tensors start with `model.` (`{prefixed[0]}`); vLLM adds that itself and finds none"
        yield Finding("pair.tensor-prefix", message, _DRAFTER, hint="Rename them: drop the leading `model.`.")
        return
    yield from _head_hidden_size(target, head)
    yield from _head_vocabulary(target, head)
    if speculation.method == "p-eagle":
        yield from _mask_hidden(target, head)
        yield from _trained_depth(speculation.num_speculative_tokens, head)


def _head_hidden_size(target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    expected = head.text_config.get("target_hidden_size") or head.hidden_size
    if expected != target.hidden_size:
        message = f"the head was made for a target with hidden size {expected}, this target has {target.hidden_size}"
        yield Finding("pair.hidden-size", message, _DRAFTER, hint="Use the head of this target, or its target.")
        return
    fc, width = head.tensors.get("fc.weight"), _fc_width(target, head)
    if fc is None or fc.shape[-1:] != (width,):
        found = "is missing" if fc is None else f"is {fc}"
        message = f"tensor `fc.weight` {found}; it must take {width} values ({_AUX_LAYERS})"
        yield Finding("pair.fc-width", message, _DRAFTER, hint="The file is not an EAGLE-3 style head of this target.")


def _head_vocabulary(target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    if head.vocab_size != target.vocab_size:
        message = f"the head's vocabulary has {head.vocab_size} tokens, the target's {target.vocab_size}"
        yield Finding("pair.vocab-size", message, _DRAFTER, hint="Use a head that was trained for this target.")
        return
    drafted = head.text_config.get("draft_vocab_size") or head.vocab_size
    lm_head = head.tensors.get("lm_head.weight")
    if lm_head is not None and lm_head.shape[:1] != (drafted,):
        message = f"`lm_head.weight` is {lm_head}, but config.json says that the head drafts from {drafted} tokens"
        hint = "Set `draft_vocab_size` in the head's config.json."
        yield Finding("pair.draft-vocab-size", message, _DRAFTER, hint=hint)
    if drafted != target.vocab_size and "d2t" not in head.tensors:
        message = f"the head drafts from {drafted} of {target.vocab_size} tokens but has no `d2t` to map them back"
        yield Finding("pair.d2t", message, _DRAFTER, hint="Export the head together with its `d2t`.")


def _mask_hidden(target: ModelFacts, head: ModelFacts) -> Iterator[Finding]:
    mask_hidden, width = head.tensors.get("mask_hidden"), _fc_width(target, head)
    if mask_hidden is None:
        message = "the head has no `mask_hidden` tensor: it cannot draft in parallel"
        yield Finding("pair.mask-hidden", message, _DRAFTER, hint="Use a P-EAGLE head, or set `method: eagle3`.")
    elif mask_hidden.numel != width:
        message = f"`mask_hidden` has {mask_hidden.numel} values, {width} are needed ({_AUX_LAYERS})"
        yield Finding("pair.mask-hidden", message, _DRAFTER, hint="Use a head that was trained for this target.")


def _trained_depth(tokens: int, head: ModelFacts) -> Iterator[Finding]:
    depth = head.config.get("num_depths")
    if depth is not None and tokens > depth:
        message = f"K={tokens} is deeper than the head was trained for ({depth}): later tokens will be refused"
        yield Finding("pair.trained-depth", message, _K, hint=f"Use {depth} or less.", severity="warning")


def _draft_model(target: ModelFacts, drafter: ModelFacts) -> Iterator[Finding]:
    if drafter.vocab_size != target.vocab_size:
        message = f"the draft model's vocabulary has {drafter.vocab_size} tokens, the target's {target.vocab_size}"
        yield Finding("pair.vocab-size", message, _DRAFTER, hint="Use a draft model of the same family.")
    elif target.tokenizer and drafter.tokenizer and not target.tokenizer.agrees_with(drafter.tokenizer):
        message = "the two tokenizers give the same text different token ids: hardly a draft would be accepted"
        yield Finding("pair.tokenizer", message, _DRAFTER, hint="Use a draft model with the target's tokenizer.")


def _mask_token(drafter: ModelFacts, keys: tuple[str, ...]) -> Iterator[Finding]:
    found = {key: token for key in keys if (token := _dotted(drafter.config, key)) is not None}
    if not found:
        message = "the drafter's config.json names no mask token, without which it cannot draft in parallel"
        hint = f"Add one of {', '.join(f'`{key}`' for key in keys[1:])}: the id that the drafter was trained with."
        yield Finding("pair.mask-token", message, _DRAFTER, hint=hint)
        return
    key, token = next(iter(found.items()))
    if not 0 <= token < drafter.vocab_size:
        message = f"mask token {token} (`{key}`) is outside the vocabulary of {drafter.vocab_size}"
        yield Finding("pair.mask-token", message, _DRAFTER, hint="Correct it in the drafter's config.json.")


def _fc_width(target: ModelFacts, head: ModelFacts) -> int:
    """Values that the head reads of the target: vLLM takes three layers unless the head's config says otherwise."""
    nested = head.config.get("eagle_config") or {}
    layers = nested.get("eagle_aux_hidden_state_layer_ids")
    count = head.config.get("num_aux_hidden_states") or (len(layers) if layers else _DEFAULT_AUX_LAYERS)
    return int(count) * target.hidden_size


def _dotted(config: Mapping[str, Any], key: str) -> int | None:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) else None
