"""A recipe's endpoint and its production variants: the recipe of each variant, and its share of requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

from toolkit.recipe.resolve import Recipe

VARIANT = "AllTraffic"
SPECULATIVE, BASELINE = "speculative", "baseline"
"""Names of the variants of an experiment, with weights or a shadow variant."""


@dataclass(frozen=True)
class Arm:
    """A production variant: its recipe, name and share of requests."""

    variant: str
    recipe: Recipe
    weight: float = 1.0


def endpoint_name(recipe: Recipe) -> str:
    """The name of the endpoint that serves the recipe: its own, or the one of its inference component."""
    return (recipe.platform.component.endpoint if recipe.platform.component else None) or recipe.name


def variants(recipe: Recipe) -> tuple[str, ...]:
    """Names of the production variants that answer requests."""
    return tuple(arm.variant for arm in answering(recipe))


def arms(recipe: Recipe) -> list[Recipe]:
    """The recipe of each variant of the endpoint, including the shadow variant."""
    return [arm.recipe for arm in (*answering(recipe), *shadows(recipe))]


def answering(recipe: Recipe) -> list[Arm]:
    """The variants that answer requests."""
    baseline = replace(recipe.baseline(), name=recipe.name)
    if recipe.speculation is None:
        return [Arm(VARIANT, recipe)]
    if recipe.rollout.shadow:
        return [Arm(BASELINE, baseline)]
    if (percent := recipe.rollout.speculative_percent) < 100:
        return [Arm(SPECULATIVE, recipe, percent / 100), Arm(BASELINE, baseline, 1 - percent / 100)]
    return [Arm(VARIANT, recipe)]


def shadows(recipe: Recipe) -> list[Arm]:
    """The shadow variant, which gets copies of the requests and whose answers are dropped."""
    return [Arm(SPECULATIVE, recipe)] if recipe.speculation and recipe.rollout.shadow else []
