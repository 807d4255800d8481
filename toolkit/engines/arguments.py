"""The recipe as the engine's flags, and the flags as environment variables of SageMaker's containers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from toolkit.catalog import lookup
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.rules import Download
from toolkit.recipe.source import ModelSource

# A drafter is an AdditionalModelDataSources channel, which SageMaker mounts here. The name must not contain "eagle":
# vLLM guesses the method from a path that does.
DRAFTER_CHANNEL = "drafter"
CHANNELS_DIR = "/opt/ml/additional-model-data-sources"
"""The folder with an endpoint container's channels."""

MODEL_DIR, TARGET_FOLDER = "/opt/ml/model", "target"
"""The folder of a container's ModelDataSource, and the target's folder in it where it brings all files."""

IMAGE_DRAFTER_DIR = "/opt/toolkit/drafter"
"""The folder, in the image, of a drafter that is part of the image."""

CONFIG_CHANNEL = "config"
FILES_CHANNEL = "files"
CONFIG_NAME = "engine.json"  # JSON is also YAML, which the engine reads

# botocore 1.44.5, service model of SageMaker: EnvironmentValue.
LONGEST_VALUE = 1024
# supervisord expands `%`, and takes ` ;` or ` #` for the beginning of a comment
# (model-hosting-container-standards 0.1.16 writes the command into its configuration).
_NOT_FOR_SUPERVISORD = re.compile(r"%|\s[;#]")


def environment(recipe: Recipe, longest: int = LONGEST_VALUE) -> dict[str, str]:
    """The container's environment: `engine.env`, and flags as variables, which the entrypoint turns back into flags.

    Flags whose values are longer than `longest` are passed in a file.
    """
    too_long = config_file(recipe, longest)
    flags = {flag: _text(value) for flag, value in recipe.flags.items() if flag not in too_long}
    if too_long:
        flags["config"] = f"{channel_dir(recipe, CONFIG_CHANNEL)}/{CONFIG_NAME}"
    variables = {variable(recipe, flag): value for flag, value in flags.items()}
    own = recipe.engine_rules.variables(recipe, flags)
    folders = {item.variable: channel_dir(recipe, FILES_CHANNEL) for item in staged_downloads(recipe)}
    return dict(sorted({**recipe.engine.env, **own, **folders, **variables}.items()))


def config_file(recipe: Recipe, longest: int = LONGEST_VALUE) -> dict[str, Any]:
    """Flags whose values are too long for SageMaker's environment; they are passed as a file in the model data."""
    if recipe.platform_rules.facts.longest_variable is None:
        return {}
    return {flag: value for flag, value in recipe.flags.items() if len(_text(value)) > longest}


def variable(recipe: Recipe, flag: str) -> str:
    """The environment variable of a flag."""
    return f"{recipe.engine_rules.variable_prefix}{flag.upper().replace('-', '_')}"


def supervised(image: lookup.Image, value: str) -> bool:
    """Whether the image's supervisor passes a flag's value on unchanged."""
    if _NOT_FOR_SUPERVISORD.search(value):
        return False
    return image.supervisor_quoting == "fixed" or not any(mark in value for mark in "{\"' ")


def fetched_by_container(recipe: Recipe, source: ModelSource) -> bool:
    """Whether the container itself downloads that model from the hub."""
    return recipe.platform.weights == "hub" and source.kind == "hub"


def builds(recipe: Recipe) -> bool:
    """Whether the recipe's platform builds an image for it."""
    ask = recipe.platform_rules.facts.builds
    return ask is not None and ask(recipe)


def is_in_image(recipe: Recipe) -> bool:
    """Whether the drafter is part of the image."""
    return builds(recipe) and recipe.container is not None and recipe.container.bake_drafter


def staged_downloads(recipe: Recipe) -> Sequence[Download]:
    """Files that its engine would download, which are staged with the weights."""
    return recipe.engine_rules.downloads(recipe) if recipe.platform.weights == "s3" else ()


def channel_dir(recipe: Recipe, channel: str) -> str:
    """The folder in which a container finds the files of a channel."""
    return f"{MODEL_DIR if recipe.platform.one_data_source else CHANNELS_DIR}/{channel}"


def target_dir(recipe: Recipe) -> str:
    """The folder in which a container finds the target, if it does not download it itself."""
    return f"{MODEL_DIR}/{TARGET_FOLDER}" if recipe.platform.one_data_source else MODEL_DIR


def drafter_path(recipe: Recipe) -> str:
    """Where the engine finds the drafter: a folder of the image, a hub id, or a channel; empty without a drafter."""
    drafter = recipe.drafter
    if drafter is None:
        return ""
    if is_in_image(recipe):
        return IMAGE_DRAFTER_DIR
    return drafter.written if fetched_by_container(recipe, drafter) else channel_dir(recipe, DRAFTER_CHANNEL)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))
