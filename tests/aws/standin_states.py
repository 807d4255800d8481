"""Refusals that no condition on the request alone can say: by other resources, by their state, by what adds up.

Each function says whether a scope of a request is refused; rules name them as `state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from standin_account import AccountRules
from standin_components import SageMakerWithComponents, container_of
from standin_http import Call
from standin_scaling import Scaling

from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.host import EndpointSpec

Scope = Mapping[str, Any]


@dataclass(frozen=True)
class World:
    """The call and what there is."""

    call: Call
    account: AccountRules
    sagemaker: Callable[[str], SageMakerWithComponents]
    scaling: Scaling

    def described(self, operation: str, **request: Any) -> Mapping[str, Any]:
        """What SageMaker describes, nothing where there is nothing."""
        try:
            return self.sagemaker(self.call.region).answer(operation, request)
        except ServiceError:
            return {}

    def model(self, variant: Scope) -> Mapping[str, Any]:
        return self.described("DescribeModel", ModelName=variant.get("ModelName", "-"))

    def config(self, scope: Scope) -> Mapping[str, Any]:
        return self.described("DescribeEndpointConfig", EndpointConfigName=scope.get("EndpointConfigName", "-"))

    def deployed(self, endpoint: str) -> EndpointSpec | None:
        """What an endpoint serves."""
        endpoints = self.sagemaker(self.call.region).endpoints
        return endpoints.settled(endpoint).spec if endpoints.targets(endpoint) else None


State = Callable[[Scope, World], bool]
STATES: dict[str, State] = {}


def state(function: State) -> State:
    """Rules may name it."""
    STATES[function.__name__] = function
    return function


# Models and their containers


@state
def environments_together(scope: Scope, world: World) -> bool:
    maps = [container.get("Environment", {}) for container in scope.get("Containers", [])]
    return sum(len(f"{key}{value}".encode()) for one in maps for key, value in one.items()) > 32 * 1024


def _models(scope: Scope, world: World, key: str = "ProductionVariants") -> Iterator[Mapping[str, Any]]:
    for variant in scope.get(key, []):
        if found := world.model(variant):
            yield found


@state
def serverless_model_in_a_vpc(scope: Scope, world: World) -> bool:
    return any("VpcConfig" in model for model in _models(scope, world))


def _is_pipeline(model: Mapping[str, Any]) -> bool:
    return len(model.get("Containers", [])) > 1


def _is_multi_model(model: Mapping[str, Any]) -> bool:
    return container_of(model).get("Mode") == "MultiModel"


@state
def serverless_model_isolated(scope: Scope, world: World) -> bool:
    return any(model.get("EnableNetworkIsolation") for model in _models(scope, world))


@state
def serverless_pipeline(scope: Scope, world: World) -> bool:
    return any(map(_is_pipeline, _models(scope, world)))


@state
def serverless_multi_model(scope: Scope, world: World) -> bool:
    return any(map(_is_multi_model, _models(scope, world)))


@state
def serverless_private_registry(scope: Scope, world: World) -> bool:
    configs = (container_of(model).get("ImageConfig", {}) for model in _models(scope, world))
    return any(config.get("RepositoryAccessMode") == "Vpc" for config in configs)


@state
def serverless_folder(scope: Scope, world: World) -> bool:
    variants = {"ProductionVariants": [v for v in scope["ProductionVariants"] if "ServerlessConfig" in v]}
    return any("ModelDataSource" in container_of(model) for model in _models(variants, world))


def _with_shadows(scope: Scope, world: World) -> Iterator[Mapping[str, Any]]:
    yield from _models(scope, world)
    yield from _models(scope, world, "ShadowProductionVariants")


@state
def pipeline_in_shadow(scope: Scope, world: World) -> bool:
    return any(map(_is_pipeline, _with_shadows(scope, world)))


@state
def multi_model_in_shadow(scope: Scope, world: World) -> bool:
    return any(map(_is_multi_model, _with_shadows(scope, world)))


@state
def shadow_without_model(scope: Scope, world: World) -> bool:
    variants = [*scope["ProductionVariants"], *scope["ShadowProductionVariants"]]
    return not all("ModelName" in variant or "InstancePools" in variant for variant in variants)


@state
def features_without_text(scope: Scope, world: World) -> bool:
    return "text" not in scope["InferenceConfig"]["FeatureTypes"]


# Endpoints and their updates


@state
def endpoint_in_another_case(scope: Scope, world: World) -> bool:
    name = scope["EndpointName"]
    names = [item["EndpointName"] for item in world.sagemaker(world.call.region).endpoints.summaries()]
    return name not in names and name.lower() in map(str.lower, names)


@state
def above_quota(scope: Scope, world: World) -> bool:
    """Raises ServiceError itself: its words have numbers."""
    spec = world.deployed(scope["EndpointName"])
    for item in scope["DesiredWeightsAndCapacities"] if spec else ():
        variant = next((v for v in spec.variants if v.name == item["VariantName"]), None) if spec else None
        if variant and "DesiredInstanceCount" in item:
            delta = item["DesiredInstanceCount"] - variant.count
            if delta > 0:
                world.account.must_have_quota(variant.placements[0].instance_type, variant.count, delta)
    return False


def _steps(scope: Scope, world: World, size: Mapping[str, Any], least: float, most: float) -> bool:
    """Whether a number of instances is not within those shares of any variant of the new fleet."""
    if not size or size["Type"] != "INSTANCE_COUNT":
        return False
    counts = [v["InitialInstanceCount"] for v in world.config(scope).get("ProductionVariants", []) if not _less(v)]
    return any(not least <= size["Value"] / count <= most for count in counts)


def _less(variant: Scope) -> bool:
    return "ServerlessConfig" in variant or "InitialInstanceCount" not in variant


def _routing(scope: Scope) -> Mapping[str, Any]:
    policy: Mapping[str, Any] = scope.get("DeploymentConfig", {}).get("BlueGreenUpdatePolicy", {})
    routing: Mapping[str, Any] = policy.get("TrafficRoutingConfiguration", {})
    return routing


def _rolling(scope: Scope) -> Mapping[str, Any]:
    policy: Mapping[str, Any] = scope.get("DeploymentConfig", {}).get("RollingUpdatePolicy", {})
    return policy


@state
def canary_too_large(scope: Scope, world: World) -> bool:
    return _steps(scope, world, _routing(scope).get("CanarySize", {}), 0, 0.5)


@state
def linear_step_wrong(scope: Scope, world: World) -> bool:
    return _steps(scope, world, _routing(scope).get("LinearStepSize", {}), 0.1, 0.5)


@state
def rolling_batch_wrong(scope: Scope, world: World) -> bool:
    return _steps(scope, world, _rolling(scope).get("MaximumBatchSize", {}), 0.05, 0.5)


@state
def made_serverless(scope: Scope, world: World) -> bool:
    spec = world.deployed(scope["EndpointName"])
    now = world.described("DescribeEndpointConfig", EndpointConfigName=spec.config) if spec else {}
    return bool(now) and not _is_serverless(now) and _is_serverless(world.config(scope))


def _is_serverless(config: Scope) -> bool:
    return any("ServerlessConfig" in variant for variant in config.get("ProductionVariants", []))


# Inference components and invocations


def _layouts(scope: Scope, world: World) -> list[str]:
    spec = world.deployed(scope["EndpointName"])
    asked = [v.asked for v in spec.variants if v.name == scope.get("VariantName")] if spec else []
    layouts = [layout for variant in asked for layout in variant.get("AcceleratorPartitionLayouts", [])]
    return [kind for layout in layouts for kind in layout["AcceleratorPartitionTypes"]]


def _partition(scope: Scope) -> str | None:
    needs = scope.get("Specification", {}).get("ComputeResourceRequirements", {})
    return needs.get("AcceleratorPartitionType")


@state
def partition_not_in_layout(scope: Scope, world: World) -> bool:
    wanted = _partition(scope)
    return wanted is not None and wanted not in _layouts(scope, world)


@state
def partition_missing(scope: Scope, world: World) -> bool:
    is_adapter = "BaseInferenceComponentName" in scope.get("Specification", {})
    return bool(_layouts(scope, world)) and _partition(scope) is None and not is_adapter


@state
def invoked_shadow(scope: Scope, world: World) -> bool:
    spec = world.deployed(scope["EndpointName"])
    return bool(spec) and scope.get("TargetVariant") in [v.name for v in spec.variants if v.is_shadow]


def _deployed_models(scope: Scope, world: World) -> Iterator[Mapping[str, Any]]:
    spec = world.deployed(scope["EndpointName"])
    for variant in spec.variants if spec else ():
        yield world.model(variant.asked)


@state
def target_model_of_one(scope: Scope, world: World) -> bool:
    models = _deployed_models(scope, world)
    return "TargetModel" in scope and not any(map(_is_multi_model, models))


@state
def target_container_of_one(scope: Scope, world: World) -> bool:
    models = _deployed_models(scope, world)
    return "TargetContainerHostname" in scope and not any(map(_is_pipeline, models))


@state
def component_elsewhere(scope: Scope, world: World) -> bool:
    name = scope.get("InferenceComponentName")
    found = world.described("DescribeInferenceComponent", InferenceComponentName=name) if name else {}
    return bool(found) and found["EndpointName"] != scope["EndpointName"]


@state
def not_asynchronous(scope: Scope, world: World) -> bool:
    spec = world.deployed(scope["EndpointName"])
    config = world.described("DescribeEndpointConfig", EndpointConfigName=spec.config) if spec else {}
    return bool(config) and "AsyncInferenceConfig" not in config


@state
def no_such_endpoint(scope: Scope, world: World) -> bool:
    return world.deployed(scope["EndpointName"]) is None


def _channels_of_files(job: Scope) -> Iterator[Scope]:
    """The channels of a training job that are not piped."""
    mode = job["AlgorithmSpecification"].get("TrainingInputMode")
    return (channel for channel in job.get("InputDataConfig", []) if channel.get("InputMode", mode) != "Pipe")


@state
def augmented_manifest_not_piped(scope: Scope, world: World) -> bool:
    sources = (channel["DataSource"].get("S3DataSource", {}) for channel in _channels_of_files(scope))
    return any(source.get("S3DataType") == "AugmentedManifestFile" for source in sources)


@state
def compressed_not_piped(scope: Scope, world: World) -> bool:
    return any(channel.get("CompressionType", "None") != "None" for channel in _channels_of_files(scope))
