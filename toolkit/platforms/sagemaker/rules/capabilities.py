"""The capabilities of a platform with SageMaker's API, so that no code has to compare its name."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit import registry
from toolkit.catalog import lookup
from toolkit.platforms.image import ECR, ImageStore
from toolkit.recipe.recipe import Recipe


@dataclass(frozen=True)
class Capabilities:
    """Features besides serving requests.

    Fields:
        enhanced_metrics: SageMaker collects the container's own metrics, and metrics of each instance.
        instance_types: types differ in price, disk, driver (AMI) and capacity, and an endpoint may try several.
        runs_programs: the container's program runs as a process, unless the recipe asks for a container.
        deployment_guardrails: an update may have several steps, and alarms can roll it back.
        compiles: training jobs on Trainium can compile.
        monitors: alarms and a dashboard are created unless the recipe says otherwise.
        outlasts: log groups, images and compiled code remain when their endpoint is removed, and a removal says so.
        plan_notes: plans have notes besides that on the base image.
        images: where built images are stored.
        endpoint_seconds: how long an endpoint usually takes until it is in service.
    """

    enhanced_metrics: bool
    instance_types: bool
    runs_programs: bool
    deployment_guardrails: bool
    compiles: bool
    monitors: bool
    outlasts: bool
    plan_notes: bool
    images: ImageStore
    endpoint_seconds: int


SAGEMAKER = Capabilities(
    enhanced_metrics=True,
    instance_types=True,
    runs_programs=False,
    deployment_guardrails=True,
    compiles=True,
    monitors=True,
    outlasts=True,
    plan_notes=True,
    images=ECR,
    endpoint_seconds=lookup.platform("sagemaker").endpoint_seconds,
)


def capabilities(recipe: Recipe) -> Capabilities:
    """The capabilities of the recipe's platform."""
    found: Capabilities = registry.platform_rules(recipe.platform.name).capabilities
    return found
