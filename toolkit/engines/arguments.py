"""The recipe as the engine's flags, and the flags as environment variables of SageMaker's containers."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from toolkit.catalog import lookup
from toolkit.findings import Finding
from toolkit.recipe.content import left_out
from toolkit.recipe.recipe import Recipe
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
CONFIG_NAME = "engine.yaml"  # JSON in it, which is YAML, too; vLLM refuses a file with any other ending

# botocore 1.44.5, service model of SageMaker: EnvironmentValue.
LONGEST_VALUE = 1024
_SHOWN_FILES = 5
# supervisord expands `%`, and takes ` ;` or ` #` for the beginning of a comment
# (model-hosting-container-standards 0.1.16 writes the command into its configuration).
_NOT_FOR_SUPERVISORD = re.compile(r"%|\s[;#]")


def left_out_notes(recipe: Recipe) -> Iterator[str]:
    """Notes for a plan: the models' files that no engine reads, which are not copied, or not run where they are."""
    for key, source in recipe.models.items():
        known = recipe.other_files.get((key, source.model), ())
        if names := left_out(source.folder, code=recipe.runs_model_code) if source.folder else known:
            rest = len(names) - _SHOWN_FILES
            shown = ", ".join(names[:_SHOWN_FILES]) + (f" and {rest} more" if rest > 0 else "")
            if source.kind in ("s3", "jumpstart"):
                yield f"{source.model} ({key}) is used where it is, with files that no engine reads or runs: {shown}"
                continue
            yield f"Of {key} these files are not copied, as the engine does not read them: {shown}"
            if any(name.endswith(".py") for name in names):
                flag = "trust-remote-code"
                yield f"A model's Python is copied with `engine: {{args: {{{flag}: true}}, allow: [{flag}]}}`"


def environment(recipe: Recipe, longest: int = LONGEST_VALUE) -> dict[str, str]:
    """The container's environment: `engine.env`, and flags as variables, which the entrypoint turns back into flags.

    Flags whose values are longer than `longest` are passed in a file.
    """
    too_long = config_file(recipe, longest)
    flags = {flag: _text(value) for flag, value in recipe.flags.items() if flag not in too_long}
    if too_long:
        flags["config"] = f"{channel_dir(recipe, CONFIG_CHANNEL)}/{CONFIG_NAME}"
    variables = flag_variables(recipe, flags)
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


def flag_variables(recipe: Recipe, flags: Mapping[str, Any]) -> dict[str, str]:
    """Flags as variables of the environment."""
    return {variable(recipe, flag): _text(value) for flag, value in flags.items()}


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
    downloads = recipe.engine_rules.downloads
    return downloads(recipe) if downloads and recipe.platform.weights == "s3" else ()


def channel_dir(recipe: Recipe, channel: str) -> str:
    """The folder in which a container finds the files of a channel."""
    return f"{MODEL_DIR if recipe.one_data_source else CHANNELS_DIR}/{channel}"


def target_dir(recipe: Recipe) -> str:
    """The folder in which a container finds the target, if it does not download it itself."""
    return f"{MODEL_DIR}/{TARGET_FOLDER}" if recipe.one_data_source else MODEL_DIR


def drafter_path(recipe: Recipe) -> str:
    """Where the engine finds the drafter: a folder of the image, a hub id, or a channel; empty without a drafter."""
    drafter = recipe.drafter
    if drafter is None:
        return ""
    if is_in_image(recipe):
        return IMAGE_DRAFTER_DIR
    return drafter.model if fetched_by_container(recipe, drafter) else channel_dir(recipe, DRAFTER_CHANNEL)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def check_flags(recipe: Recipe, unknown: Callable[[str], Iterator[Finding]]) -> Iterator[Finding]:
    """Findings on flags that the toolkit sets; `unknown` gives the findings on all other flags."""
    prefix, own = recipe.engine_rules.variable_prefix, recipe.engine_rules.own_flags
    for variable in recipe.engine.env:
        if variable.startswith(prefix):
            flag = variable.removeprefix(prefix).lower().replace("_", "-")
            message, hint = f"`{variable}` sets the engine's flag `{flag}`", f"Write `{flag}` in engine.args."
            yield Finding("engine.own-flag", message, f"engine.env.{variable}", hint=hint)
    for flag in recipe.engine.args:
        path = f"engine.args.{flag}"
        if flag in own:
            hint = f"Remove it, and set {own[flag]}."
            yield Finding("engine.own-flag", f"`{flag}` is set by the toolkit", path, hint=hint)
        elif whole := next((name for name in own if name.startswith(flag)), None):
            message = f"the engine reads `{flag}` as the beginning of `{whole}`, which the toolkit sets"
            yield Finding("engine.own-flag", message, path, hint=f"Remove it, and set {own[whole]}.")
        elif near := difflib.get_close_matches(flag, own, n=1, cutoff=0.9):
            message = f"`{flag}` looks like `{near[0]}`, which the toolkit sets"
            hint = f"If you meant that flag, remove it and set {own[near[0]]}."
            yield Finding("engine.own-flag", message, path, hint=hint, severity="warning")
        else:
            yield from unknown(flag)


def versions(recipe: Recipe) -> list[str]:
    """Versions of the recipe's engine that have an image on its platform, the newest first; no pre-releases."""
    listed = (image.version for image in recipe.platform_rules.images(recipe))
    return list(dict.fromkeys(version for version in listed if version.replace(".", "").isdigit()))


def newest_with(recipe: Recipe, works: Callable[[str], bool]) -> str:
    """The newest such version that has an image on the recipe's platform; empty if there is none."""
    return next((version for version in versions(recipe) if works(version)), "")
