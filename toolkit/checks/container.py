"""Will the platform have an image for it, and SageMaker take its environment?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.findings import Finding
from toolkit.recipe.arguments import environment
from toolkit.recipe.resolve import Recipe

# botocore 1.44.5, service model of SageMaker: EnvironmentMap and EnvironmentValue.
_MAX_ENTRIES = 100
_MAX_VALUE_CHARACTERS = 1024


def check_container(recipe: Recipe) -> Iterator[Finding]:
    """Findings on image and environment."""
    images = lookup.images(recipe.platform, recipe.engine.name)
    if recipe.engine.version not in {image.version for image in images}:
        known = ", ".join(image.version for image in images) or "another platform"
        message = f"platform `{recipe.platform}` has no image with {recipe.engine.name} {recipe.engine.version}"
        yield Finding("container.image", message, "engine.version", hint=f"Use {known}.")
    variables = environment(recipe)
    for name, value in variables.items():
        if len(value) > _MAX_VALUE_CHARACTERS:
            message = f"{name} has {len(value)} characters, SageMaker takes {_MAX_VALUE_CHARACTERS}"
            yield Finding("container.environment", message, "engine", hint="Shorten the value of that flag.")
    if len(variables) > _MAX_ENTRIES:
        message = f"the container would get {len(variables)} environment variables, SageMaker takes {_MAX_ENTRIES}"
        yield Finding("container.environment", message, "engine", hint="Remove flags whose value is the default.")
