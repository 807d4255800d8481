"""What AWS demands of endpoint configurations beyond the shapes of their fields.

By the API reference of CreateEndpointConfig, ProductionVariant and InstancePool. Where AWS's words are not known, and
that is nearly everywhere, the messages are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from toolkit.catalog import lookup
from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.host import Request


def variants(request: Request) -> Sequence[dict[str, Any]]:
    """Production and shadow variants."""
    return [*request["ProductionVariants"], *request.get("ShadowProductionVariants", [])]


def model_names(variant: dict[str, Any]) -> set[str]:
    """The models that a variant may run."""
    pools = variant.get("InstancePools", [{}])
    names = {pool.get("ModelNameOverride", variant.get("ModelName")) for pool in pools} | {variant.get("ModelName")}
    return {name for name in names if name is not None}


def must_be_possible(request: Request) -> None:
    """Raise ServiceError for a configuration that contradicts itself."""
    if problem := next(_problems(request), None):
        raise ServiceError(problem)


def _problems(request: Request) -> Iterator[str]:
    names = [variant["VariantName"] for variant in variants(request)]
    if len(set(names)) < len(names):
        yield "The VariantName of each production variant must be unique."
    shadows = request.get("ShadowProductionVariants", [])
    if shadows and (len(shadows), len(request["ProductionVariants"])) != (1, 1):
        yield "With ShadowProductionVariants there can only be one production variant and one shadow variant."
    with_model = [bool(model_names(variant)) for variant in variants(request)]
    if any(with_model) and not all(with_model):
        yield "Either every variant has a ModelName, or none has, for inference components."
    if not any(with_model) and "ExecutionRoleArn" not in request:
        yield "An endpoint configuration for inference components, without ModelName, needs an ExecutionRoleArn."
    for variant in variants(request):
        yield from _count_problems(variant)
        yield from _type_problems(variant)


def _count_problems(variant: dict[str, Any]) -> Iterator[str]:
    name, scaling = variant["VariantName"], variant.get("ManagedInstanceScaling", {})
    if scaling and model_names(variant):
        yield "ManagedInstanceScaling is only supported for inference component endpoints."  # AWS's words
    if "InitialInstanceCount" not in variant and not scaling:
        yield f"Variant {name} needs InitialInstanceCount, and InstanceType or InstancePools."
    lowest = scaling.get("MinInstanceCount", 0)
    if lowest > scaling.get("MaxInstanceCount", lowest):
        yield f"MinInstanceCount of variant {name} is larger than MaxInstanceCount."


def _type_problems(variant: dict[str, Any]) -> Iterator[str]:
    name, pools = variant["VariantName"], variant.get("InstancePools", [])
    if "InstanceType" not in variant and not pools:
        yield f"Variant {name} needs InitialInstanceCount, and InstanceType or InstancePools."
        return
    if "InstanceType" in variant and pools:
        yield f"Variant {name} has both InstanceType and InstancePools; it takes one of them."
    for key in ("InstanceType", "Priority"):
        if len({pool[key] for pool in pools}) < len(pools):
            yield f"The {key} of each instance pool of variant {name} must be unique."
    for instance in map(lookup.instance, instance_types(variant)):
        if "VolumeSizeInGB" in variant and instance and instance.local_nvme_gb:
            yield f"VolumeSizeInGB of variant {name} is not allowed: {instance.name} has its own instance store."


def instance_types(variant: dict[str, Any]) -> list[str]:
    """Where a variant may run, the one wanted most first."""
    pools = sorted(variant.get("InstancePools", []), key=lambda pool: int(pool["Priority"]))
    return [pool["InstanceType"] for pool in pools] or [variant["InstanceType"]]
