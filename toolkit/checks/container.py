"""Will the platform have an image for it, and will its entrypoint and SageMaker take the environment?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.findings import Finding
from toolkit.recipe.arguments import environment
from toolkit.recipe.resolve import Recipe

# botocore 1.44.5, service model of SageMaker: EnvironmentMap and EnvironmentValue; 32 KiB in all: API reference.
_MAX_ENTRIES = 100
_MAX_VALUE_CHARACTERS = 1024
_MAX_BYTES = 32 * 1024
# supervisord expands `%`, and takes ` ;` or ` #` for the beginning of a comment
# (model-hosting-container-standards 0.1.16 writes the command into its configuration).
_NOT_FOR_SUPERVISORD = re.compile(r"%|\s[;#]")
_OFFERED = 3
_FLAG_VARIABLE = "SM_VLLM_"


def check_container(recipe: Recipe) -> Iterator[Finding]:
    """Findings on image and environment."""
    images = lookup.images(recipe.platform, recipe.engine.name)
    if recipe.engine.version not in {image.version for image in images}:
        released = dict.fromkeys(image.version for image in images if image.version.replace(".", "").isdigit())
        known = " or ".join(list(released)[:_OFFERED]) or "another platform"
        message = f"platform `{recipe.platform}` has no image with {recipe.engine.name} {recipe.engine.version}"
        yield Finding("container.image", message, "engine.version", hint=f"Use {known}.")
    variables = environment(recipe)
    yield from _limits(variables)
    if recipe.platform == "sagemaker":
        yield from _quoting(variables)


def _limits(variables: dict[str, str]) -> Iterator[Finding]:
    for name, value in variables.items():
        if len(value) > _MAX_VALUE_CHARACTERS:
            message = f"{name} has {len(value)} characters, SageMaker takes {_MAX_VALUE_CHARACTERS}"
            yield Finding("container.environment", message, "engine", hint="Shorten the value of that flag.")
    if len(variables) > _MAX_ENTRIES:
        message = f"the container would get {len(variables)} environment variables, SageMaker takes {_MAX_ENTRIES}"
        yield Finding("container.environment", message, "engine", hint="Remove flags whose value is the default.")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in variables.items())
    if size > _MAX_BYTES:
        message = f"the environment has {size} bytes, SageMaker takes {_MAX_BYTES}"
        yield Finding("container.environment", message, "engine", hint="Remove flags whose value is the default.")


def _quoting(variables: dict[str, str]) -> Iterator[Finding]:
    for name, value in variables.items():
        if name.startswith(_FLAG_VARIABLE) and (found := _NOT_FOR_SUPERVISORD.search(value)):
            flag = name.removeprefix(_FLAG_VARIABLE).lower().replace("_", "-")
            message = f"`{found.group().strip()}` in a flag breaks the supervisor of AWS's images: they would not start"
            hint = "Put the text into a file of the model's folder and name that file."
            yield Finding("container.quoting", message, f"engine.args.{flag}", hint=hint)
