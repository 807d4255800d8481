"""Does the local platform support these settings? Settings without an effect are errors."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.findings import Finding
from toolkit.platforms.local.keys import LocalPlatform
from toolkit.platforms.sagemaker.keys import aws, aws_observability
from toolkit.platforms.sagemaker.rules.checks.environment import check_environment
from toolkit.recipe.lock import Lock
from toolkit.recipe.recipe import Recipe


def check_local(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    """Findings on settings that the local platform does not support."""
    refused = (
        ("platform.inference_component", aws(recipe).inference_component is not None, "no inference components"),
        ("observability.data_capture_percent", aws_observability(recipe).data_capture_percent > 0, "no data capture"),
        ("scaling.min_instances", recipe.scaling.min_instances > 1, "one container for each variant"),
    )
    for path, is_set, what in refused:
        if is_set:
            yield Finding(
                "local.not-here",
                f"the local platform supports {what}",
                path,
                hint="Remove it to run on the local platform.",
            )
    if LocalPlatform.of(recipe.platform).run == "container" and (
        recipe.container is None or recipe.container.base is None
    ):
        message = "`run: container` needs a base image for this machine, but those of the catalogue need a GPU"
        hint = f"Set one with {recipe.engine.name} for CPUs: `container: {{base: registry/repository:tag}}`."
        yield Finding("local.base", message, "platform.run", hint=hint)
    for path, source in recipe.models.items():
        if source.kind == "jumpstart":
            message = f"the local platform does not support JumpStart models such as {source}"
            yield Finding(
                "local.not-here", message, path, hint="Use a folder or a Hugging Face id to run on the local platform."
            )
    yield from check_environment(recipe)
