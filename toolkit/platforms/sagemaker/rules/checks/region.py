"""Are the instance types and the image offered in the recipe's region? Asks the catalogue, not AWS."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe

_REGION = "platform.region"


def check_region(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the region that the recipe names; empty if it names none."""
    if recipe.region is None:
        return
    if not recipe.leaves_instance_type_open:
        yield from check_types(recipe.platform.types, recipe.region)
    yield from _image(recipe, recipe.region)


def check_types(names: tuple[str, ...], region: str) -> Iterator[Finding]:
    """Findings on instance types for which AWS lists no price in the region."""
    for index, name in enumerate(names):
        instance = lookup.instance(name)
        if instance and instance.regions and region not in instance.regions:
            message = f"AWS lists no price for {name} endpoints in {region}, so the type may not be available there"
            hint = f"It is available in {', '.join(instance.regions)}. Set platform.region, or use another type."
            path = f"platform.instance_types.{index}"
            yield Finding("sagemaker.region", message, path, hint=hint, severity="warning")


def _image(recipe: Recipe, region: str) -> Iterator[Finding]:
    """A finding if AWS's own image of that engine version is not known to be in the region."""
    image = recipe.image
    if image is None or not image.registry.isdigit() or (recipe.container and recipe.container.base):
        return
    accounts, newest = lookup.registries(), lookup.newest_image(region, image.engine)
    if region not in accounts:
        message = f"AWS has no known {image.engine} images in {region}"
        meant = lookup.nearest_region(region)
        hint = (
            f"Write `region: {meant}`."
            if meant
            else "Set another platform.region, or `container: {base: …}` with an image of your own."
        )
        yield Finding("sagemaker.region", message, _REGION, hint=hint)
    elif newest and lookup.older(newest, image.version):
        message = f"AWS's SDK lists images for {region} up to {image.engine} {newest}, not {image.version}"
        hint = f"Set `version: {newest}` or older in `engine`, or copy the image into your own registry."
        yield Finding("sagemaker.region", message, "engine.version", hint=hint, severity="warning")
