"""Endpoint configurations: variants, their instances and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.catalog import lookup
from toolkit.planning.kinds import Decision
from toolkit.planning.names import content_name, is_content_name
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.sagemaker.keys import PrefixRoutingSection, aws, aws_observability
from toolkit.platforms.sagemaker.kinds.base import Look, SageMakerKind, owner_of
from toolkit.platforms.sagemaker.kinds.model import PAGES, model_of, network
from toolkit.platforms.sagemaker.kinds.role import role_arn
from toolkit.platforms.sagemaker.rules import jumpstart
from toolkit.platforms.sagemaker.rules.arms import (
    Arm,
    answering,
    candidates,
    endpoint_name,
    instances,
    shadows,
)
from toolkit.platforms.sagemaker.rules.names import CAPTURE_PREFIX, bucket_name, on_aws, tags
from toolkit.platforms.sagemaker.rules.updates import instance_types
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

# Time to look for capacity. VariantInstanceProvisionTimeoutInSeconds is the total over all pools (developer guide,
# realtime-endpoints-heterogeneous), at most an hour.
_PROVISION_SECONDS_PER_POOL, _LONGEST_PROVISION_SECONDS = 900, 3600
_LARGEST_VOLUME_GB = 512
_SPARE_VOLUME_GB = 30
# botocore 1.44.5, PrefixAwareRoutingConfig: the largest ConcurrencyThreshold.
_HIGHEST_THRESHOLD = 1024
_VARIANT_FIELDS = ("AcceleratorType", "AcceleratorPartitionLayouts", "RoutingConfig.RoutingStrategy=KV_AWARE")


class EndpointConfigKind(SageMakerKind):
    """Its name has a digest of its content."""

    kind = "EndpointConfig"
    call = "endpoint_config"
    resource_type = "AWS::SageMaker::EndpointConfig"
    lacking = frozenset(
        {
            "CrossRegionTrafficConfig",
            *(f"ProductionVariants.{field}" for field in _VARIANT_FIELDS),
            *(f"ShadowProductionVariants.{field}" for field in _VARIANT_FIELDS),
        }
    )
    references: ClassVar[Mapping[str, str | None]] = {"EndpointConfigName": "EndpointConfigName"}

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [endpoint_config(deployment.recipe, deployment.account)]

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        return Decision("reuse", "exists with this content") if existing else super().decide(resource, None, observed)

    def observe_endpoint(self, look: Look, name: str) -> list[Existing]:
        clients = look.clients
        pages = clients.sagemaker.get_paginator("list_endpoint_configs").paginate(
            NameContains=name, PaginationConfig=PAGES
        )
        configs = [item for page in pages for item in page["EndpointConfigs"]]
        return [
            Existing(self.kind, config, True, (name,), _state(clients, config))
            for item in configs
            if is_content_name(name, config := item["EndpointConfigName"])
            and owner_of(clients, item["EndpointConfigArn"]) == name
        ]


def endpoint_config(recipe: Recipe, account: Account) -> Resource:
    """The endpoint's configuration; one for inference components has no model."""
    endpoint = endpoint_name(recipe)
    serving = [*answering(recipe), *candidates(recipe)]
    body: dict[str, Any] = {"ProductionVariants": [_variant(arm, account) for arm in serving]}
    if unseen := shadows(recipe):
        body["ShadowProductionVariants"] = [_variant(arm, account) for arm in unseen]
    if aws(recipe).inference_component:
        body = {**body, "ExecutionRoleArn": role_arn(account, endpoint), **network(recipe)}
    if on_aws(recipe):
        every = aws_observability(recipe).metrics_seconds
        body["MetricsConfig"] = {
            "EnableEnhancedMetrics": True,
            "EnableDetailedObservability": True,
            "MetricPublishFrequencyInSeconds": every,
        }
    if percent := aws_observability(recipe).data_capture_percent:
        body["DataCaptureConfig"] = _data_capture(recipe, account, endpoint, percent)
    if aws(recipe).kms_key and not any(_has_local_disk(name) for name in recipe.platform.types):
        body["KmsKeyId"] = aws(recipe).kms_key  # SageMaker refuses a KMS key for instances with an instance store
    name = content_name(endpoint, body)
    return Resource("EndpointConfig", name, {"EndpointConfigName": name, **body, "Tags": tags(recipe, endpoint)})


def startup(recipe: Recipe) -> dict[str, int]:
    """The time-outs of a container's start: the download of its model data, and its health check."""
    timeouts = {
        "ModelDataDownloadTimeoutInSeconds": recipe.download_timeout if on_aws(recipe) else None,
        "ContainerStartupHealthCheckTimeoutInSeconds": recipe.platform.health_check_timeout,
    }
    return {name: seconds for name, seconds in timeouts.items() if seconds}


def _variant(arm: Arm, account: Account) -> dict[str, Any]:
    recipe = arm.recipe
    variant: dict[str, Any] = {
        "VariantName": arm.variant,
        "InitialInstanceCount": instances(recipe),
        **_instances(recipe, account),
    }
    if arm.weight != 1:
        variant["InitialVariantWeight"] = round(arm.weight, 4)
    if aws(recipe).inference_component:
        limits = {"MinInstanceCount": recipe.scaling.min_instances, "MaxInstanceCount": recipe.scaling.max_instances}
        variant["ManagedInstanceScaling"] = {"Status": "ENABLED", **limits}
    else:
        variant["ModelName"] = model_of(recipe.on(recipe.platform.types[0]), account).name
        variant |= startup(recipe)
    return {**variant, **_instance_settings(recipe, account)} if on_aws(recipe) else variant


def _instances(recipe: Recipe, account: Account) -> dict[str, Any]:
    first, *others = recipe.platform.types
    if not others or not on_aws(recipe):
        return {"InstanceType": first}
    own = model_of(recipe.on(first), account).name
    pools: list[dict[str, Any]] = []
    for priority, instance_type in enumerate(recipe.platform.types, start=1):
        model = model_of(recipe.on(instance_type), account).name
        other = {"ModelNameOverride": model} if model != own and not aws(recipe).inference_component else {}
        pools.append({"InstanceType": instance_type, "Priority": priority, **other})
    default = min(_PROVISION_SECONDS_PER_POOL * len(pools), _LONGEST_PROVISION_SECONDS)
    seconds = aws(recipe).capacity_timeout or default
    return {"InstancePools": pools, "VariantInstanceProvisionTimeoutInSeconds": seconds}


def _instance_settings(recipe: Recipe, account: Account) -> dict[str, Any]:
    theirs = jumpstart.target_model(recipe, account.jumpstart)
    settings: dict[str, Any] = {"RoutingConfig": _routing(recipe)}
    image = recipe.image
    if ami := theirs.ami if theirs else image.ami if image else "":
        settings["InferenceAmiVersion"] = ami
    if not any(_has_local_disk(name) for name in recipe.platform.types) and (
        needed := (theirs.volume_gb if theirs else None) or _volume_gb(recipe.weight_bytes)
    ):
        settings["VolumeSizeInGB"] = min(needed, _LARGEST_VOLUME_GB)
    if aws(recipe).capacity_reservation:
        settings["CapacityReservationConfig"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "MlReservationArn": aws(recipe).capacity_reservation,
        }
    return settings


def _routing(recipe: Recipe) -> dict[str, Any]:
    """How requests are spread. An instance that decodes as many requests as it can is full."""
    strategy = {"RoutingStrategy": aws(recipe).routing.upper().replace("-", "_")}
    if aws(recipe).routing != "prefix-aware":
        return strategy
    settings = aws(recipe).prefix_routing or PrefixRoutingSection()
    threshold = settings.concurrency_threshold or min(recipe.engine.max_num_seqs, _HIGHEST_THRESHOLD)
    limits = {"PrefixLength": settings.prefix_length, "ConcurrencyThreshold": threshold}
    return {**strategy, "PrefixAwareRoutingConfig": limits}


def _volume_gb(weight_bytes: int | None) -> int | None:
    return round(1.2 * weight_bytes / 1e9) + _SPARE_VOLUME_GB if weight_bytes else None


def _has_local_disk(instance_type: str) -> bool:
    instance = lookup.instance(instance_type)
    return instance is None or instance.local_nvme_gb > 0


def _data_capture(recipe: Recipe, account: Account, endpoint: str, percent: int) -> dict[str, Any]:
    key = {"KmsKeyId": aws(recipe).kms_key} if aws(recipe).kms_key else {}
    return {
        "EnableCapture": True,
        "InitialSamplingPercentage": percent,
        "DestinationS3Uri": f"s3://{bucket_name(account)}/{CAPTURE_PREFIX}{endpoint}/",
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        **key,
    }


def _state(clients: Clients, name: str) -> dict[str, Any]:
    """Its models, its instances (type of the first pool, and number, for each variant), and each variant's types."""
    described: Mapping[str, Any] = clients.sagemaker.describe_endpoint_config(EndpointConfigName=name)
    variants = [*described["ProductionVariants"], *described.get("ShadowProductionVariants", [])]
    pools = [pool for variant in variants for pool in variant.get("InstancePools", [])]
    models = {item.get(key) for item in (*variants, *pools) for key in ("ModelName", "ModelNameOverride")}
    instances = [
        [variant.get("InstanceType") or variant["InstancePools"][0]["InstanceType"], variant["InitialInstanceCount"]]
        for variant in variants
    ]
    return {
        "Models": sorted(model for model in models if model),
        "Instances": instances,
        "Variants": instance_types(described),
    }
