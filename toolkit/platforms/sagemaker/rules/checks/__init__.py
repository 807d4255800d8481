"""Checks of a recipe's SageMaker settings, and of the AWS account."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.findings import Finding
from toolkit.platforms.sagemaker.rules.checks.environment import check_environment, check_quoting, check_region
from toolkit.platforms.sagemaker.rules.checks.settings import check_settings
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import Recipe


def check_sagemaker(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    """Findings on environment, instance types, time-outs and SageMaker's own settings."""
    yield from check_environment(recipe)
    yield from check_quoting(recipe)
    yield from check_settings(recipe, models)
    yield from check_region(recipe)
