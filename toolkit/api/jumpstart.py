"""A recipe for a model of SageMaker JumpStart, from what its hub says of it: `toolkit new jumpstart:ID`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolkit.api.context import require_new
from toolkit.engines import registry as engine_registry
from toolkit.errors import ToolkitError, UsageError
from toolkit.files import write_whole
from toolkit.loading import load
from toolkit.platforms.elsewhere import open_files
from toolkit.platforms.sagemaker.rules.jumpstart import Entries, in_s3
from toolkit.platforms.sagemaker.rules.jumpstart_entry import OTHER_SOURCE, JumpStartModel, doubts, parse
from toolkit.proposal.model import Choice, Wishes
from toolkit.proposal.text import data_text
from toolkit.recipe.lock import read_models, write_lock
from toolkit.recipe.section import LONGEST_NAME
from toolkit.recipe.source import ModelSource


def read_entry(wishes: Wishes, source: ModelSource) -> Mapping[str, Any]:
    """The hub's entry of the wished model. Raises UsageError for wishes that JumpStart leaves no room for."""
    if wishes.platform != "sagemaker":
        message = f"{source} runs in JumpStart's own container, which platform `{wishes.platform}` has not"
        raise UsageError(message, hint="Leave out --platform, or name the model's Hugging Face id.")
    if wishes.method or wishes.max_price or wishes.goal != "latency":
        message = f"JumpStart says how {source} drafts, and on which instance types"
        raise UsageError(message, hint="Leave out --method, --max-price and --optimize; edit the recipe afterwards.")
    from toolkit.platforms.sagemaker.jumpstart import read_jumpstart
    from toolkit.platforms.sagemaker.session import SESSION

    return read_jumpstart(SESSION.open(wishes.region).clients, source.name)


def write_jumpstart_recipe(
    out: Path | None, wishes: Wishes, source: ModelSource, entry: Mapping[str, Any], origin: str
) -> tuple[Path, list[Choice], tuple[str, ...]]:
    """Write the recipe, and its lock where the model may be read: its path, the choices, and notes.

    Raises UsageError if the file exists, or for a model that no engine of the toolkit serves.
    """
    model = parse(entry)
    choices = list(_choices(model, wishes))
    recipe = _recipe(source, choices, wishes.region)
    path = out or Path(f"{recipe['name']}.yaml")
    require_new(path)
    write_whole(path, data_text(recipe, [origin, f"{model}."], choices))
    return path, choices, (*doubts(model), *_unread(path, {source.name: entry}))


def _choices(model: JumpStartModel, wishes: Wishes) -> Iterator[Choice]:
    """What the entry says, as keys of a recipe."""
    if model.repository not in engine_registry.engines() or not model.engine_version:
        image = model.image.rpartition("/")[2]
        raise UsageError(f"JumpStart serves {model.id} with {image}, whose engine is unknown", hint=OTHER_SOURCE)
    preset = model.preset
    if preset and preset.method and preset.read:
        yield Choice("speculation.method", preset.method, "how JumpStart drafts for it")
        if model.drafter:
            yield Choice("speculation.model", f"jumpstart:{model.id}", "the drafter that comes with the model")
        if preset.num_speculative_tokens:
            yield Choice("speculation.num_speculative_tokens", preset.num_speculative_tokens, "JumpStart's own number")
    else:
        yield Choice("speculation.method", "none", "JumpStart does not draft for it")
    yield Choice("engine.version", model.engine_version, "the version in JumpStart's image")
    if wishes.context:
        yield Choice("engine.max_model_len", wishes.context, "tokens of prompt and answer together, as you asked")
    for key, value in model.limits.items():
        if key != "max_model_len" or not wishes.context:
            yield Choice(f"engine.{key}", value, "as JumpStart sets it")
    others = tuple(name for name in model.instance_types if name != model.instance_type)
    yield Choice("platform.instance_types", [model.instance_type], "JumpStart's default", others)


def _recipe(source: ModelSource, choices: list[Choice], region: str | None) -> dict[str, Any]:
    method = choices[0].value
    suffix = "" if method == "none" else f"-{method}"
    recipe: dict[str, Any] = {
        "name": source.name[: LONGEST_NAME - len(suffix)].rstrip("-") + suffix,
        "target": {"model": str(source)},
        "speculation": {},
        "engine": {},
        "platform": {"name": "sagemaker", **({"region": region} if region else {})},
    }
    for choice in choices:
        section, _, key = choice.key.partition(".")
        recipe[section][key] = choice.value
    return recipe


def _unread(path: Path, entries: Entries) -> Iterator[str]:
    """Write the lock; or say what keeps it from being written."""
    recipe = load(path)
    try:
        write_lock(recipe, read_models(recipe, open_files, in_s3(recipe, entries)))
    except ToolkitError as error:
        yield f"The model was not read: {error.message}. {error.hint} Then run: toolkit lock {path}"
