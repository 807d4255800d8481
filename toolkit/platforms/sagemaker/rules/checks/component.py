"""Will an inference component find room on the instances, and the variant that it belongs to?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.catalog.trainium import family
from toolkit.findings import Finding
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.schema import ComponentSection

_TYPES = "platform.instance_types"
_COMPONENT = "platform.inference_component"
_MIB_PER_GIB = 1024


def check_component(recipe: Recipe) -> Iterator[Finding]:
    """Findings on `platform.inference_component`, and on the keys that do not go with it."""
    component = recipe.platform.component
    if component is None:
        if recipe.scaling.min_instances == 0:
            message = "an endpoint without inference components cannot scale to zero"
            hint = "Set it to 1 or more, or add `inference_component: {}` to the platform."
            yield Finding("sagemaker.scale-to-zero", message, "scaling.min_instances", hint=hint)
        return
    yield from _experiment(recipe)
    yield from _update(recipe)
    yield from _types(recipe)
    for index, name in enumerate(() if recipe.leaves_instance_type_open else recipe.platform.instance_types):
        if instance := lookup.instance(name):
            yield from _room(recipe.on(name), component, instance, f"{_TYPES}.{index}")


def _experiment(recipe: Recipe) -> Iterator[Finding]:
    """A component names one variant, and a variant for components has no model of its own."""
    rollout = recipe.rollout
    if recipe.speculation and (rollout.shadow or rollout.speculative_percent < 100):
        key = "shadow" if rollout.shadow else "speculative_percent"
        message = "an inference component lives on one variant: there is none for the baseline"
        hint = f"Remove `{key}`, or `inference_component`."
        yield Finding("sagemaker.component-experiment", message, f"rollout.{key}", hint=hint)


def _update(recipe: Recipe) -> Iterator[Finding]:
    for key, is_set in (("update", recipe.rollout.update != "all-at-once"), ("alarms", bool(recipe.rollout.alarms))):
        if is_set:
            message = f"`{key}` is for updates of the endpoint, a changed model of the component does not heed it"
            yield Finding(
                "sagemaker.component-update", message, f"rollout.{key}", hint="Remove it.", severity="warning"
            )


def _types(recipe: Recipe) -> Iterator[Finding]:
    """All copies run one Model, made for the first instance type."""
    first = recipe.on(recipe.platform.instance_types[0])
    for index, name in enumerate(recipe.platform.instance_types):
        here = recipe.on(name)
        if (here.engine, here.speculation) != (first.engine, first.speculation):
            other = recipe.platform.instance_types[0]
            message = f"copies on {name} run with the settings of {other}: a component has one model"
            hint = "Give all types the same settings, or leave only one."
            yield Finding("sagemaker.component-types", message, f"{_TYPES}.{index}", hint=hint)
        elif recipe.engine.rules.compiles(recipe) and family(name) != family(first.platform.instance_types[0]):
            message = f"the one model of a component is compiled for {first.platform.instance_types[0]}, not for {name}"
            hint = "Write a recipe for each family."
            yield Finding("sagemaker.component-types", message, f"{_TYPES}.{index}", hint=hint)


def _room(recipe: Recipe, component: ComponentSection, instance: lookup.Instance, path: str) -> Iterator[Finding]:
    """A copy must fit an instance, and the engine the accelerators that its copy gets.

    What SageMaker counts on Trainium is not known, of which the engine's check warns.
    """
    needed = recipe.engine.args.get("tensor-parallel-size", 1)
    given = component.accelerators or needed
    if isinstance(needed, int) and isinstance(given, int) and not instance.neuron_cores:
        if given < needed:
            message = f"tensor-parallel-size {needed} needs as many accelerators, a copy gets {given}"
            hint = f"Set it to {needed}, or remove it."
            yield Finding("sagemaker.component-size", message, f"{_COMPONENT}.accelerators", hint=hint)
        if given > instance.accelerator_count:
            message = f"a copy takes {given} accelerators, {instance.name} has {instance.accelerator_count}"
            yield Finding("sagemaker.component-size", message, path, hint="Choose a larger type: toolkit fit RECIPE")
    if component.memory_mib > instance.host_memory_gib * _MIB_PER_GIB:
        message = (
            f"a copy takes {component.memory_mib} MiB of memory, {instance.name} has {instance.host_memory_gib:g} GiB"
        )
        hint = "It is the host's memory: the weights are in that of the accelerators."
        yield Finding("sagemaker.component-size", message, f"{_COMPONENT}.memory_mib", hint=hint)
