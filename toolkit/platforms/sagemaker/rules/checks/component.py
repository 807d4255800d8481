"""Does an inference component fit its endpoint, does SageMaker accept an update's steps, and does scaling work?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.checks.sections import check_scaling_target
from toolkit.findings import Finding
from toolkit.platforms.sagemaker.keys import ComponentSection, aws, aws_rollout
from toolkit.recipe.recipe import Recipe

_TYPES = "platform.instance_types"
_COMPONENT = "platform.inference_component"
_MIB_PER_GIB = 1024
_STEP, _UPDATE, _WAIT = "rollout.step_percent", "rollout.update", "rollout.wait_seconds"
# botocore 1.44.5, TrafficRoutingConfig: LinearStepSize is 10-50 % (CanarySize and MaximumBatchSize: up to 50 %).
_SMALLEST_LINEAR = 10
# The plan's MaximumExecutionTimeoutInSeconds of an update must be longer than all its pauses.
LONGEST_UPDATE_SECONDS = 14400


def check_component(recipe: Recipe) -> Iterator[Finding]:
    """Findings on `platform.inference_component`, and on keys that cannot be combined with it."""
    component = aws(recipe).inference_component
    if component is None:
        if recipe.scaling.min_instances == 0:
            message = "an endpoint without inference components cannot scale to zero"
            hint = "Set it to 1 or more, or add `inference_component: {}` to `platform`."
            yield Finding("sagemaker.scale-to-zero", message, "scaling.min_instances", hint=hint)
        return
    yield from scale_to_zero(recipe, recipe.region)
    yield from _experiment(recipe)
    yield from _update(recipe)
    for index, name in enumerate(() if recipe.leaves_instance_type_open else recipe.platform.types):
        if instance := lookup.instance(name):
            yield from _room(recipe.on(name), component, instance, f"{_TYPES}.{index}")


def scale_to_zero(recipe: Recipe, region: str | None) -> Iterator[Finding]:
    """Some regions refuse it; AWS has no list of them."""
    source = lookup.platform("sagemaker").scale_to_zero_refused.get(region or "")
    if source and aws(recipe).inference_component and recipe.scaling.min_instances == 0:
        message = f"AWS has refused endpoints that scale to zero in {region}: {source}"
        hint = "Set it to 1 or more, or platform.region to another region."
        yield Finding("sagemaker.scale-to-zero", message, "scaling.min_instances", hint=hint, severity="warning")


def _experiment(recipe: Recipe) -> Iterator[Finding]:
    """A component belongs to one variant, and a variant with components has no model of its own."""
    rollout = aws_rollout(recipe)
    if recipe.speculation and (rollout.shadow or rollout.speculative_percent < 100):
        key = "shadow" if rollout.shadow else "speculative_percent"
        message = (
            "an inference component belongs to one variant, so the endpoint cannot have a variant for the baseline"
        )
        hint = f"Remove `{key}`, or `inference_component`."
        yield Finding("sagemaker.component-experiment", message, f"rollout.{key}", hint=hint)


def _update(recipe: Recipe) -> Iterator[Finding]:
    """UpdateInferenceComponent can replace copies in steps, and only then roll back on alarms."""
    update = aws_rollout(recipe).update
    if update in ("canary", "linear"):
        message = f"SageMaker has no `{update}` updates of inference components: it would replace all copies at once"
        hint = "Use `rolling`, or remove it."
        yield Finding("sagemaker.component-update", message, "rollout.update", hint=hint, severity="warning")
    if aws_rollout(recipe).alarms and update != "rolling":
        message = "alarms roll back only `rolling` updates of inference components"
        hint = "Write `update: rolling`, or remove them."
        yield Finding("sagemaker.component-update", message, "rollout.alarms", hint=hint, severity="warning")


def _room(recipe: Recipe, component: ComponentSection, instance: lookup.Instance, path: str) -> Iterator[Finding]:
    """A copy must fit the instance, and the engine must fit the accelerators of its copy.

    What SageMaker counts on Trainium is unknown; the engine's check warns about that.
    """
    needed = recipe.engine.args.get("tensor-parallel-size", 1)
    given = component.accelerators or needed
    if isinstance(needed, int) and isinstance(given, int) and not instance.neuron_cores:
        if given < needed:
            message = f"tensor-parallel-size {needed} needs that many accelerators, but a copy gets {given}"
            hint = f"Set it to {needed}, or remove it."
            yield Finding("sagemaker.component-size", message, f"{_COMPONENT}.accelerators", hint=hint)
        if given > instance.accelerator_count:
            message = f"a copy needs {given} accelerators, but {instance.name} has {instance.accelerator_count}"
            yield Finding("sagemaker.component-size", message, path, hint="Use a larger type. See: toolkit fit RECIPE")
    if component.memory_mib > instance.host_memory_gib * _MIB_PER_GIB:
        message = f"a copy needs {component.memory_mib} MiB, but {instance.name} has {instance.host_memory_gib:g} GiB"
        hint = "Lower it: this is host memory, and the weights are in the accelerators' memory."
        yield Finding("sagemaker.component-size", message, f"{_COMPONENT}.memory_mib", hint=hint)


def check_rollout(recipe: Recipe) -> Iterator[Finding]:
    """Findings on `rollout` and `scaling`."""
    rollout = aws_rollout(recipe)
    if rollout.update == "rolling" or (rollout.update != "all-at-once" and aws(recipe).inference_component is None):
        yield from _steps(recipe)
    if recipe.speculation is None and (rollout.shadow or rollout.speculative_percent < 100):
        key = "shadow" if rollout.shadow else "speculative_percent"
        message = "it has no effect: the recipe has no speculation to compare with its baseline"
        path, hint = f"rollout.{key}", "Remove it, or choose a method."
        yield Finding("sagemaker.rollout-baseline", message, path, hint=hint, severity="warning")
    elif rollout.update == "rolling" and rollout.speculative_percent < 100:
        message = (
            "SageMaker has no rolling updates of several variants: it would update all at once, without a baking period"
        )
        hint = "Use `canary` or `linear`."
        yield Finding("sagemaker.rollout-variants", message, _UPDATE, hint=hint, severity="warning")
    yield from check_scaling_target(recipe, "sagemaker.scaling-target")


def _steps(recipe: Recipe) -> Iterator[Finding]:
    rollout = aws_rollout(recipe)
    if rollout.update == "linear" and rollout.step_percent < _SMALLEST_LINEAR:
        message = f"a linear update needs steps of {_SMALLEST_LINEAR} % or more"
        yield Finding("sagemaker.rollout-step", message, _STEP, hint=f"Set it to {_SMALLEST_LINEAR}, or use `canary`.")
    if recipe.scaling.max_instances == 1:
        what = "copy" if aws(recipe).inference_component else "instance"
        message = f"one {what} cannot be replaced in steps; unverified: SageMaker may refuse `{rollout.update}`"
        hint = "Use `all-at-once`, or set scaling.min_instances and max_instances to 2 or more."
        yield Finding("sagemaker.rollout-step", message, _UPDATE, hint=hint, severity="warning")
    pauses = 1 if rollout.update == "canary" else math.ceil(100 / rollout.step_percent)
    waiting = pauses * rollout.wait_seconds
    if waiting >= LONGEST_UPDATE_SECONDS:
        message = f"{pauses} pauses take {waiting} s, but an update is rolled back after {LONGEST_UPDATE_SECONDS} s"
        hint = f"Set it below {LONGEST_UPDATE_SECONDS // pauses}, or use larger steps."
        yield Finding("sagemaker.rollout-time", message, _WAIT, hint=hint)
