"""Does the drafter fit the target? A wrong pair fails after half an hour, or no draft token is ever accepted.

What only an engine reads in a drafter's files is checked by the engine's own checks. Facts that are missing, because
they were curated from publications, cause no finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.lock import Lock
from toolkit.recipe.recipe import Recipe

_DRAFTER = "speculation.model"


def check_pair(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on the pair; empty without a drafter."""
    if recipe.speculation is None or models.drafter is None:
        return
    target, drafter = models.target, models.drafter
    read_by_engine = recipe.speculation.facts.format  # whose checks look into the drafter's files
    if not read_by_engine and not recipe.speculation.own_vocabulary:
        yield from _vocabulary(recipe, target, drafter)
    yield from _precision(recipe, drafter)


def _vocabulary(recipe: Recipe, target: ModelFacts, drafter: ModelFacts) -> Iterator[Finding]:
    drafting, key = recipe.drafting, "use_heterogeneous_vocab"
    may_differ = drafting is not None and drafting.takes(key, recipe.engine.version)
    otherwise = f" Or write `{key}: true` under `speculation`: then it drafts the tokens that both have."
    if drafter.vocab_size != target.vocab_size:
        message = f"the draft model has {drafter.vocab_size} tokens in its vocabulary, the target {target.vocab_size}"
        hint = f"Use a draft model of the same family.{otherwise if may_differ else ''}"
        yield Finding("pair.vocab-size", message, _DRAFTER, hint=hint)
    else:
        yield from _tokenizers(target, drafter, otherwise if may_differ else "")


def _tokenizers(target: ModelFacts, drafter: ModelFacts, otherwise: str) -> Iterator[Finding]:
    ours, theirs = target.tokenizer, drafter.tokenizer
    if ours is None or theirs is None:
        return
    if not ours.agrees_with(theirs):
        message = "the two tokenizers give different token ids for the same text: almost no draft would be accepted"
        yield Finding(
            "pair.tokenizer", message, _DRAFTER, hint=f"Use a draft model with the target's tokenizer.{otherwise}"
        )
    elif differing := sorted(ours.special_tokens.items() ^ theirs.special_tokens.items()):
        names = ", ".join(sorted({f"`{name}`" for name, _ in differing})[:3])
        message = f"only one of the two models has the special tokens {names}"
        hint = "Drafts may be wrong where such tokens occur. Check that both models are of the same family."
        yield Finding("pair.special-tokens", message, _DRAFTER, hint=hint, severity="info")
    if ours.chat_template_sha256 and theirs.chat_template_sha256 not in (None, ours.chat_template_sha256):
        message = "the two models have different chat templates; requests use the target's"
        hint = "Measure the acceptance length of this pair: toolkit prove."
        yield Finding("pair.chat-template", message, _DRAFTER, hint=hint, severity="info")


def _precision(recipe: Recipe, drafter: ModelFacts) -> Iterator[Finding]:
    stored = drafter.text_config.get("dtype") or drafter.text_config.get("torch_dtype")
    if recipe.engine.args.get("dtype") in ("half", "float16") and stored == "bfloat16":
        message = "the drafter is stored in bfloat16 and would run in float16, which has a smaller range"
        yield Finding("pair.dtype", message, "engine.args.dtype", hint="Use `dtype: bfloat16`.", severity="warning")
