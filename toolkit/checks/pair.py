"""Does the drafter fit the target? A wrong pair fails after half an hour, or no draft token is ever accepted.

What only an engine reads in a drafter's files is checked by the engine's own checks. Facts that are missing, because
they were curated from publications, cause no finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolkit.catalog import lookup, methods
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.lock import Lock
from toolkit.recipe.resolve import Recipe

_DRAFTER = "speculation.model"
_K = "speculation.num_speculative_tokens"
# The same model in another precision has the same hidden states, up to rounding.
_PRECISION = re.compile(r"-(fp8|fp8-block|nvfp4|mxfp4|awq|gptq|int4|int8|bf16)$")


def check_pair(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on the pair; empty without a drafter."""
    if recipe.speculation is None or models.drafter is None:
        return
    target, drafter = models.target, models.drafter
    if not recipe.speculation.facts.format:  # else the engine looks into its files
        yield from _vocabulary(target, drafter)
    yield from _trained_for(recipe, models)
    yield from _depth(recipe, drafter)
    yield from _precision(recipe, drafter)


def _vocabulary(target: ModelFacts, drafter: ModelFacts) -> Iterator[Finding]:
    if drafter.vocab_size != target.vocab_size:
        message = f"the draft model has {drafter.vocab_size} tokens in its vocabulary, the target {target.vocab_size}"
        yield Finding("pair.vocab-size", message, _DRAFTER, hint="Use a draft model of the same family.")
    else:
        yield from _tokenizers(target, drafter)


def _tokenizers(target: ModelFacts, drafter: ModelFacts) -> Iterator[Finding]:
    ours, theirs = target.tokenizer, drafter.tokenizer
    if ours is None or theirs is None:
        return
    if not ours.agrees_with(theirs):
        message = "the two tokenizers give different token ids for the same text: almost no draft would be accepted"
        yield Finding("pair.tokenizer", message, _DRAFTER, hint="Use a draft model with the target's tokenizer.")
    elif differing := sorted(ours.special_tokens.items() ^ theirs.special_tokens.items()):
        names = ", ".join(sorted({f"`{name}`" for name, _ in differing})[:3])
        message = f"only one of the two models has the special tokens {names}"
        hint = "Drafts may be wrong where such tokens occur. Check that both models are of the same family."
        yield Finding("pair.special-tokens", message, _DRAFTER, hint=hint, severity="info")
    if ours.chat_template_sha256 and theirs.chat_template_sha256 not in (None, ours.chat_template_sha256):
        message = "the two models have different chat templates; requests use the target's"
        hint = "Measure the acceptance length of this pair: toolkit prove."
        yield Finding("pair.chat-template", message, _DRAFTER, hint=hint, severity="info")


def _trained_for(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """A head reads hidden states, so it fits one target only; a draft model only needs the same tokens."""
    assert recipe.speculation
    assert models.drafter
    listed = lookup.head(models.drafter.model)
    verifier = ((models.drafter.config.get("speculators_config") or {}).get("verifier") or {}).get("name_or_path")
    trained_for = (listed.target if listed and methods.method(listed.method).kind != "model" else None) or verifier
    if trained_for and recipe.target.kind == "hub" and _same_model(trained_for) != _same_model(models.target.model):
        message = f"this drafter was trained for {trained_for}, not for {models.target.model}"
        hint = "A fine-tune of that target accepts fewer drafts, another model none. Measure it: toolkit prove."
        yield Finding("pair.other-target", message, _DRAFTER, hint=hint, severity="warning")
    if listed is None or recipe.engine.max_model_len is None:
        return
    length, path = recipe.engine.max_model_len, "engine.max_model_len"
    if listed.context == "short" and listed.recommended_max_context and length > 4 * listed.recommended_max_context:
        message = (
            f"this head is meant for less than {listed.recommended_max_context} tokens, and requests may have {length}"
        )
        hint = "Acceptance falls with long prompts. Use a long-context version of the head if there is one."
        yield Finding("pair.context", message, path, hint=hint, severity="warning")
    if listed.context == "long" and listed.min_context and length < listed.min_context:
        message = (
            f"this head is meant for prompts of over {listed.min_context} tokens, and requests have at most {length}"
        )
        yield Finding(
            "pair.context", message, path, hint="Use its short-context version, which accepts more.", severity="warning"
        )


def _depth(recipe: Recipe, drafter: ModelFacts) -> Iterator[Finding]:
    assert recipe.speculation
    listed, tokens = lookup.head(drafter.model), recipe.speculation.num_speculative_tokens
    depth = drafter.config.get("num_depths") or (listed.trained_depth if listed else None)
    if isinstance(depth, int) and recipe.speculation.facts.mask_token and tokens > depth:
        message = (
            f"K={tokens} is more than the drafter was trained for ({depth}): the tokens after that will be rejected"
        )
        yield Finding("pair.trained-depth", message, _K, hint=f"Set it to {depth} or less.", severity="warning")


def _precision(recipe: Recipe, drafter: ModelFacts) -> Iterator[Finding]:
    stored = drafter.text_config.get("dtype") or drafter.text_config.get("torch_dtype")
    if recipe.engine.args.get("dtype") in ("half", "float16") and stored == "bfloat16":
        message = "the drafter is stored in bfloat16 and would run in float16, which has a smaller range"
        yield Finding("pair.dtype", message, "engine.args.dtype", hint="Use `dtype: bfloat16`.", severity="warning")


def _same_model(model: str) -> str:
    return _PRECISION.sub("", model.lower())
