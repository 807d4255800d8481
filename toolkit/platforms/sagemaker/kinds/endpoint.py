"""Endpoints, their updates, and their configurations: variants, their instances and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.catalog import lookup
from toolkit.planning.kinds import Decision
from toolkit.planning.names import ENDPOINT_TAG, content_name, is_content_name
from toolkit.planning.plan import Changes
from toolkit.planning.resources import UNDER_WAY, Account, Existing, Observed, Resource
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.platforms.sagemaker.keys import PrefixRoutingSection, aws, aws_observability, aws_rollout
from toolkit.platforms.sagemaker.kinds.base import ApiCall, Look, SageMakerKind, Work, owner_of, sagemaker_tags, tagged
from toolkit.platforms.sagemaker.kinds.model import PAGES, model_of, network
from toolkit.platforms.sagemaker.kinds.monitoring import alarms_of_updates
from toolkit.platforms.sagemaker.kinds.role import role_arn
from toolkit.platforms.sagemaker.rules import jumpstart
from toolkit.platforms.sagemaker.rules.arms import (
    CANDIDATE,
    Arm,
    answering,
    candidates,
    endpoint_name,
    instances,
    shadows,
    variants,
)
from toolkit.platforms.sagemaker.rules.changes import CONFIG_KEYS, of_request, selected
from toolkit.platforms.sagemaker.rules.checks.component import LONGEST_UPDATE_SECONDS
from toolkit.platforms.sagemaker.rules.checks.settings import LARGEST_VOLUME_GB
from toolkit.platforms.sagemaker.rules.drivers import inference_ami
from toolkit.platforms.sagemaker.rules.metrics import log_groups
from toolkit.platforms.sagemaker.rules.names import (
    CAPTURE_PREFIX,
    PACKAGE_TAG,
    PREVIOUS_TAG,
    bucket_name,
    has_local_disk,
    on_aws,
    ran_before,
    remembered,
    tags,
    volume_key,
)
from toolkit.platforms.sagemaker.rules.updates import instance_types
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

# Time to look for capacity. VariantInstanceProvisionTimeoutInSeconds is the total over all pools (developer guide,
# realtime-endpoints-heterogeneous), at most an hour.
_PROVISION_SECONDS_PER_POOL, _LONGEST_PROVISION_SECONDS = 900, 3600
_SPARE_VOLUME_GB = 30
# Developer guide, deployment-guardrails: the old fleet goes when the new one is healthy and takes the traffic.
_MINUTES = lookup.platform("sagemaker").endpoint_seconds // 60
_UPDATE_ON_AWS = f"starts new containers, about {_MINUTES} min, while the old ones serve"
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
    updates = ("sagemaker", "AddTags")  # nothing else of it can be changed; a pause does

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
        body = {**body, "ExecutionRoleArn": role_arn(recipe, account, endpoint), **network(recipe)}
    if on_aws(recipe):
        every = aws_observability(recipe).metrics_seconds
        body["MetricsConfig"] = {
            "EnableEnhancedMetrics": True,
            "EnableDetailedObservability": True,
            "MetricPublishFrequencyInSeconds": every,
        }
    if percent := aws_observability(recipe).data_capture_percent:
        body["DataCaptureConfig"] = _data_capture(recipe, account, endpoint, percent)
    if key := volume_key(recipe):
        body["KmsKeyId"] = key
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
    if ami := theirs.ami if theirs else inference_ami(image, recipe.platform.types) if image else "":
        settings["InferenceAmiVersion"] = ami
    if not any(map(has_local_disk, recipe.platform.types)) and (
        needed := (theirs.volume_gb if theirs else None) or _volume_gb(recipe.weight_bytes)
    ):
        settings["VolumeSizeInGB"] = min(needed, LARGEST_VOLUME_GB)
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
        "Content": selected(described, CONFIG_KEYS),
        "Arn": described["EndpointConfigArn"],
    }


class EndpointKind(SageMakerKind):
    """The endpoint itself, for which a deployment waits."""

    kind = "Endpoint"
    goes_on_pause = True
    call = "endpoint"
    resource_type = "AWS::SageMaker::Endpoint"
    references: ClassVar[Mapping[str, str | None]] = {"EndpointName": "EndpointName"}

    def desired(self, deployment: Deployment) -> list[Resource]:
        config = endpoint_config(deployment.recipe, deployment.account)
        return [endpoint(deployment.recipe, config.name)]

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        seconds = lookup.platform("sagemaker" if self.on_aws else "local").endpoint_seconds
        if existing is None:
            return Decision("create", "does not exist", seconds)
        status, config = existing.state["EndpointStatus"], existing.state["EndpointConfigName"]
        if status not in ("InService", *UNDER_WAY):
            return Decision("replace", f"is {status}", seconds)
        if config != resource.request["EndpointConfigName"]:
            others = sorted(set(existing.endpoints) - {resource.name})
            shared = f", and is shared: {', '.join(others)}" if others else ""
            return Decision("update", f"runs {config}{shared}", seconds)
        in_service = status == "InService"
        return Decision(
            "reuse", "is in service with this configuration" if in_service else f"is {status.lower()} already"
        )

    def changes(
        self, resource: Resource, existing: Existing, desired: Sequence[Resource], observed: Observed
    ) -> Changes:
        """From the configuration that it runs or is about to run, with the content of its models."""
        running = observed.get("EndpointConfig", existing.state["EndpointConfigName"])
        wanted = resource.request["EndpointConfigName"]
        config = next((item for item in desired if (item.kind, item.name) == ("EndpointConfig", wanted)), None)
        content = running.state.get("Content") if running else None
        effect = _UPDATE_ON_AWS if self.on_aws else "restarts the containers"
        return of_request(config, content, CONFIG_KEYS, desired, observed, effect)

    def serves(self, request: Mapping[str, Any]) -> str:
        return str(request["EndpointConfigName"])

    def observe_endpoint(self, look: Look, name: str) -> Iterable[Existing]:
        read = unless_missing(look.clients, lambda: self._read(look.clients, name))
        return [read] if read else []

    def _read(self, clients: Clients, name: str) -> Existing:
        answer = self.describe(clients, name)
        tags = sagemaker_tags(clients, answer["EndpointArn"])
        # During an update, EndpointConfigName is still the old one.
        config = answer.get("PendingDeploymentSummary", answer)["EndpointConfigName"]
        state = {
            "EndpointStatus": answer["EndpointStatus"],
            "EndpointConfigName": config,
            "Running": answer["EndpointConfigName"],
            "Previous": ran_before(tags.get(PREVIOUS_TAG), answer["EndpointConfigName"]),
            "Ran": tags.get(PREVIOUS_TAG, ""),
            "Arn": answer["EndpointArn"],
            "Package": tags.get(PACKAGE_TAG),
            "Tries": _tries_candidate(answer),
        }
        return tagged(self.kind, name, tags.get(ENDPOINT_TAG), state)

    def updating(self, request: Any, existing: Existing | None) -> tuple[ApiCall, ...]:
        state = existing.state if existing else {}
        tagged, update = _without_tags(request)
        if state.get("Tries", True):
            return (ApiCall("sagemaker", "UpdateEndpoint", update),)
        package = _package(tagged, state.get("Package"))
        remembering = _remember(state["Arn"], state["Ran"], state["Running"], package)
        return remembering, ApiCall("sagemaker", "UpdateEndpoint", update)

    def update(self, work: Work, request: Any) -> None:
        clients, name, wanted = work.clients, request["EndpointName"], request["EndpointConfigName"]
        described = self.describe(clients, name)
        arn, running = described["EndpointArn"], described["EndpointConfigName"]
        if running == wanted:  # an update that was in progress has led to this
            return
        # The trial of a candidate is not remembered: after it, a rollback does what it would have done before it.
        tagged, request = _without_tags(request)
        if not _tries_candidate(described):
            there = sagemaker_tags(clients, arn)
            _remember(arn, there.get(PREVIOUS_TAG), running, _package(tagged, there.get(PACKAGE_TAG))).send(clients)
        try:
            clients.sagemaker.update_endpoint(**request)
        except clients.refusal:
            # Refused because an update is in progress: possibly our own, whose answer was lost.
            described = self.describe(clients, name)
            coming = described.get("PendingDeploymentSummary", {}).get("EndpointConfigName")
            if wanted not in (described["EndpointConfigName"], coming):
                raise

    def runs(self, clients: Clients, request: Mapping[str, Any]) -> str:
        running: str = self.describe(clients, request["EndpointName"])["EndpointConfigName"]
        return "" if running == request["EndpointConfigName"] else running

    def is_going(self, clients: Clients, name: str) -> bool:
        return bool(self.describe(clients, name)["EndpointStatus"] == "Deleting")

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Any) -> dict[str, Any]:
        """In CloudFormation, the deployment configuration is a property of the resource."""
        return {**item.update, **request}

    def depends_on(self, item: Resource) -> Iterator[tuple[str, str]]:
        yield "LogGroup", log_groups(item.name)[0]

    def outputs(self, item: Resource, logical_id: str) -> dict[str, Any]:
        value = {"Fn::GetAtt": [logical_id, "EndpointName"]}
        return {f"{logical_id}Name": {"Description": "Name of the endpoint", "Value": value}}


def endpoint(recipe: Recipe, config: str) -> Resource:
    """The endpoint. An update keeps the number of instances that autoscaling has set."""
    name = endpoint_name(recipe)
    create = {"EndpointName": name, "EndpointConfigName": config, "Tags": tags(recipe, name)}
    update: dict[str, Any] = {"EndpointName": name, "EndpointConfigName": config}
    # An endpoint of inference components serves several recipes.
    if (package := recipe.tags.get(PACKAGE_TAG)) and name == recipe.name:
        update["Tags"] = [{"Key": PACKAGE_TAG, "Value": package}]
    if on_aws(recipe):
        kept_out = [{"VariantPropertyType": "DesiredWeight"}, {"VariantPropertyType": "DataCaptureConfig"}]
        update |= {"RetainAllVariantProperties": True, "ExcludeRetainedVariantProperties": kept_out}
        update["DeploymentConfig"] = _deployment(recipe)
    return Resource("Endpoint", name, create, update)


def _deployment(recipe: Recipe) -> dict[str, Any]:
    rollout = aws_rollout(recipe)
    if rollout.update == "rolling":
        return rolling_update(recipe, variants(recipe))
    step = _step(recipe)
    sizes = {"canary": {"CanarySize": step}, "linear": {"LinearStepSize": step}}.get(rollout.update, {})
    routing = {"Type": rollout.update.upper().replace("-", "_"), "WaitIntervalInSeconds": rollout.wait_seconds, **sizes}
    policy = {"TrafficRoutingConfiguration": routing, "MaximumExecutionTimeoutInSeconds": LONGEST_UPDATE_SECONDS}
    return {"BlueGreenUpdatePolicy": policy, **_rollback(recipe, variants(recipe))}


def rolling_update(recipe: Recipe, variants: Sequence[str]) -> dict[str, Any]:
    """The DeploymentConfig of a rolling update, of an endpoint or of an inference component."""
    policy = {
        "MaximumBatchSize": _step(recipe),
        "WaitIntervalInSeconds": aws_rollout(recipe).wait_seconds,
        "MaximumExecutionTimeoutInSeconds": LONGEST_UPDATE_SECONDS,
    }
    return {"RollingUpdatePolicy": policy, **_rollback(recipe, variants)}


def _step(recipe: Recipe) -> dict[str, Any]:
    return {"Type": "CAPACITY_PERCENT", "Value": aws_rollout(recipe).step_percent}


def _rollback(recipe: Recipe, variants: Sequence[str]) -> dict[str, Any]:
    """The alarms that roll an update back."""
    names = alarms_of_updates(recipe, variants)
    return {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": name} for name in names]}} if names else {}


def _tries_candidate(described: Mapping[str, Any]) -> bool:
    return any(variant["VariantName"] == CANDIDATE for variant in described.get("ProductionVariants", []))


def _remember(arn: str, before: str | None, running: str, package: Sequence[Mapping[str, str]]) -> ApiCall:
    """Tag the endpoint with the configuration that it runs, before an update, as what a rollback brings back."""
    previous = {"Key": PREVIOUS_TAG, "Value": remembered(before, running)}
    return ApiCall("sagemaker", "AddTags", {"ResourceArn": arn, "Tags": [previous, *package]})


def _without_tags(request: Mapping[str, Any]) -> tuple[Sequence[Mapping[str, str]], dict[str, Any]]:
    """The tags that an update gives the endpoint, which UpdateEndpoint does not take, and the rest of the request."""
    return request.get("Tags", ()), {key: value for key, value in request.items() if key != "Tags"}


def _package(wanted: Sequence[Mapping[str, str]], there: str | None) -> Sequence[Mapping[str, str]]:
    """The tag of the registered version that is deployed; empty, where none is and the endpoint names one."""
    return wanted or ([{"Key": PACKAGE_TAG, "Value": ""}] if there else ())
