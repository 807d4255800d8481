"""Does the pair fit the memory of the instance, with room for the requests that it shall serve?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.recipe.lock import Lock
from toolkit.recipe.resolve import Recipe
from toolkit.sizing.fit import Fit, fit, fits

_TYPES = "platform.instance_types"
_LENGTH = "engine.max_model_len"
_OFFERED = 3


def check_memory(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on each instance type; nothing where the memory of this machine is what counts (`local`)."""
    if recipe.platform == "local":
        return
    try:
        for index, name in enumerate(recipe.instance_types):
            if found := lookup.instance(name):
                yield from _instance(recipe, models, fit(recipe, models, found), f"{_TYPES}.{index}")
    except ToolkitError as error:
        # The model's shape is not one that the memory model knows: nothing is said rather than something wrong.
        yield Finding("memory.unknown", error.message, "target.model", hint=error.hint, severity="info")


def _instance(recipe: Recipe, models: Lock, found: Fit, path: str) -> Iterator[Finding]:
    if not found.fits:
        hint = f"The cheapest that fit: {_cheapest(recipe, models)}. See: toolkit fit {recipe.path}"
        yield Finding("memory.does-not-fit", f"{found.instance}: {found.reason}", path, hint=hint)
    elif found.max_concurrency < 1:
        message = (
            f"{found.instance} has room for {found.kv_tokens} tokens of KV cache, "
            f"one request may take {found.max_model_len}: the engine would not start"
        )
        hint = f"Set it to {found.largest_context} or less."
        yield Finding("memory.context", message, _LENGTH, hint=hint)


def _cheapest(recipe: Recipe, models: Lock) -> str:
    hostable = [instance for instance in lookup.instances() if instance.hostable and instance.accelerator]
    found = [item for item in fits(recipe, models, hostable) if item.fits and item.max_concurrency >= 1]
    return ", ".join(item.instance for item in found[:_OFFERED]) or "none, with these settings"
