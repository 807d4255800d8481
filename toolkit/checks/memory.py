"""Does the pair fit the memory of the instance, with room for the requests that it shall serve?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.checks.hardware import ML, instance_of
from toolkit.checks.head import HEAD_METHODS
from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.recipe.lock import Lock
from toolkit.recipe.resolve import Recipe
from toolkit.sizing.fit import Fit, fit, fits, sizable
from toolkit.sizing.shape import shape_of

_TYPES = "platform.instance_types"
_LENGTH = "engine.max_model_len"
_TENSOR_PARALLEL = "tensor-parallel-size"
_OFFERED = 3


def check_memory(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on each instance type; nothing where the memory of this machine is what counts (`local`)."""
    if recipe.platform.name == "local" or (recipe.on_neuron and recipe.engine.max_model_len is None):
        return  # graphs for Trainium are compiled for the length, which check_neuron asks for
    try:
        models, problem = sizable(models)
    except ToolkitError as error:
        yield Finding("memory.unknown", error.message, "target.model", hint=error.hint, severity="info")
        return
    if problem:
        message = f"{problem.message}: what the drafter takes is left out"
        yield Finding("memory.unknown", message, "speculation.model", hint=problem.hint, severity="info")
    if not recipe.on_neuron:
        yield from _kv_groups(recipe, models)
    if recipe.leaves_instance_type_open:
        return
    try:
        for index, name in enumerate(recipe.platform.instance_types):
            if found := instance_of(recipe, name):
                yield from _instance(recipe, models, fit(recipe, models, found), f"{_TYPES}.{index}")
    except ToolkitError as error:  # a flag's value that the memory model does not know
        yield Finding("memory.unknown", error.message, "engine", hint=error.hint, severity="warning")


def _instance(recipe: Recipe, models: Lock, found: Fit, path: str) -> Iterator[Finding]:
    size = found.tensor_parallel
    if found.fits and size > 1 and _TENSOR_PARALLEL not in recipe.on(found.instance).engine.args:
        unit = "logical cores" if recipe.on_neuron else "accelerators"
        message = f"{found.instance}: it takes {size} {unit}, and the engine uses one unless it is told"
        hint = f"Add `{_TENSOR_PARALLEL}: {size}` to engine.args."
        if len(recipe.platform.instance_types) > 1 and recipe.platform.name != "kubernetes":
            hint = f"For this type: `{{type: {found.instance}, args: {{{_TENSOR_PARALLEL}: {size}}}}}`. {hint}"
        yield Finding("memory.tensor-parallel", message, path, hint=hint)
    if found.fits or (recipe.on_neuron and not found.weights_gib):  # not sized: check_neuron_hardware says why
        return
    others = f"The cheapest types that fit: {_cheapest(recipe, models)}."
    message = f"{found.instance}: {found.reason}"
    if found.largest_context:
        hint = f"Set it to {found.largest_context} or less. {others}"
        yield Finding("memory.context", message, _LENGTH, hint=hint)
    else:
        yield Finding("memory.does-not-fit", message, path, hint=f"{others} See: toolkit fit {recipe.path}")


def _kv_groups(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """vLLM deals layers that are alike out to groups of one size, and wants all of the drafter's in the same group."""
    if models.drafter is None or recipe.method not in HEAD_METHODS:
        return
    target, head = shape_of(models.target), shape_of(models.drafter)
    kinds = Counter(target.cached_layers + head.cached_layers)
    if len(kinds) == 1 or len(head.cached_layers) == 1:
        return
    least, most = min(kinds.values()), max(kinds.values())
    factor = lookup.kv_group_factor(recipe.engine.name, recipe.engine.version) or 1.0
    size = most if most < least * factor else least
    spread = [layer for layer in head.cached_layers if kinds[layer] > size]
    if spread:
        message = (
            f"the target has layers of {len(kinds)} kinds, in KV groups of {size}; the {kinds[spread[0]]} "
            f"{spread[0].kind} ones, those of the head included, do not stay together"
        )
        hint = "Take a newer engine, or a head with one layer."
        yield Finding("engine.kv-groups", message, "engine.version", hint=hint)


def _cheapest(recipe: Recipe, models: Lock) -> str:
    cluster = recipe.platform.name == "kubernetes"
    able = [type_ for type_ in lookup.instances() if type_.accelerator and (cluster or type_.hostable)]
    found = [item.instance.removeprefix(ML if cluster else "") for item in fits(recipe, models, able) if item.fits]
    return ", ".join(found[:_OFFERED]) or "none, with these settings"
