"""Is the drafter meant for this use? Asks the catalogue of public drafters, which needs no lock, and any lock."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolkit.catalog import lookup, methods
from toolkit.catalog.lookup import Head
from toolkit.catalog.published import written_method, written_target
from toolkit.findings import Finding, Severity
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.known import known_model
from toolkit.recipe.recipe import Recipe

_DRAFTER = "speculation.model"
_K = "speculation.num_speculative_tokens"
_LENGTH = "engine.max_model_len"
_FAMILIES = ("eagle", "eagle3", "dflash", "dspark", "draft-model")
# Heads have one to five layers. A whole model has more, and none of the keys that only heads have.
_MOST_HEAD_LAYERS = 8
_HEAD_KEYS = {"draft_vocab_size", "eagle_config", "dflash_config", "target_hidden_size", "speculators_config"}
# The same model in another precision has the same hidden states, up to rounding.
_PRECISION = re.compile(
    r"-(fp8|fp8-(block|dynamic|kv)|nvfp4|mxfp4|awq(-int4)?|gptq(-int[48])?|int[48]|w4a16|w8a8|w8a16"
    r"|quantized\.w[48]a(8|16)|bnb-4bit|bf16)$"
)


def check_listed(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    """Findings on target, number of draft tokens and context; empty without a drafter. `models` None: no lock."""
    if recipe.speculation is None or recipe.drafter is None:
        return
    drafter = models.drafter if models else None
    listed = lookup.head(drafter.model if drafter else recipe.drafter.model)
    yield from _method(recipe, drafter, listed)
    yield from _target(recipe, models, listed)
    yield from _depth(recipe, drafter, listed)
    if listed is None:
        return
    yield from _cautions(listed)
    if recipe.engine.max_model_len is not None:
        yield from _context(listed, recipe.engine.max_model_len)


def _method(recipe: Recipe, drafter: ModelFacts | None, listed: Head | None) -> Iterator[Finding]:
    """A drafter of another kind: the engine cannot load it, or accepts nothing that it drafts."""
    made_for = listed.method if listed else written_method(drafter.config) if drafter else ""
    ours, theirs = _family(recipe.method), _family(made_for)
    # A P-EAGLE head may also draft one token after the other, but an EAGLE-3 head not all in parallel.
    sequential = listed is not None and listed.method == "eagle3" and recipe.method == "p-eagle"
    if made_for and ours in _FAMILIES and (ours != theirs or sequential):
        message = f"this drafter is made for method `{made_for}`, not `{recipe.method}`"
        hint = f"Set `method: {made_for}`, or use another drafter."
        yield Finding("pair.method", message, "speculation.method", hint=hint)
    elif not made_for and drafter and methods.method(recipe.method).kind == "head" and _has_all(drafter):
        layers = drafter.text_config["num_hidden_layers"]
        message = f"this drafter is a whole language model ({layers} layers), not a head for `{recipe.method}`"
        hint = "Set `method: draft-model`, or use a head that was trained for this target."
        yield Finding("pair.method", message, "speculation.method", hint=hint)


def _has_all(drafter: ModelFacts) -> bool:
    layers = drafter.text_config.get("num_hidden_layers")
    keys = {*drafter.config, *drafter.text_config}
    return isinstance(layers, int) and layers > _MOST_HEAD_LAYERS and not keys & _HEAD_KEYS


def _family(method: str) -> str:
    """Methods whose drafters have one format: P-EAGLE heads are EAGLE-3 heads, a PARD drafter is a draft model."""
    return {"p-eagle": "eagle3", "pard": "draft-model"}.get(method, method)


def _target(recipe: Recipe, models: Lock | None, listed: Head | None) -> Iterator[Finding]:
    """A head reads hidden states, so it fits one target only; a draft model only needs the same tokens."""
    if recipe.target.kind != "hub":
        return
    target = models.target.model if models else recipe.target.model
    config = models.drafter.config if models and models.drafter else {}
    written = written_target(config)
    trained_for = (listed.target if listed and methods.method(listed.method).kind != "model" else None) or written
    if not trained_for:
        return
    if same_model(trained_for) == same_model(target):
        yield from _revision(models)
        return
    message = f"this drafter was trained for {trained_for}, not for {target}"
    severity: Severity = "warning"
    hint = "A fine-tune of that target accepts fewer drafts, another model none. Measure it: toolkit prove."
    if _other_sizes(known_model(target), known_model(trained_for)):
        theirs = [head for head in lookup.heads() if same_model(head.target) == same_model(target)]
        such_as = f", such as {min(theirs, key=lambda head: head.unverified).repo}" if theirs else ""
        severity, hint = "error", f"Set `target.model: {trained_for}`, or use a drafter of this target{such_as}."
    yield Finding("pair.other-target", message, _DRAFTER, hint=hint, severity=severity)


def _other_sizes(target: ModelFacts | None, trained_for: ModelFacts | None) -> bool:
    """Whether both are public models, of which neither can be a fine-tune of the other."""
    sizes = [
        (facts.hidden_size, facts.text_config.get("num_hidden_layers")) for facts in (target, trained_for) if facts
    ]
    return len({size for size in sizes if None not in size}) == 2


def _revision(models: Lock | None) -> Iterator[Finding]:
    """A head that `toolkit train` made says for which commit of the target it was trained."""
    trained = models.drafter.config.get("target_revision") if models and models.drafter else None
    if models and trained and models.target.revision and trained != models.target.revision:
        message = f"this drafter was trained for revision {trained} of the target, not for {models.target.revision}"
        hint = f"Set `target.revision: {trained}`, or measure what is accepted: toolkit prove."
        yield Finding("pair.target-revision", message, _DRAFTER, hint=hint, severity="warning")


def _depth(recipe: Recipe, drafter: ModelFacts | None, listed: Head | None) -> Iterator[Finding]:
    assert recipe.speculation
    tokens = recipe.speculation.num_speculative_tokens
    written = drafter.config.get("num_depths") if drafter else None
    depth = written or (listed.trained_depth if listed else None)
    if isinstance(depth, int) and recipe.speculation.facts.mask_token and tokens > depth:
        message = (
            f"K={tokens} is more than the drafter was trained for ({depth}): the tokens after that will be rejected"
        )
        yield Finding("pair.trained-depth", message, _K, hint=f"Set it to {depth} or less.", severity="warning")


def _cautions(listed: Head) -> Iterator[Finding]:
    """What a user has to know of a public drafter, with whatever target and settings."""
    if listed.unverified:
        message, hint = f"{listed.repo}: {listed.note}", "Read its card, and measure it: toolkit prove."
        yield Finding("pair.unverified", message, _DRAFTER, hint=hint, severity="warning")
    if not listed.commercial:
        message = f"{listed.repo} has the licence {listed.license}, which forbids commercial use"
        yield Finding("pair.licence", message, _DRAFTER, hint="Use another drafter for that.", severity="warning")


def _context(listed: Head, length: int) -> Iterator[Finding]:
    most, least = listed.recommended_max_context, listed.min_context
    if listed.context == "short" and most and length > 4 * most:
        message = f"this head is meant for less than {most} tokens, and requests may have {length}"
        hint = "Acceptance falls with long prompts. Use a long-context version of the head if there is one."
        yield Finding("pair.context", message, _LENGTH, hint=hint, severity="warning")
    if listed.context == "long" and least and length < least:
        message = f"this head is meant for prompts of over {least} tokens, and requests have at most {length}"
        hint = "Use its short-context version, which accepts more."
        yield Finding("pair.context", message, _LENGTH, hint=hint, severity="warning")


def same_model(model: str) -> str:
    """A key that is equal for a model and its copies in another precision, whoever published them."""
    name = model.lower()
    while (shorter := _PRECISION.sub("", name)) != name:
        name = shorter
    return name.rpartition("/")[2]
