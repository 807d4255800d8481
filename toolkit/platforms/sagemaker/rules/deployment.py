"""A recipe and the account that it is deployed to: what several kinds of resources are made from, worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.rules.arms import arms, endpoint_name, variants
from toolkit.platforms.sagemaker.rules.model_data import ModelData, model_data
from toolkit.recipe.resolve import Recipe


@dataclass(frozen=True)
class Deployment:
    """A complete recipe on an account."""

    recipe: Recipe
    account: Account

    @cached_property
    def endpoint(self) -> str:
        """The endpoint that serves the recipe, which may be shared."""
        return endpoint_name(self.recipe)

    @cached_property
    def variants(self) -> Sequence[str]:
        """Names of the variants that answer."""
        return variants(self.recipe)

    @cached_property
    def arms(self) -> Sequence[Recipe]:
        """The recipe as each variant runs it, the shadow too."""
        return arms(self.recipe)

    @cached_property
    def data(self) -> Sequence[ModelData]:
        """Of every arm on every instance type: what is compiled, or too long for an environment, may differ."""
        found = [
            item
            for arm in self.arms
            for instance_type in arm.platform.instance_types
            for item in model_data(arm.on(instance_type), self.account)
        ]
        return list({item.uri: item for item in found}.values())
