"""Models: containers with their image, environment and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.engines.arguments import CONFIG_CHANNEL, DRAFTER_CHANNEL, FILES_CHANNEL, channel_dir, environment
from toolkit.planning.artifacts import variables
from toolkit.planning.kinds import Decision
from toolkit.planning.names import content_name, is_content_name
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.image import by_digest
from toolkit.platforms.sagemaker.keys import aws, aws_network, aws_observability
from toolkit.platforms.sagemaker.kinds.base import Look, SageMakerKind, owner_of
from toolkit.platforms.sagemaker.kinds.image import image_uri
from toolkit.platforms.sagemaker.kinds.role import role_arn
from toolkit.platforms.sagemaker.rules import jumpstart
from toolkit.platforms.sagemaker.rules.arms import arms
from toolkit.platforms.sagemaker.rules.changes import MODEL_KEYS, selected
from toolkit.platforms.sagemaker.rules.model_data import COMPILED_CHANNEL, ModelData, addresses, model_data
from toolkit.platforms.sagemaker.rules.names import on_aws, tags
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from types_boto3_sagemaker.type_defs import PaginatorConfigTypeDef

    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

PAGES: PaginatorConfigTypeDef = {"PageSize": 100}  # the maximum; SageMaker's default is 10

_CHANNELS = "PrimaryContainer.AdditionalModelDataSources"
_IN_CHANNELS: Mapping[str, str] = {
    DRAFTER_CHANNEL: "drafter",
    CONFIG_CHANNEL: "flags that are too long for its environment",
    FILES_CHANNEL: "the engine's own files",
    COMPILED_CHANNEL: "compiled code",
}


class ModelKind(SageMakerKind):
    """Its name has a digest of its content."""

    kind = "Model"
    call = "model"
    resource_type = "AWS::SageMaker::Model"
    lacking = frozenset(
        f"PrimaryContainer.{field}"
        for field in (
            "AdditionalModelDataSources",
            "ContainerMetricsConfig",
            "ModelDataSource.S3DataSource.ManifestS3Uri",
            "ModelDataSource.S3DataSource.ETag",
            "ModelDataSource.S3DataSource.ManifestEtag",
        )
    )
    references: ClassVar[Mapping[str, str | None]] = {"ModelName": "ModelName", "ModelNameOverride": "ModelName"}

    def desired(self, deployment: Deployment) -> list[Resource]:
        return models(deployment.recipe, deployment.account)

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        return Decision("reuse", "exists with this content") if existing else super().decide(resource, None, observed)

    def observe_endpoint(self, look: Look, name: str) -> Sequence[Existing]:
        return look.once(read_models, name)

    def fails_without(self, field: str) -> bool:
        return field == _CHANNELS

    def loss(self, field: str, lost: Any) -> str:
        if field != _CHANNELS:
            return super().loss(field, lost)
        names = [channel["ChannelName"] for channel in lost]
        what = " and ".join(_IN_CHANNELS[name] for name in names)
        effect = f"the container does not find its {what} and stops. Use `toolkit deploy`"
        if DRAFTER_CHANNEL not in names:
            return effect
        return (
            f"{effect}; or, for a drafter on the hub, let the container download it with `platform: {{weights: hub}}`"
        )


def read_models(look: Look, endpoint: str) -> list[Existing]:
    """Existing models of an endpoint, with the prefixes of their files in our bucket."""
    clients = look.clients
    pages = clients.sagemaker.get_paginator("list_models").paginate(NameContains=endpoint, PaginationConfig=PAGES)
    return [
        Existing("Model", item["ModelName"], True, (endpoint,), _state(clients, item["ModelName"]))
        for page in pages
        for item in page["Models"]
        if is_content_name(endpoint, item["ModelName"]) and owner_of(clients, item["ModelArn"]) == endpoint
    ]


def models(recipe: Recipe, account: Account) -> list[Resource]:
    """One Model for each different container: for arms, and for instance types with their own settings."""
    wanted = [model_of(arm.on(instance_type), account) for arm in arms(recipe) for instance_type in arm.platform.types]
    return list({model.name: model for model in wanted}.values())


def model_of(recipe: Recipe, account: Account) -> Resource:
    """The model of a recipe on its first instance type."""
    uri = image_uri(recipe, account)
    theirs = jumpstart.target_model(recipe, account.jumpstart)
    container: dict[str, Any] = {
        "Image": by_digest(uri, recipe, account),
        "Environment": jumpstart.variables(theirs, recipe) if theirs else _environment(recipe),
        **_data_sources(model_data(recipe, account)),
    }
    if aws_network(recipe).private_registry:
        container["ImageConfig"] = {"RepositoryAccessMode": "Vpc"}
    if on_aws(recipe):
        frequency = {"MetricPublishFrequencyInSeconds": aws_observability(recipe).metrics_seconds}
        container["ContainerMetricsConfig"] = {"MetricsEndpoints": [{"MetricsEndpointPath": "/metrics", **frequency}]}
    role = role_arn(recipe, account, recipe.name)
    body = {"ExecutionRoleArn": role, "PrimaryContainer": container}
    if not aws(recipe).inference_component:
        body |= network(recipe)
    name = content_name(recipe.name, body)
    return Resource("Model", name, {"ModelName": name, **body, "Tags": tags(recipe)})


def network(recipe: Recipe) -> dict[str, Any]:
    """Network isolation and VPC, for models, endpoint configurations of components, and training jobs."""
    settings: dict[str, Any] = {"EnableNetworkIsolation": True} if aws_network(recipe).isolation else {}
    if aws_network(recipe).subnets:
        settings["VpcConfig"] = {
            "SecurityGroupIds": aws_network(recipe).security_groups,
            "Subnets": aws_network(recipe).subnets,
        }
    return settings


def _environment(recipe: Recipe) -> dict[str, str]:
    return {**environment(recipe), **variables(recipe, channel_dir(recipe, COMPILED_CHANNEL))}


def _data_sources(data: Sequence[ModelData]) -> dict[str, Any]:
    sources: dict[str, Any] = {}
    if target := next((item for item in data if not item.channel), None):
        sources["ModelDataSource"] = {"S3DataSource": target.source}
    if additional := [{"ChannelName": item.channel, "S3DataSource": item.source} for item in data if item.channel]:
        sources["AdditionalModelDataSources"] = additional
    return sources


def _state(clients: Clients, name: str) -> dict[str, Any]:
    described: Mapping[str, Any] = clients.sagemaker.describe_model(ModelName=name)
    prefixes = [uri.removeprefix("s3://").partition("/")[2] for uri in addresses(described.get("PrimaryContainer", {}))]
    return {"Prefixes": prefixes, "Content": selected(described, MODEL_KEYS)}
