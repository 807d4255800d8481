"""A recipe on an account, with values that several kinds of resources need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.rules.arms import arms, endpoint_name, variants
from toolkit.platforms.sagemaker.rules.model_data import ModelData, model_data
from toolkit.recipe.recipe import Recipe


@dataclass(frozen=True)
class Deployment:
    """A complete recipe, to be deployed to an account."""

    recipe: Recipe
    account: Account

    @cached_property
    def endpoint(self) -> str:
        """The name of the endpoint that serves the recipe, which may be shared."""
        return endpoint_name(self.recipe)

    @cached_property
    def variants(self) -> Sequence[str]:
        """Names of the variants that answer requests."""
        return variants(self.recipe)

    @cached_property
    def arms(self) -> Sequence[Recipe]:
        """The recipe of each variant, including the shadow variant."""
        return arms(self.recipe)

    @cached_property
    def data(self) -> Sequence[ModelData]:
        """The model data of every arm on every instance type, between which compiled code and settings may differ."""
        found = [
            item
            for arm in self.arms
            for instance_type in arm.platform.types
            for item in model_data(arm.on(instance_type), self.account)
        ]
        return list({item.uri: item for item in found}.values())
