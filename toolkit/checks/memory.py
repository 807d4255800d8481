"""Do the two models fit the memory of the instance, with a KV cache for the requests?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog.lookup import Instance
from toolkit.errors import ToolkitError
from toolkit.findings import Finding, Severity
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import Recipe
from toolkit.sizing.fit import TENSOR_PARALLEL, Fit, fit, fits, sizable

_TYPES = "platform.instance_types"
_LENGTH = "engine.max_model_len"
_OFFERED = 3


def check_memory(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on each instance type; empty on a platform without instance types."""
    if not recipe.platform_rules.facts.has_instance_types:
        return
    if recipe.engine_rules.compilation and recipe.engine.max_model_len is None:
        return  # the engine's own check asks for max_model_len, for which graphs are compiled
    try:
        models, problem = sizable(models)
    except ToolkitError as error:
        yield Finding("memory.unknown", error.message, "target.model", hint=error.hint, severity="info")
        return
    if problem:
        yield Finding("memory.unknown", problem.message, "speculation.model", hint=problem.hint, severity="info")
    if recipe.leaves_instance_type_open:
        return
    try:
        for index, name in enumerate(recipe.platform.types):
            instance = recipe.platform_rules.instance(name)
            if instance and recipe.engine_rules.runs_on(instance):  # else the hardware checks report the type
                yield from _instance(recipe, models, instance, f"{_TYPES}.{index}")
    except ToolkitError as error:  # a flag's value that the memory estimate does not support
        yield Finding("memory.unknown", error.message, "engine", hint=error.hint, severity="warning")


def _instance(recipe: Recipe, models: Lock, instance: Instance, path: str) -> Iterator[Finding]:
    sized = fit(recipe, models, instance)
    size = sized.tensor_parallel
    if sized.fits and size > 1 and TENSOR_PARALLEL not in recipe.on(sized.instance).engine.args:
        unit = "logical cores" if instance.neuron_cores else "accelerators"
        message = f"{sized.instance}: the models need {size} {unit}, and the engine uses one by default"
        hint = f"Add `{TENSOR_PARALLEL}: {size}` to engine.args."
        if len(recipe.platform.types) > 1 and recipe.platform_rules.facts.has_settings_by_type:
            hint = f"For this type only: `{{type: {sized.instance}, args: {{{TENSOR_PARALLEL}: {size}}}}}`. {hint}"
        message, severity = _verdict(sized, message)
        yield Finding("memory.tensor-parallel", message, path, hint=hint, severity=severity)
    if sized.fits or (recipe.engine_rules.hardware and not sized.weights_gib):  # not sized
        return
    others = f"Cheapest types that fit: {_cheapest(recipe, models)}."
    message, severity = _verdict(sized, f"{sized.instance}: {sized.reason}")
    if sized.largest_context:
        hint = f"Set it to {sized.largest_context} or less. {others}"
        yield Finding("memory.context", message, _LENGTH, hint=hint, severity=severity)
    else:
        hint = f"{others} See: toolkit fit {recipe.path}"
        yield Finding("memory.does-not-fit", message, path, hint=hint, severity=severity)


def _verdict(sized: Fit, message: str) -> tuple[str, Severity]:
    """The message with the estimate's uncertainty, and a warning instead of an error if that could change it."""
    if not sized.doubtful:
        return message, "error"
    return f"{message} (an estimate that may be off by {sized.uncertainty_gib:.1f} GiB)", "warning"


def _cheapest(recipe: Recipe, models: Lock) -> str:
    able = [instance for instance in recipe.platform_rules.instances() if instance.accelerator]
    fitting = [item.instance for item in fits(recipe, models, able) if item.fits]
    return ", ".join(fitting[:_OFFERED]) or "none, with these settings"
