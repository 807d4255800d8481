"""A recipe's endpoint and its production variants: the recipe of each variant, and its share of requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

from toolkit.platforms.sagemaker.keys import aws, aws_rollout
from toolkit.recipe.recipe import Recipe

VARIANT = "AllTraffic"
SPECULATIVE, BASELINE = "speculative", "baseline"
"""Names of the variants of an experiment, with weights or a shadow variant."""
CANDIDATE = "candidate"
"""Name of the variant with the head that `toolkit improve` measures beside the one that serves."""


@dataclass(frozen=True)
class Arm:
    """A production variant: its recipe, name and share of requests."""

    variant: str
    recipe: Recipe
    weight: float = 1.0


def endpoint_name(recipe: Recipe) -> str:
    """The name of the endpoint that serves the recipe: its own, or the one of its inference component."""
    component = aws(recipe).inference_component
    return (component.endpoint if component else None) or recipe.name


def variants(recipe: Recipe) -> tuple[str, ...]:
    """Names of the production variants that answer requests, but a candidate's: it has no alarms, nor autoscaling."""
    return tuple(arm.variant for arm in answering(recipe))


def arms(recipe: Recipe) -> list[Recipe]:
    """The recipe of each variant of the endpoint, including a candidate's and the shadow variant."""
    return [arm.recipe for arm in (*answering(recipe), *candidates(recipe), *shadows(recipe))]


def answering(recipe: Recipe) -> list[Arm]:
    """The variants that answer requests."""
    rollout = aws_rollout(recipe)
    percent = rollout.speculative_percent
    if recipe.speculation is None or (percent == 100 and not rollout.shadow):
        return [Arm(VARIANT, recipe)]
    baseline = replace(recipe.baseline(), name=recipe.name)
    if rollout.shadow:
        return [Arm(BASELINE, baseline)]
    return [Arm(SPECULATIVE, recipe, percent / 100), Arm(BASELINE, baseline, 1 - percent / 100)]


def candidates(recipe: Recipe) -> list[Arm]:
    """The variant of a head that is tried: one instance, which answers as many requests as each of the others.

    Under less load than the others it would look faster than it is.
    """
    if recipe.candidate is None:
        return []
    one = recipe.scaling.model_copy(update={"min_instances": 1, "max_instances": 1})
    tried = replace(recipe, speculation=recipe.candidate, candidate=None, scaling=one)
    return [Arm(CANDIDATE, tried, 1 / instances(recipe))]


def instances(recipe: Recipe) -> int:
    """The instances of each variant at first."""
    return max(1, recipe.scaling.min_instances)


def shadows(recipe: Recipe) -> list[Arm]:
    """The shadow variant, which gets copies of the requests and whose answers are dropped."""
    return [Arm(SPECULATIVE, recipe)] if recipe.speculation and aws_rollout(recipe).shadow else []
