"""Can the block with which the target drafts for itself be trained? A head of another method always may be."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.training_schema import TRAINED_METHODS, TrainingSection
from toolkit.training.own_block import why_not_trained


def check_own_block(recipe: Recipe, training: TrainingSection, target: ModelFacts | None) -> Iterator[Finding]:
    if recipe.drafter is None:
        message = "`speculation.model` does not say where the trained block is put"
        hint = "Set it to a folder (`./…`) or s3://bucket/prefix/; the target's own files stay as they are."
        yield Finding("training.destination", message, "speculation.model", hint=hint)
    if target and (why := why_not_trained(target.tensors, target.text_config.get("model_type"))):
        others = ", ".join(method for method in TRAINED_METHODS if method != "mtp")
        yield Finding("training.own-block", why, "speculation.method", hint=f"Set `method` to one of {others}.")
    if training.layers != 1:
        message = f"the target's own block has one layer, and `layers` is {training.layers}"
        yield Finding("training.own-block", message, "training.layers", hint="Remove it.")
    if training.draft_vocab_size:
        message = "the target's own block drafts all tokens of the target"
        yield Finding("training.own-block", message, "training.draft_vocab_size", hint="Remove it.")
