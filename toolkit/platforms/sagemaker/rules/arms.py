"""A recipe's endpoint and its production variants: which recipe each variant runs, with which share of the requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

from toolkit.recipe.resolve import Recipe

VARIANT = "AllTraffic"
SPECULATIVE, BASELINE = "speculative", "baseline"
"""Names of the variants of an experiment: weighted, or with a shadow."""


@dataclass(frozen=True)
class Arm:
    """A production variant: which recipe it runs, under which name and with which share of the requests."""

    variant: str
    recipe: Recipe
    weight: float = 1.0


def endpoint_name(recipe: Recipe) -> str:
    """The endpoint that serves the recipe: its own, or the one that its inference component lives on."""
    return (recipe.platform.component.endpoint if recipe.platform.component else None) or recipe.name


def variants(recipe: Recipe) -> tuple[str, ...]:
    """Names of the endpoint's production variants, those that answer."""
    return tuple(arm.variant for arm in answering(recipe))


def arms(recipe: Recipe) -> list[Recipe]:
    """The recipe as each variant of the endpoint runs it, those that answer and the shadow."""
    return [arm.recipe for arm in (*answering(recipe), *shadows(recipe))]


def answering(recipe: Recipe) -> list[Arm]:
    """The variants that answer."""
    baseline = replace(recipe.baseline(), name=recipe.name)
    if recipe.speculation is None:
        return [Arm(VARIANT, recipe)]
    if recipe.rollout.shadow:
        return [Arm(BASELINE, baseline)]
    if (percent := recipe.rollout.speculative_percent) < 100:
        return [Arm(SPECULATIVE, recipe, percent / 100), Arm(BASELINE, baseline, 1 - percent / 100)]
    return [Arm(VARIANT, recipe)]


def shadows(recipe: Recipe) -> list[Arm]:
    """The variant that gets copies of the requests, and whose answers nobody sees."""
    return [Arm(SPECULATIVE, recipe)] if recipe.speculation and recipe.rollout.shadow else []
