"""A recipe that serves today, and says in `training.head` where a head will be: what it is once that is trained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import SpeculationSection
from toolkit.recipe.training_schema import TRAINED_METHODS


def as_trained(recipe: Recipe) -> Recipe:
    """The recipe with the head of `training.head` in place of what drafts until then; any other as it is."""
    training = recipe.training
    if training is None or training.head is None:
        return recipe
    method = TRAINED_METHODS[0]
    tokens = max(1, min(recipe.engine_rules.default_tokens(recipe.engine, method), training.depth - 1))
    section = SpeculationSection.of(
        recipe.engine_rules.sections.get("speculation", SpeculationSection).model_construct()
    )
    drafting = section.edit(method=method, model=training.head, num_speculative_tokens=tokens)
    return replace(recipe, training=training.edit(head=None), speculation=drafting)


def as_compared(recipe: Recipe, methods: Iterable[str]) -> Recipe:
    """A trained recipe with a head of each of these methods in place of its own, each by its method's defaults."""
    compared = tuple(method for method in TRAINED_METHODS if method in methods)
    return replace(with_method(recipe, compared[0]), compared=compared)


def with_method(recipe: Recipe, method: str) -> Recipe:
    """A trained recipe with another method of its head, and what `training` has for that by default."""
    assert recipe.speculation
    assert recipe.training
    speculation, training = recipe.speculation.edit(method=method), recipe.training.filled(method)
    return replace(recipe, speculation=speculation, training=training)


def makes_norms(recipe: Recipe) -> bool:
    """Whether a head that its training makes is an EAGLE-3.1 head."""
    return recipe.training is not None and recipe.training.norms and "eagle3" in (recipe.method, *recipe.compared)


def heads_of(recipe: Recipe) -> list[Recipe]:
    """A recipe for each head that its job trains."""
    return [with_method(recipe, method) for method in recipe.compared] or [recipe]
