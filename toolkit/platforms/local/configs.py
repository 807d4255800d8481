"""What AWS demands of endpoint configurations beyond the shapes of their fields.

By the API reference of CreateEndpointConfig, ProductionVariant and InstancePool. Where AWS's words are not known, and
that is nearly everywhere, the messages are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.catalog import lookup
from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.host import Request


def variants(request: Request) -> Sequence[dict[str, Any]]:
    """Production and shadow variants."""
    return [*request["ProductionVariants"], *request.get("ShadowProductionVariants", [])]


def model_names(variant: Mapping[str, Any]) -> set[str]:
    """The models that a variant may run."""
    pools = variant.get("InstancePools", [{}])
    names = {pool.get("ModelNameOverride", variant.get("ModelName")) for pool in pools} | {variant.get("ModelName")}
    return {name for name in names if name is not None}


def must_be_possible(request: Request) -> None:
    """Raise ServiceError for a configuration that contradicts itself."""
    if problem := next(_problems(request), None):
        raise ServiceError(problem)


def list_problems(request: Request) -> Iterator[str]:
    """What is wrong with the lists of variants as a whole."""
    names = [variant["VariantName"] for variant in variants(request)]
    if len(set(names)) < len(names):
        yield "The VariantName of each production variant must be unique."
    shadows = request.get("ShadowProductionVariants", [])
    if shadows and (len(shadows), len(request["ProductionVariants"])) != (1, 1):
        yield "With ShadowProductionVariants there can only be one production variant and one shadow variant."


def _problems(request: Request) -> Iterator[str]:
    yield from list_problems(request)
    for variant in variants(request):
        if "ManagedInstanceScaling" in variant:
            yield "ManagedInstanceScaling is only supported for inference component endpoints."  # AWS's words
        if "InitialInstanceCount" not in variant:
            yield f"Variant {variant['VariantName']} needs InitialInstanceCount, and InstanceType or InstancePools."
        yield from variant_problems(variant)


def variant_problems(variant: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a variant's routing and instance types."""
    name, pools = variant["VariantName"], variant.get("InstancePools", [])
    if "InstanceType" not in variant and not pools:
        yield f"Variant {name} needs InitialInstanceCount, and InstanceType or InstancePools."
        return
    yield from _routing_problems(name, variant.get("RoutingConfig", {}))
    if "InstanceType" in variant and pools:
        yield f"Variant {name} has both InstanceType and InstancePools; it takes one of them."
    for key in ("InstanceType", "Priority"):
        if len({pool[key] for pool in pools}) < len(pools):
            yield f"The {key} of each instance pool of variant {name} must be unique."
    for instance in map(lookup.instance, instance_types(variant)):
        if "VolumeSizeInGB" in variant and instance and instance.local_nvme_gb:
            yield f"VolumeSizeInGB of variant {name} is not allowed: {instance.name} has its own instance store."


def _routing_problems(name: str, routing: Mapping[str, Any]) -> Iterator[str]:
    """API references of ProductionVariantRoutingConfig and PrefixAwareRoutingConfig."""
    is_prefix_aware = routing.get("RoutingStrategy") == "PREFIX_AWARE"
    given = routing.get("PrefixAwareRoutingConfig", {})
    if is_prefix_aware and (lacking := {"PrefixLength", "ConcurrencyThreshold"} - given.keys()):
        needed = ", ".join(sorted(lacking))
        yield f"PREFIX_AWARE routing of variant {name} needs PrefixAwareRoutingConfig with {needed}."
    elif "PrefixAwareRoutingConfig" in routing and not is_prefix_aware:
        yield f"PrefixAwareRoutingConfig of variant {name} is only for PREFIX_AWARE routing."


def instance_types(variant: Mapping[str, Any]) -> list[str]:
    """Where a variant may run, the one wanted most first."""
    pools = sorted(variant.get("InstancePools", []), key=lambda pool: int(pool["Priority"]))
    return [pool["InstanceType"] for pool in pools] or [variant["InstanceType"]]
