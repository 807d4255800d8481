"""What an update changes on AWS: in requests, and in a recipe's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.engines import registry as engine_registry
from toolkit.planning.plan import NOTHING, Changes, as_change, differing, shown
from toolkit.planning.resources import Observed, Resource

MODEL_KEYS = ("PrimaryContainer", "ExecutionRoleArn", "VpcConfig", "EnableNetworkIsolation")
CONFIG_KEYS = (
    "ProductionVariants",
    "ShadowProductionVariants",
    "ExecutionRoleArn",
    "VpcConfig",
    "EnableNetworkIsolation",
    "MetricsConfig",
    "DataCaptureConfig",
    "KmsKeyId",
)
COMPONENT_KEYS = ("Specification", "Specifications")
"""Keys of requests that describe what runs, as AWS's descriptions have them too."""

# What AWS's descriptions say where a request says nothing.
_DEFAULTS: Mapping[str, Any] = {"Mode": "SingleModel", "EnableNetworkIsolation": False, "InitialVariantWeight": 1.0}
# Lists of things that have a name are compared by it.
_NAMES = ("VariantName", "ChannelName", "InstanceType")
_TO_MODELS = ("ModelName", "ModelNameOverride")
_WORDS = {
    "ContainerStartupHealthCheckTimeoutInSeconds": "health_check_timeout",
    "ExecutionRoleArn": "role",
    "Image": "image",
    "InitialInstanceCount": "min_instances",
    "InstanceType": "instance_types",
    "KmsKeyId": "kms_key",
    "MaxInstanceCount": "max_instances",
    "MinInstanceCount": "min_instances",
    "MinMemoryRequiredInMb": "memory_mib",
    "NumberOfAcceleratorDevicesRequired": "accelerators",
    "RoutingStrategy": "routing",
    "SecurityGroupIds": "security_groups",
    "Subnets": "subnets",
}
_MOST_WORDS = 3


def selected(request: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Those keys of a request or description."""
    return {key: request[key] for key in keys if key in request}


def of_request(
    resource: Resource | None, running: Mapping[str, Any] | None, keys: Sequence[str],
    desired: Sequence[Resource], observed: Observed, effect: str = "",
) -> Changes:  # fmt: skip
    """The changes from what runs to a resource, with the content of models in the place of their names.

    Nothing where it is not known what runs. `effect` is what the update does, in words.
    """
    if resource is None or running is None:
        return Changes()
    was = {each.name: each.state.get("Content", {}) for each in observed.existing if each.kind == "Model"}
    will = {each.name: selected(each.request, MODEL_KEYS) for each in desired if each.kind == "Model"}
    return described(_expand(running, was), _expand(selected(resource.request, keys), will), effect)


def described(before: Any, after: Any, effect: str = "") -> Changes:
    """The changes from one request to another."""
    found = list(differing((), before, after))
    words = list(dict.fromkeys(_in_words(found)))
    more = [f"and {len(words) - _MOST_WORDS} more"] if len(words) > _MOST_WORDS else []
    told = ", ".join([*words[:_MOST_WORDS], *more])
    return Changes(tuple(as_change(*each) for each in found), f"{told}; {effect}" if told and effect else told)


def _expand(value: Any, models: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        by_name = [name for name in _NAMES if all(isinstance(each, Mapping) and name in each for each in value)]
        if not value or not by_name:
            return [_expand(each, models) for each in value]
        name = by_name[0]
        return {each[name]: _expand({k: v for k, v in each.items() if k != name}, models) for each in value}
    if not isinstance(value, Mapping):
        return value
    return {
        "Model" if key in _TO_MODELS else key: _expand(models.get(part, part) if key in _TO_MODELS else part, models)
        for key, part in value.items()
        if _DEFAULTS.get(key, NOTHING) != part
    }


def _in_words(found: Sequence[tuple[tuple[str, ...], Any, Any]]) -> Iterator[str]:
    prefixes = [engine_registry.engine_rules(name).variable_prefix for name in engine_registry.engines()]
    for path, before, after in found:
        start, end = ("nothing" if value is NOTHING else _brief(value) for value in (before, after))
        yield f"{_name(path, prefixes)} {start} -> {end}"


def _name(path: tuple[str, ...], prefixes: Sequence[str]) -> str:
    """What a recipe calls it: a flag by the engine's name, else the request's own last key."""
    if "Environment" in path[:-1]:
        variable, *inner = path[path.index("Environment") + 1 :]
        prefix = max((each for each in prefixes if variable.startswith(each)), key=len, default="")
        return inner[-1] if inner else variable.removeprefix(prefix).lower() if prefix else variable
    if path[-1] == "S3Uri":
        channels = "AdditionalModelDataSources"
        return f"files of {path[path.index(channels) + 1] if channels in path else 'target'}"
    return _WORDS.get(path[-1], path[-1])


def _brief(value: Any) -> str:
    return "…" if isinstance(value, (Mapping, list)) else shown(value)
