"""A recipe whose target or drafter is JumpStart's: what the entries of these models add to it, and where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.arguments import environment
from toolkit.errors import UsageError
from toolkit.platforms.sagemaker.rules.jumpstart_entry import OTHER_SOURCE, DataSource, JumpStartModel, parse
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import SpeculationSection
from toolkit.recipe.source import ModelSource

Entries = Mapping[str, Mapping[str, Any]]
"""What JumpStart's hub says of models, by their ids: what `platforms.sagemaker.jumpstart` reads."""


def ids(recipe: Recipe) -> tuple[str, ...]:
    """The JumpStart models that the recipe names, as target or drafter."""
    return tuple(dict.fromkeys(source.name for source in recipe.models.values() if source.kind == "jumpstart"))


def with_jumpstart_defaults(recipe: Recipe, entries: Entries) -> Recipe:
    """The recipe with JumpStart's K, instance type, time-outs and isolation where its file says nothing.

    `entries` are those of `ids(recipe)`. Raises what `parse` does, and UsageError when one is not there, or the method
    is not the one that JumpStart's drafter is for.
    """
    if recipe.target.kind == "jumpstart":
        written = not recipe.leaves_instance_type_open
        model = parse(_entry(recipe.target, entries), recipe.platform.types[0] if written else None)
        platform = recipe.platform if written else recipe.platform.on(model.instance_type)
        timeout = platform.health_check_timeout or model.health_check_timeout
        recipe = replace(
            recipe,
            platform=platform.edit(health_check_timeout=timeout),
            download_timeout=recipe.download_timeout or model.download_timeout,
            network=recipe.network.edit(isolation=True) if model.network_isolation else recipe.network,
        )
    speculation, drafter = recipe.speculation, recipe.drafter
    if speculation is None or drafter is None or drafter.kind != "jumpstart":
        return recipe
    return replace(recipe, speculation=_as_preset(recipe, speculation, _drafting(recipe, drafter, entries)))


def target_model(recipe: Recipe, entries: Entries) -> JumpStartModel | None:
    """The recipe's target on its first instance type, None when it is not JumpStart's.

    Raises as `with_jumpstart_defaults`.
    """
    if recipe.target.kind != "jumpstart":
        return None
    return parse(_entry(recipe.target, entries), recipe.platform.types[0])


def variables(model: JumpStartModel, recipe: Recipe) -> dict[str, str]:
    """The container's environment: JumpStart's, and over it what the recipe says.

    Raises UsageError when the model's image does not serve the recipe's engine.
    """
    _check_engine(model, recipe)
    return dict(sorted({**model.variables_besides_drafting, **environment(recipe)}.items()))


def target_source(recipe: Recipe, entries: Entries) -> dict[str, Any]:
    """`S3DataSource` of a target of JumpStart's. Raises UsageError for a licence that the recipe does not accept."""
    model = parse(_entry(recipe.target, entries), recipe.platform.types[0])
    return _data_source(model.target, model, recipe)


def drafter_source(recipe: Recipe, drafter: ModelSource, entries: Entries) -> dict[str, Any]:
    """`S3DataSource` of the drafter that comes with a JumpStart model, for this or another target.

    Raises UsageError when none comes with it, or its licence is not accepted.
    """
    model = _drafting(recipe, drafter, entries)
    if model.drafter is None:
        message = f"no drafter comes with JumpStart's {model.id} on {model.instance_type}"
        raise UsageError(message, hint="Name another drafter as `speculation.model`: a Hugging Face id, or a folder.")
    return _data_source(model.drafter, model, recipe)


def in_s3(recipe: Recipe, entries: Entries) -> tuple[ModelSource, ModelSource | None]:
    """Where the recipe's target and drafter are, JumpStart's own by their address in S3. Raises as their sources do."""
    recipe = with_jumpstart_defaults(recipe, entries)
    target: ModelSource = recipe.target
    drafter = recipe.drafter
    if drafter and drafter.kind == "jumpstart":
        drafter = ModelSource(model=drafter_source(recipe, drafter, entries)["S3Uri"])
    if target.kind == "jumpstart":
        target = ModelSource(model=target_source(recipe, entries)["S3Uri"])
    return target, drafter


def _drafting(recipe: Recipe, drafter: ModelSource, entries: Entries) -> JumpStartModel:
    """The model that brings the drafter: the recipe's target on its own instance type, or that of another target."""
    return parse(_entry(drafter, entries), recipe.platform.types[0] if drafter.model == recipe.target.model else None)


def _as_preset(recipe: Recipe, speculation: SpeculationSection, model: JumpStartModel) -> SpeculationSection:
    preset = model.preset
    if preset is None:
        return speculation
    if preset.method and preset.method != speculation.method:
        message = f"JumpStart's drafter of {model.id} is for `{preset.method}`, not for `{speculation.method}`"
        raise UsageError(message, hint=_edit(recipe, "speculation.method", preset.method))
    if preset.num_speculative_tokens and "speculation.num_speculative_tokens" not in recipe.lines:
        return speculation.edit(num_speculative_tokens=preset.num_speculative_tokens)
    return speculation


def _check_engine(model: JumpStartModel, recipe: Recipe) -> None:
    if model.repository != recipe.engine.name:
        message = (
            f"JumpStart serves {model.id} on {model.instance_type} with {model.repository}, not {recipe.engine.name}"
        )
        raise UsageError(message, hint=f"Choose another of `platform.instance_types`, or: {OTHER_SOURCE}")
    if model.engine_version and model.engine_version != recipe.engine.version:
        theirs = f"{lookup.engine_title()} {model.engine_version}"
        message = f"JumpStart serves {model.id} with {theirs}, not {recipe.engine.version}"
        raise UsageError(message, hint=_edit(recipe, "engine.version", model.engine_version))


def _data_source(source: DataSource, model: JumpStartModel, recipe: Recipe) -> dict[str, Any]:
    data_source: dict[str, Any] = {
        "S3Uri": source.uri,
        "S3DataType": source.data_type,
        "CompressionType": source.compression,
    }
    if source.gated:
        if not recipe.target.accept_eula:
            what = "the drafter of " if source.channel else ""
            message = f"{what}JumpStart's {model.id} comes under a licence that you have to accept: {source.licence}"
            raise UsageError(message, hint=f"If you do: {_edit(recipe, 'target.accept_eula', 'true')}")
        data_source["ModelAccessConfig"] = {"AcceptEula": True}
    if source.hub_content:
        data_source["HubAccessConfig"] = {"HubContentArn": source.hub_content}
    return data_source


def _entry(source: ModelSource, entries: Entries) -> Mapping[str, Any]:
    if source.name not in entries:
        hint = f"Log in to AWS: only its hub knows what JumpStart serves. Or: {OTHER_SOURCE}"
        raise UsageError(f"{source} has not been looked up", hint=hint)
    return entries[source.name]


def _edit(recipe: Recipe, key: str, value: str) -> str:
    line = recipe.lines.get(key) or recipe.lines.get(key.partition(".")[0])
    return f"Write `{key}: {value}`{f' in line {line}' if line else ''} of {recipe.path.name}."
