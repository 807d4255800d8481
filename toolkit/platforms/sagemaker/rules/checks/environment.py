"""Is there an image in the region, and do SageMaker and the image's supervisor take the container's environment?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.engines.arguments import LONGEST_VALUE, builds, environment, supervised, variable
from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe

# botocore 1.44.5, service model of SageMaker: EnvironmentMap; 32 KiB in all: API reference.
_MAX_ENTRIES = 100
_MAX_BYTES = 32 * 1024
_REGION = "platform.region"


def check_environment(recipe: Recipe) -> Iterator[Finding]:
    """Findings on SageMaker's limits for a container's environment."""
    variables = environment(recipe)
    for name, value in variables.items():
        if len(value) > LONGEST_VALUE:
            message = f"{name} has {len(value)} characters, but SageMaker allows {LONGEST_VALUE}"
            yield Finding("container.environment", message, "engine", hint="Shorten the value of that flag.")
    if len(variables) > _MAX_ENTRIES:
        message = (
            f"the container would have {len(variables)} environment variables, but SageMaker allows {_MAX_ENTRIES}"
        )
        yield Finding("container.environment", message, "engine", hint="Remove flags whose value is the default.")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in variables.items())
    if size > _MAX_BYTES:
        message = f"the environment has {size} bytes, but SageMaker allows {_MAX_BYTES}"
        yield Finding("container.environment", message, "engine", hint="Remove flags whose value is the default.")


def check_quoting(recipe: Recipe) -> Iterator[Finding]:
    """Findings if `arguments.environment` switches off the image's supervisor, because that would break a flag."""
    image, variables = recipe.image, environment(recipe)
    if builds(recipe):  # the toolkit's own entrypoint has no supervisor
        return
    if image is None or image.supervisor_quoting == "unknown":
        return
    values = {flag: variables.get(variable(recipe, flag)) for flag in recipe.flags}
    broken = [flag for flag, value in values.items() if value is not None and not supervised(image, value)]
    if not broken:
        return
    message = f"the image's supervisor would break `{broken[0]}`: the engine starts without it and is not restarted"
    if broken[0] in recipe.engine.args:
        path, hint = (
            f"engine.args.{broken[0]}",
            "Put the text into a file in the model's folder, and set the flag to that file.",
        )
    else:
        fixed = [item.version for item in lookup.images(recipe.platform.name, recipe.engine.name) if _quotes_well(item)]
        path, hint = "engine.version", f"To have the engine restarted in its container, use {fixed[-1]} or newer."
    yield Finding("container.quoting", message, path, hint=hint, severity="info")


def _quotes_well(image: lookup.Image) -> bool:
    return image.supervisor_quoting == "fixed"


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
