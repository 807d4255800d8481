"""A recipe as the resources that serve it, on AWS or a cluster, with exact requests. Pure but for weights' digests."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.catalog.registry import platform_rules
from toolkit.planning import compilation, hosting, permissions, storage
from toolkit.planning.autoscaling import autoscaling
from toolkit.planning.image import image
from toolkit.planning.observability import alarms, dashboard
from toolkit.planning.resources import KINDS, Account, Resource
from toolkit.recipe.resolve import Recipe


def desired(recipes: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
    """All resources of the recipes, in the order in which they are made; what two recipes share stands once."""
    if recipes[0].platform.name == "kubernetes":
        found: tuple[Resource, ...] = platform_rules("kubernetes").desired(recipes, account)
        return found
    resources = {(item.kind, item.name): item for recipe in recipes for item in _resources(recipe, account)}
    return tuple(sorted(resources.values(), key=lambda item: KINDS.index(item.kind)))


def _resources(recipe: Recipe, account: Account) -> list[Resource]:
    endpoint = hosting.endpoint_name(recipe)
    data = _model_data(recipe, account)
    config = hosting.endpoint_config(recipe, account)
    found = [
        storage.bucket(account),
        *(item for arm in hosting.arms(recipe) for item in image(arm, account)),
        *(storage.use(item, recipe.name) for item in data),
        *(item.weights for item in data),
        *permissions.role(recipe, account, endpoint, data),
        *compilation.compiled(recipe, account),
        *hosting.models(recipe, account),
        config,
        *alarms(recipe, hosting.variants(recipe)),
        *dashboard(recipe, account, hosting.variants(recipe)),
        hosting.endpoint(recipe, config.name),
        hosting.component(recipe, account),
        *autoscaling(recipe, hosting.variants(recipe)),
    ]
    return [item for item in found if item]


def _model_data(recipe: Recipe, account: Account) -> list[storage.ModelData]:
    """Of every arm on every instance type: what is compiled, or too long for an environment, may differ."""
    found = [
        item
        for arm in hosting.arms(recipe)
        for instance_type in arm.platform.instance_types
        for item in storage.model_data(arm.on(instance_type), account)
    ]
    return list({item.uri: item for item in found}.values())
