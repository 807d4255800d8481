"""What a platform with SageMaker's API can do: data in place of questions for its name."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.catalog import lookup, registry
from toolkit.platforms.image import ECR, ImageStore
from toolkit.recipe.resolve import Recipe


@dataclass(frozen=True)
class Capabilities:
    """What there is besides endpoints that answer.

    Fields:
        enhanced_metrics: SageMaker reads the container's metrics, and measures each instance.
        instance_types: types differ: in price, disk, driver (AMI), capacity, and an endpoint may try several.
        runs_programs: the container's program is started as it is, unless the recipe asks for a container.
        deployment_guardrails: an update may go in steps, and be undone by alarms.
        compiles: training jobs compile ahead, on Trainium.
        monitors: alarms and a dashboard are made unless the recipe says otherwise.
        outlasts: log groups, images and compiled code outlast their endpoint, which a removal says.
        plan_notes: a plan says more than what its image is built on.
        images: where images that are built are kept.
        endpoint_seconds: how long an endpoint is thought to take until it is in service.
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
    """Those of the recipe's platform."""
    found: Capabilities = registry.platform_rules(recipe.platform.name).capabilities
    return found
