"""The catalogue's hardware of a recipe's instance types."""

from __future__ import annotations

from toolkit.catalog import lookup
from toolkit.catalog.registry import platform_rules
from toolkit.recipe.resolve import Recipe

ML = "ml."
"""What SageMaker's names of EC2's instance types begin with."""


def instance_of(recipe: Recipe, name: str) -> lookup.Instance | None:
    """The hardware of one of the recipe's types, None where it is not known. A cluster's types are named as EC2's."""
    if recipe.platform.name != "kubernetes":
        return lookup.instance(name)
    found: lookup.Instance | None = platform_rules("kubernetes").instance(name)
    return found
