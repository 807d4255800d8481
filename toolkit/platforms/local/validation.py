"""Requests checked against botocore's own model of the service, as AWS does on its side.

botocore checks required members, types, unknown keys and minima before it sends. Enums, patterns, maximum lengths and
maximum values stand in the same model and only AWS enforces them; here they are enforced too, in AWS's words.

Then what AWS demands of endpoint configurations and deployments beyond the shapes of their fields, by the API reference
of CreateEndpointConfig, ProductionVariant and InstancePool. Where AWS's words are not known, and that is nearly
everywhere, those messages are ours.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape

from toolkit.catalog import lookup
from toolkit.platforms.local.host import Request

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "structure": (dict,),
    "list": (list,),
    "map": (dict,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, datetime),
    "blob": (bytes, str),
}

# AWS's patterns are Java's, and this is what Python's `re` lacks of them. The Unicode classes stand in the pattern of
# tags, where "_" is allowed as well, so that \w is exactly letters, numbers and "_". What is beyond the first 65536
# characters is a pair of surrogates in Java only.
_ONLY_JAVA = {
    r"\p{L}": r"\w",
    r"\p{N}": r"\w",
    r"\p{Z}": "\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000",
    r"[\p{Print}]": "[ -~]",
    r"\p{Print}": "[ -~]",
    r"\p{ASCII}": r"[\x00-\x7f]",
    r"\z": r"\Z",
    r"\uD800\uDC00-\uDBFF\uDFFF": "\U00010000-\U0010ffff",
}
# Of a traffic routing's type: the size that it needs, and the percentages that are allowed.
_SIZES = {"CANARY": ("CanarySize", 1, 50), "LINEAR": ("LinearStepSize", 10, 50)}
_SMALLEST_BATCH, _LARGEST_BATCH = 5, 50


def problems(request: Any, shape: Shape, path: str = "") -> Iterator[str]:
    """What AWS would refuse in that request, one sentence per value; `shape` is the operation's input shape."""
    if not _has_type(request, shape):
        yield _failure(request, path, f"Member must be of type {shape.type_name}")
        return
    yield from _limits(request, shape, path)
    if isinstance(shape, StructureShape):
        yield from _structure(request, shape, path)
    elif isinstance(shape, ListShape):
        for index, item in enumerate(request, start=1):
            yield from problems(item, shape.member, f"{path}.{index}.member")
    elif isinstance(shape, MapShape):
        for key, value in request.items():
            yield from problems(key, shape.key, f"{path}.{key}.key")
            yield from problems(value, shape.value, f"{path}.{key}.value")
    elif isinstance(shape, StringShape):
        yield from _string(request, shape, path)


def _has_type(value: Any, shape: Shape) -> bool:
    if isinstance(value, bool):  # which Python takes for an int
        return shape.type_name == "boolean"
    return isinstance(value, _PYTHON_TYPES[shape.type_name])


def _structure(request: dict[str, Any], shape: StructureShape, path: str) -> Iterator[str]:
    for name in shape.required_members:
        if name not in request:
            yield _failure(None, _member(path, name), "Member must not be null")
    for name, value in request.items():
        if name in shape.members:
            yield from problems(value, shape.members[name], _member(path, name))
        else:
            yield f"Unknown parameter '{_member(path, name)}'"


def _string(text: str, shape: StringShape, path: str) -> Iterator[str]:
    if shape.enum and text not in shape.enum:
        yield _failure(text, path, f"Member must satisfy enum value set: [{', '.join(sorted(shape.enum))}]")
    pattern = shape.metadata.get("pattern")
    compiled = _compile(pattern) if pattern else None
    if compiled and not compiled.fullmatch(text):
        yield _failure(text, path, f"Member must satisfy regular expression pattern: {pattern}")


def _limits(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if isinstance(value, datetime):
        return
    is_number = isinstance(value, (int, float))
    size = value if is_number else len(value)
    noun = "value" if is_number else "length"
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if low is not None and size < low:
        yield _failure(value, path, f"Member must have {noun} greater than or equal to {low}")
    if high is not None and size > high:
        yield _failure(value, path, f"Member must have {noun} less than or equal to {high}")


@cache
def _compile(pattern: str) -> re.Pattern[str] | None:
    """The pattern, None where Python cannot read it: a few are Java's alone."""
    for java, python in _ONLY_JAVA.items():
        pattern = pattern.replace(java, python)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of sets in sets, which mean what they say
        try:
            return re.compile(pattern)
        except re.error:
            return None


def _member(path: str, name: str) -> str:
    camel = name[0].lower() + name[1:]
    return f"{path}.{camel}" if path else camel


def _failure(value: Any, path: str, constraint: str) -> str:
    shown = "null" if value is None else str(value)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return f"Value '{shown}' at '{path}' failed to satisfy constraint: {constraint}"


def guardrail_problems(config: Mapping[str, Any], capacity: int | None = None) -> Iterator[str]:
    """What is wrong with a DeploymentConfig. `capacity` is the number of instances or copies, if it is known.

    By the API references of DeploymentConfig, BlueGreenUpdatePolicy, TrafficRoutingConfig, RollingUpdatePolicy and
    InferenceComponentRollingUpdatePolicy. AWS's words are not known: the messages are ours.
    """
    blue_green, rolling = config.get("BlueGreenUpdatePolicy"), config.get("RollingUpdatePolicy")
    if blue_green and rolling:
        yield "DeploymentConfig takes BlueGreenUpdatePolicy or RollingUpdatePolicy, not both."
    if blue_green:
        yield from _blue_green(blue_green, capacity)
    if rolling:
        yield from _size("MaximumBatchSize", rolling["MaximumBatchSize"], _SMALLEST_BATCH, _LARGEST_BATCH, capacity)
        yield from _time(rolling, rolling["MaximumBatchSize"], rolling["WaitIntervalInSeconds"])


def _blue_green(policy: Mapping[str, Any], capacity: int | None) -> Iterator[str]:
    routing = policy["TrafficRoutingConfiguration"]
    needed, least, most = _SIZES.get(routing["Type"], ("", 0, 0))
    if needed and needed not in routing:
        yield f"TrafficRoutingConfiguration of type {routing['Type']} needs {needed}."
        return
    for other in ("CanarySize", "LinearStepSize"):
        if other in routing and other != needed:
            yield f"{other} is not for TrafficRoutingConfiguration of type {routing['Type']}."
    if needed:
        yield from _size(needed, routing[needed], least, most, capacity)
    step = routing[needed] if routing["Type"] == "LINEAR" else {"Type": "CAPACITY_PERCENT", "Value": 100}
    yield from _time(policy, step, routing["WaitIntervalInSeconds"])


def _size(name: str, size: Mapping[str, Any], least: int, most: int, capacity: int | None) -> Iterator[str]:
    percent = size["Value"] if size["Type"] == "CAPACITY_PERCENT" else capacity and 100 * size["Value"] / capacity
    if percent and not least <= percent <= most:
        yield f"{name} must be between {least}% and {most}% of the capacity."


def _time(policy: Mapping[str, Any], step: Mapping[str, Any], wait: int) -> Iterator[str]:
    steps = math.ceil(100 / step["Value"]) if step["Type"] == "CAPACITY_PERCENT" else 1
    waiting = steps * wait + policy.get("TerminationWaitInSeconds", 0)
    if policy.get("MaximumExecutionTimeoutInSeconds", math.inf) <= waiting:
        yield f"MaximumExecutionTimeoutInSeconds must be larger than the total waiting time, {waiting} seconds."


def variants(request: Request) -> Sequence[dict[str, Any]]:
    """Production and shadow variants."""
    return [*request["ProductionVariants"], *request.get("ShadowProductionVariants", [])]


def model_names(variant: Mapping[str, Any]) -> set[str]:
    """The models that a variant may run."""
    pools = variant.get("InstancePools", [{}])
    names = {pool.get("ModelNameOverride", variant.get("ModelName")) for pool in pools} | {variant.get("ModelName")}
    return {name for name in names if name is not None}


def list_problems(request: Request) -> Iterator[str]:
    """What is wrong with the lists of variants as a whole."""
    names = [variant["VariantName"] for variant in variants(request)]
    if len(set(names)) < len(names):
        yield "The VariantName of each production variant must be unique."
    shadows = request.get("ShadowProductionVariants", [])
    if shadows and (len(shadows), len(request["ProductionVariants"])) != (1, 1):
        yield "With ShadowProductionVariants there can only be one production variant and one shadow variant."


def config_problems(request: Request) -> Iterator[str]:
    """How a configuration with models contradicts itself."""
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
