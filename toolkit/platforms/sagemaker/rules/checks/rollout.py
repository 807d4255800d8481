"""Does SageMaker accept the update's steps, and is autoscaling effective?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from toolkit.findings import Finding
from toolkit.platforms.sagemaker.keys import aws, aws_rollout
from toolkit.recipe.recipe import Recipe

_STEP, _UPDATE, _WAIT = "rollout.step_percent", "rollout.update", "rollout.wait_seconds"
# botocore 1.44.5, TrafficRoutingConfig: LinearStepSize is 10-50 % (CanarySize and MaximumBatchSize: up to 50 %).
_SMALLEST_LINEAR = 10
# The plan's MaximumExecutionTimeoutInSeconds of an update must be longer than all its pauses.
LONGEST_UPDATE_SECONDS = 14400


def check_rollout(recipe: Recipe) -> Iterator[Finding]:
    """Findings on `rollout` and `scaling`."""
    rollout, scaling = aws_rollout(recipe), recipe.scaling
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
    wanted, most = scaling.requests_per_instance, recipe.engine.max_num_seqs
    if wanted and wanted > most and scaling.max_instances > scaling.min_instances:
        message = f"autoscaling aims at {wanted} concurrent requests, but the engine processes {most}: the others wait"
        path, hint = "scaling.requests_per_instance", f"Set it below {most}, or remove it."
        yield Finding("sagemaker.scaling-target", message, path, hint=hint, severity="warning")


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
