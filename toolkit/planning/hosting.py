"""A recipe as SageMaker's own resources: models, endpoint configuration, endpoint, inference component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit.catalog import lookup
from toolkit.engines.arguments import CHANNELS_DIR, builds, environment, image_of
from toolkit.errors import UsageError
from toolkit.planning.artifacts import variables
from toolkit.planning.image import address, built_image
from toolkit.planning.names import bucket_name, content_name, tags
from toolkit.planning.observability import rollback_alarms
from toolkit.planning.permissions import CAPTURE_PREFIX, role_arn
from toolkit.planning.resources import Account, Resource
from toolkit.planning.storage import COMPILED_CHANNEL, ModelData, model_data
from toolkit.recipe import jumpstart
from toolkit.recipe.resolve import Recipe

VARIANT = "AllTraffic"
SPECULATIVE, BASELINE = "speculative", "baseline"
"""Names of the variants of an experiment: weighted, or with a shadow."""

# For capacity only. Trying five pools at the longest would take five hours.
_PROVISION_SECONDS = 900
_LARGEST_VOLUME_GB = 512
_SPARE_VOLUME_GB = 30
_UPDATES = {
    "all-at-once": "ALL_AT_ONCE",
    "canary": "CANARY",
    "linear": "LINEAR",
}
# An update may take this long, and as SageMaker asks, longer than all its waiting.
_LONGEST_UPDATE_SECONDS = 14400


@dataclass(frozen=True)
class _Arm:
    """A production variant: which recipe it runs, under which name and with which share of the requests."""

    variant: str
    recipe: Recipe
    weight: float = 1.0


def endpoint_name(recipe: Recipe) -> str:
    """The endpoint that serves the recipe: its own, or the one that its inference component lives on."""
    return (recipe.platform.component.endpoint if recipe.platform.component else None) or recipe.name


def variants(recipe: Recipe) -> tuple[str, ...]:
    """Names of the endpoint's production variants, those that answer."""
    return tuple(arm.variant for arm in _arms(recipe))


def arms(recipe: Recipe) -> list[Recipe]:
    """The recipe as each variant of the endpoint runs it, those that answer and the shadow."""
    return [arm.recipe for arm in (*_arms(recipe), *_shadows(recipe))]


def models(recipe: Recipe, account: Account) -> list[Resource]:
    """One Model for each container that differs: arms, and instance types with settings of their own."""
    made = [
        _model(arm.on(instance_type), account) for arm in arms(recipe) for instance_type in arm.platform.instance_types
    ]
    return list({model.name: model for model in made}.values())


def endpoint_config(recipe: Recipe, account: Account) -> Resource:
    """The endpoint's configuration. That of components names no model."""
    endpoint = endpoint_name(recipe)
    body: dict[str, Any] = {"ProductionVariants": [_variant(arm, account) for arm in _arms(recipe)]}
    if shadows := _shadows(recipe):
        body["ShadowProductionVariants"] = [_variant(arm, account) for arm in shadows]
    if recipe.platform.component:
        body = {**body, "ExecutionRoleArn": role_arn(recipe, account, endpoint), **network(recipe)}
    if recipe.platform.name == "sagemaker":
        every = recipe.observability.metrics_seconds
        body["MetricsConfig"] = {
            "EnableEnhancedMetrics": True,
            "EnableDetailedObservability": True,
            "MetricPublishFrequencyInSeconds": every,
        }
    if percent := recipe.observability.data_capture_percent:
        body["DataCaptureConfig"] = _data_capture(recipe, account, endpoint, percent)
    if recipe.platform.kms_key and not any(_has_local_disk(name) for name in recipe.platform.instance_types):
        body["KmsKeyId"] = recipe.platform.kms_key  # SageMaker refuses it where the instance has a disk of its own
    name = content_name(endpoint, body)
    return Resource("EndpointConfig", name, {"EndpointConfigName": name, **body, "Tags": tags(recipe, endpoint)})


def endpoint(recipe: Recipe, config: str) -> Resource:
    """The endpoint. An update keeps the number of instances that autoscaling has come to."""
    name = endpoint_name(recipe)
    create = {"EndpointName": name, "EndpointConfigName": config, "Tags": tags(recipe, name)}
    update: dict[str, Any] = {"EndpointName": name, "EndpointConfigName": config}
    if recipe.platform.name == "sagemaker":
        kept_out = [{"VariantPropertyType": "DesiredWeight"}, {"VariantPropertyType": "DataCaptureConfig"}]
        update |= {"RetainAllVariantProperties": True, "ExcludeRetainedVariantProperties": kept_out}
        update["DeploymentConfig"] = _deployment(recipe)
    return Resource("Endpoint", name, create, update)


def component(recipe: Recipe, account: Account) -> Resource | None:
    """The inference component, None for a plain endpoint."""
    if recipe.platform.component is None:
        return None
    settings, here = recipe.platform.component, recipe.on(recipe.platform.instance_types[0])
    accelerators = settings.accelerators or _accelerators(here)
    specification = {
        "ModelName": _model(here, account).name,
        "StartupParameters": _startup(recipe),
        "ComputeResourceRequirements": {
            "NumberOfAcceleratorDevicesRequired": accelerators,
            "MinMemoryRequiredInMb": settings.memory_mib,
        },
    }
    copies = {"CopyCount": max(1, recipe.scaling.min_instances)}
    create = {
        "InferenceComponentName": recipe.name,
        "EndpointName": endpoint_name(recipe),
        "VariantName": VARIANT,
        "Specification": specification,
        "RuntimeConfig": copies,
        "Tags": tags(recipe),
    }
    update = {"InferenceComponentName": recipe.name, "Specification": specification}
    return Resource("InferenceComponent", recipe.name, create, update)


def _accelerators(recipe: Recipe) -> int:
    """What a copy takes: GPUs, or Trainium chips, which is what SageMaker counts as far as is known (unverified)."""
    return recipe.engine.rules.accelerators(recipe, lookup.instance(recipe.platform.instance_types[0]))


def image_uri(recipe: Recipe, account: Account) -> str:
    """The container's image, by tag: JumpStart's, the one that is built, or the platform's own for that engine version.

    Raises UsageError when there is none in that region.
    """
    if theirs := jumpstart.target_model(recipe, account.jumpstart):
        return theirs.image
    if builds(recipe):
        return built_image(recipe, account)
    found = image_of(recipe)
    if found is None:
        message = f"platform `{recipe.platform.name}` has no image with {recipe.engine.name} {recipe.engine.version}"
        raise UsageError(message, hint=f"See: toolkit check {recipe.path}")
    return address(found, account)


def _arms(recipe: Recipe) -> list[_Arm]:
    baseline = replace(recipe.baseline(), name=recipe.name)
    if recipe.speculation is None:
        return [_Arm(VARIANT, recipe)]
    if recipe.rollout.shadow:
        return [_Arm(BASELINE, baseline)]
    if (percent := recipe.rollout.speculative_percent) < 100:
        return [_Arm(SPECULATIVE, recipe, percent / 100), _Arm(BASELINE, baseline, 1 - percent / 100)]
    return [_Arm(VARIANT, recipe)]


def _shadows(recipe: Recipe) -> list[_Arm]:
    return [_Arm(SPECULATIVE, recipe)] if recipe.speculation and recipe.rollout.shadow else []


def _model(recipe: Recipe, account: Account) -> Resource:
    uri = image_uri(recipe, account)
    theirs = jumpstart.target_model(recipe, account.jumpstart)
    container: dict[str, Any] = {
        "Image": account.digests.get(uri, uri),
        "Environment": jumpstart.variables(theirs, recipe) if theirs else _environment(recipe),
        **_data_sources(model_data(recipe, account)),
    }
    if recipe.network.private_registry:
        container["ImageConfig"] = {"RepositoryAccessMode": "Vpc"}
    if recipe.platform.name == "sagemaker":
        frequency = {"MetricPublishFrequencyInSeconds": recipe.observability.metrics_seconds}
        container["ContainerMetricsConfig"] = {"MetricsEndpoints": [{"MetricsEndpointPath": "/metrics", **frequency}]}
    role = role_arn(recipe, account, endpoint_name(recipe))
    body = {"ExecutionRoleArn": role, "PrimaryContainer": container}
    if not recipe.platform.component:
        body |= network(recipe)
    name = content_name(recipe.name, body)
    return Resource("Model", name, {"ModelName": name, **body, "Tags": tags(recipe)})


def _environment(recipe: Recipe) -> dict[str, str]:
    return {**environment(recipe), **variables(recipe, f"{CHANNELS_DIR}/{COMPILED_CHANNEL}")}


def _data_sources(data: Sequence[ModelData]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if target := next((item for item in data if not item.channel), None):
        found["ModelDataSource"] = {"S3DataSource": target.source}
    if additional := [{"ChannelName": item.channel, "S3DataSource": item.source} for item in data if item.channel]:
        found["AdditionalModelDataSources"] = additional
    return found


def network(recipe: Recipe) -> dict[str, Any]:
    """Isolation and VPC, as models, components' endpoint configurations and training jobs all have them."""
    found: dict[str, Any] = {"EnableNetworkIsolation": True} if recipe.network.isolation else {}
    if recipe.network.subnets:
        found["VpcConfig"] = {
            "SecurityGroupIds": recipe.network.security_groups,
            "Subnets": recipe.network.subnets,
        }
    return found


def _variant(arm: _Arm, account: Account) -> dict[str, Any]:
    recipe = arm.recipe
    variant: dict[str, Any] = {
        "VariantName": arm.variant,
        "InitialInstanceCount": max(1, recipe.scaling.min_instances),
        **_instances(recipe, account),
    }
    if arm.weight != 1:
        variant["InitialVariantWeight"] = round(arm.weight, 4)
    if recipe.platform.component:
        limits = {"MinInstanceCount": recipe.scaling.min_instances, "MaxInstanceCount": recipe.scaling.max_instances}
        variant["ManagedInstanceScaling"] = {"Status": "ENABLED", **limits}
    else:
        variant["ModelName"] = _model(recipe.on(recipe.platform.instance_types[0]), account).name
        variant |= _startup(recipe)
    return variant if recipe.platform.name == "local" else {**variant, **_on_aws(recipe, account)}


def _startup(recipe: Recipe) -> dict[str, int]:
    seconds = recipe.platform.health_check_timeout
    return {"ContainerStartupHealthCheckTimeoutInSeconds": seconds} if seconds else {}


def _instances(recipe: Recipe, account: Account) -> dict[str, Any]:
    first, *others = recipe.platform.instance_types
    if not others or recipe.platform.name == "local":
        return {"InstanceType": first}
    own = _model(recipe.on(first), account).name
    pools: list[dict[str, Any]] = []
    for priority, instance_type in enumerate(recipe.platform.instance_types, start=1):
        model = _model(recipe.on(instance_type), account).name
        other = {"ModelNameOverride": model} if model != own and not recipe.platform.component else {}
        pools.append({"InstanceType": instance_type, "Priority": priority, **other})
    return {"InstancePools": pools, "VariantInstanceProvisionTimeoutInSeconds": _PROVISION_SECONDS}


def _on_aws(recipe: Recipe, account: Account) -> dict[str, Any]:
    """What only real instances need."""
    theirs = jumpstart.target_model(recipe, account.jumpstart)
    found: dict[str, Any] = {"RoutingConfig": {"RoutingStrategy": recipe.platform.routing.upper().replace("-", "_")}}
    image = image_of(recipe)
    if ami := theirs.ami if theirs else image.ami if image else "":
        found["InferenceAmiVersion"] = ami
    if recipe.platform.download_timeout and not recipe.platform.component:
        found["ModelDataDownloadTimeoutInSeconds"] = recipe.platform.download_timeout
    if not any(_has_local_disk(name) for name in recipe.platform.instance_types) and (
        needed := (theirs.volume_gb if theirs else None) or _volume_gb(recipe.weight_bytes)
    ):
        found["VolumeSizeInGB"] = min(needed, _LARGEST_VOLUME_GB)
    if recipe.platform.capacity_reservation:
        found["CapacityReservationConfig"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "MlReservationArn": recipe.platform.capacity_reservation,
        }
    return found


def _volume_gb(weight_bytes: int | None) -> int | None:
    return round(1.2 * weight_bytes / 1e9) + _SPARE_VOLUME_GB if weight_bytes else None


def _has_local_disk(instance_type: str) -> bool:
    instance = lookup.instance(instance_type)
    return instance is None or instance.local_nvme_gb > 0


def _data_capture(recipe: Recipe, account: Account, endpoint: str, percent: int) -> dict[str, Any]:
    key = {"KmsKeyId": recipe.platform.kms_key} if recipe.platform.kms_key else {}
    return {
        "EnableCapture": True,
        "InitialSamplingPercentage": percent,
        "DestinationS3Uri": f"s3://{bucket_name(account)}/{CAPTURE_PREFIX}{endpoint}/",
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        **key,
    }


def _deployment(recipe: Recipe) -> dict[str, Any]:
    rollout = recipe.rollout
    step = {"Type": "CAPACITY_PERCENT", "Value": rollout.step_percent}
    policy: Mapping[str, Any]
    if rollout.update == "rolling":
        policy = {
            "RollingUpdatePolicy": {
                "MaximumBatchSize": step,
                "WaitIntervalInSeconds": rollout.wait_seconds,
                "MaximumExecutionTimeoutInSeconds": _LONGEST_UPDATE_SECONDS,
            }
        }
    else:
        sizes = {"canary": {"CanarySize": step}, "linear": {"LinearStepSize": step}}.get(rollout.update, {})
        routing = {"Type": _UPDATES[rollout.update], "WaitIntervalInSeconds": rollout.wait_seconds, **sizes}
        policy = {
            "BlueGreenUpdatePolicy": {
                "TrafficRoutingConfiguration": routing,
                "MaximumExecutionTimeoutInSeconds": _LONGEST_UPDATE_SECONDS,
            }
        }
    names = [*rollback_alarms(recipe, variants(recipe)), *rollout.alarms]
    alarms = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": name} for name in names]}} if names else {}
    return {**policy, **alarms}
