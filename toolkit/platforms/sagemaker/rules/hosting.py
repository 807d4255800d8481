"""What others host on SageMaker as a recipe's platform, and a recipe as the arguments of the SDK's ModelBuilder. Pure.

A document is DescribeModel's answer, with the `ProductionVariants` of DescribeEndpointConfig's where they are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.errors import UsageError
from toolkit.planning.plan import Action
from toolkit.recipe.imported import Imported

_CONTAINERS = ("PrimaryContainer", "Containers")
# Of a variant: what a recipe has, and what says nothing of how it is served.
_READ = {"InstanceType", "InstancePools", "InitialInstanceCount", "ContainerStartupHealthCheckTimeoutInSeconds"}
_DESCRIPTIVE = {"VariantName", "ModelName", "InitialVariantWeight"}
_CHOSEN = {"InferenceAmiVersion", "VolumeSizeInGB", "ModelDataDownloadTimeoutInSeconds"}
_ONLY_OURS = {"Weights": "a copy of files in S3", "Image": "an image"}


def is_hosted(document: Mapping[str, Any]) -> bool:
    """Whether it is such a document."""
    return any(document.get(key) for key in _CONTAINERS)


def container_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The one container. Raises UsageError for several, or one of a model package."""
    several = document.get("Containers") or [document["PrimaryContainer"]]
    if len(several) != 1:
        hint = "A recipe serves one model. Import the model of its own endpoint, if it has one."
        raise UsageError(f"it is a pipeline of {len(several)} containers", hint=hint)
    container = {**several[0]}
    if "ModelPackageName" in container and "Image" not in container:
        hint = "Import the model that its training or registration names: toolkit new MODEL."
        raise UsageError(f"its container is the model package {container['ModelPackageName']}", hint=hint)
    return {**container, "Environment": container.get("Environment") or {}}


def add_hosting(imported: Imported, document: Mapping[str, Any]) -> None:
    """Role, network and instances."""
    if role := document.get("ExecutionRoleArn"):
        imported.platform["role"] = role
    vpc = document.get("VpcConfig") or {}
    if vpc.get("Subnets"):
        imported.network |= {"subnets": [*vpc["Subnets"]], "security_groups": [*vpc["SecurityGroupIds"]]}
    if document.get("EnableNetworkIsolation"):
        imported.network["isolation"] = True
    first, *others = document.get("ProductionVariants") or [{}]
    for other in others:
        imported.leave_out(f"variant {other['VariantName']}", f"{first['VariantName']} is taken, the first of them")
    _add_variant(imported, first)


def _add_variant(imported: Imported, variant: Mapping[str, Any]) -> None:
    pools = [pool["InstanceType"] for pool in variant.get("InstancePools") or ()]
    if types := pools or [name for name in [variant.get("InstanceType")] if name]:
        imported.platform["instance_types"] = types
    if seconds := variant.get("ContainerStartupHealthCheckTimeoutInSeconds"):
        imported.platform["health_check_timeout"] = seconds
    if (count := variant.get("InitialInstanceCount") or 1) != 1:
        hint = f"Add `scaling: {{min_instances: {count}, max_instances: {count}}}`."
        imported.leave_out(f"InitialInstanceCount {count}", "one serves", hint)
    for key in sorted({*variant} - _READ - _DESCRIPTIVE):
        if variant[key]:
            why = "the toolkit chooses it" if key in _CHOSEN else "a key of `platform` or `scaling` may say it"
            imported.leave_out(f"{key}: {variant[key]}", why)


def builder_arguments(path: object, actions: Sequence[Action]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ModelBuilder is made with, and what is set on it afterwards, of the actions that would deploy a recipe.

    Raises UsageError where the recipe is more than one model on one instance type, or needs what only `deploy` makes.
    """
    for action in actions:
        if action.verb != "reuse" and action.kind in _ONLY_OURS:
            hint = "Deploy the recipe once: what is in S3 and ECR stays as long as an endpoint of the toolkit uses it."
            raise UsageError(f"{path}: ModelBuilder does not make {_ONLY_OURS[action.kind]}, {action.name}", hint=hint)
    models = [action.request for action in actions if action.kind == "Model"]
    config = next(action.request for action in actions if action.kind == "EndpointConfig")
    variants = [*config["ProductionVariants"], *config.get("ShadowProductionVariants", ())]
    if len(models) != 1 or len(variants) != 1 or not {"InstanceType", "ModelName"} <= variants[0].keys():
        hint = "Deploy it, and take the objects of its endpoint: endpoint.sagemaker_model()."
        raise UsageError(f"{path}: ModelBuilder makes one model, without component, on one instance type", hint=hint)
    if "ModelDataSource" not in models[0]["PrimaryContainer"]:
        hint = "Write `weights: s3` into `platform` and deploy it once, or name the target as s3://bucket/prefix/."
        what = "without model data in S3 ModelBuilder names a folder that is empty, which AWS refuses (sagemaker 3.27)"
        raise UsageError(f"{path}: {what}", hint=hint)
    (model,), (variant,) = models, variants
    container, vpc = model["PrimaryContainer"], model.get("VpcConfig", {})
    makes_role = any(action.kind == "Role" and action.verb != "reuse" for action in actions)
    network = {
        "subnets": vpc.get("Subnets"),
        "security_group_ids": vpc.get("SecurityGroupIds"),
        "enable_network_isolation": model.get("EnableNetworkIsolation"),
    }
    arguments = {
        "image_uri": container["Image"],
        "env_vars": container["Environment"],
        "s3_model_data_url": container["ModelDataSource"],
        "role_arn": None if makes_role else model["ExecutionRoleArn"],
        "instance_type": variant["InstanceType"],
        "image_config": container.get("ImageConfig"),
        "network": {key: value for key, value in network.items() if value},
    }
    later = {
        "additional_model_data_sources": container.get("AdditionalModelDataSources"),
        "inference_ami_version": variant.get("InferenceAmiVersion"),
        "volume_size": variant.get("VolumeSizeInGB"),
        "model_data_download_timeout": variant.get("ModelDataDownloadTimeoutInSeconds"),
        "container_startup_health_check_timeout": variant.get("ContainerStartupHealthCheckTimeoutInSeconds"),
    }
    return _given(arguments), _given(later)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}
