"""A JumpStart model: what its entry in the hub says to run, where, under which licence, and how it drafts.

Pure: `platforms.sagemaker.jumpstart` reads the entry. Its shape is the one that sagemaker-core 2.27.0 reads
(jumpstart/models.py, jumpstart/types.py), AWS's HubContentDocument. Nothing was tried on the live hub: unverified.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from toolkit import documents
from toolkit.catalog import lookup, methods
from toolkit.engines import registry as engine_registry
from toolkit.errors import HubError, UsageError
from toolkit.planning.resources import partition_of

# What JumpStart's images run: AWS's own image of it, whose repository has its name, or LMI.
_ENGINE = lookup.default_engine()
_PREFIX = engine_registry.engine_rules(_ENGINE).variable_prefix
# How variables begin that are meant for the engine but that an image makes nothing of, by its repository: the
# entrypoint of AWS's own image turns those with the prefix into flags, that of LMI has names of its own.
_UNREAD = {_ENGINE: ("OPTION_", "TENSOR_PARALLEL_DEGREE"), "djl-inference": (_PREFIX,)}
# Where a variable is not read but another that is says the same, nothing is lost.
_SAME = {"TENSOR_PARALLEL_DEGREE": f"{_PREFIX}TENSOR_PARALLEL_SIZE"}
_COUNT = re.compile(r"[0-9]{1,9}")
_LIMITS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens")
_CONFIG_VARIABLES = (f"{_PREFIX}SPECULATIVE_CONFIG", "OPTION_SPECULATIVE_CONFIG")
# Of older LMI images; says neither a method nor K.
_DRAFT_MODEL_VARIABLE = "OPTION_SPECULATIVE_DRAFT_MODEL"
# JumpStart's buckets exist once a region (sagemaker-core, jumpstart/region_config.json).
_BUCKET = re.compile(r"^s3://(jumpstart-cache|jumpstart-private-cache|sagemaker-sd-models)-prod-[a-z0-9-]+/")
_PRIVATE_BUCKET = "s3://jumpstart-private-cache-prod-"
OTHER_SOURCE = "Name the model's Hugging Face id as `target.model`."


@dataclass(frozen=True)
class DataSource:
    """Model data in a bucket of JumpStart's. `gated` data needs its licence accepted; that stands at `licence`.

    `channel` is the name of an additional source, empty for the target; `hub_content` the ARN of a private hub's entry.
    """

    channel: str
    uri: str
    data_type: str
    compression: str
    gated: bool
    licence: str
    hub_content: str = ""

    __pydantic_config__ = documents.CHECKED_AGAIN


@dataclass(frozen=True)
class Preset:
    """How JumpStart drafts. `method` is the recipe's word, empty when it has none; K None leaves it to the engine.

    `read` is False where the image is known not to read the `variable` that says so: then nothing is drafted.
    """

    method: str
    num_speculative_tokens: int | None
    variable: str
    read: bool

    __pydantic_config__ = documents.CHECKED_AGAIN

    def __str__(self) -> str:
        k = f" K={self.num_speculative_tokens}" if self.num_speculative_tokens else ""
        return f"{self.method or 'unknown method'}{k}{'' if self.read else ', which the image does not read'}"


@dataclass(frozen=True)
class JumpStartModel:
    """One configuration of a JumpStart model on one instance type. Time-outs are in seconds, None where it says none.

    `config` is empty for a model with only one; `instance_types` are those that AWS lists for it.
    """

    id: str
    version: str
    config: str
    instance_type: str
    instance_types: tuple[str, ...]
    image: str
    environment: Mapping[str, str]
    target: DataSource
    drafter: DataSource | None
    preset: Preset | None
    ami: str
    health_check_timeout: int | None
    download_timeout: int | None
    volume_gb: int | None
    network_isolation: bool

    __pydantic_config__ = documents.CHECKED_AGAIN

    @property
    def repository(self) -> str:
        """Of the image: the engine's name, or `djl-inference` for LMI."""
        return self.image.rpartition("/")[2].partition(":")[0]

    @property
    def engine_version(self) -> str:
        """The engine's version in AWS's own image of it, three numbers; empty where its tag does not tell."""
        tag = self.image.rpartition(":")[2]
        known = {image.tag: image.version for image in lookup.images("sagemaker", _ENGINE)}
        version = re.match(r"\d+\.\d+\.\d+", known.get(tag, tag))
        return version[0] if version and self.repository == _ENGINE else ""

    @property
    def limits(self) -> dict[str, int]:
        """The engine's limits that its environment sets, by their keys in a recipe."""
        written = {key: self.environment.get(f"{_PREFIX}{key.upper()}", "") for key in _LIMITS}
        return {key: int(value) for key, value in written.items() if _COUNT.fullmatch(value)}

    @property
    def unread(self) -> tuple[str, ...]:
        """Variables meant for the engine that this image makes nothing of."""
        lost = (name for name in self.environment if name.startswith(_UNREAD.get(self.repository, ())))
        return tuple(name for name in lost if self.environment.get(_SAME.get(name, "")) != self.environment[name])

    @property
    def variables_besides_drafting(self) -> dict[str, str]:
        """The container's environment, without the variables that say how it drafts."""
        drafting = (*_CONFIG_VARIABLES, _DRAFT_MODEL_VARIABLE)
        return {name: value for name, value in self.environment.items() if name not in drafting}

    def __str__(self) -> str:
        name = " ".join(part for part in (self.id, self.version, self.config) if part)
        return (
            f"JumpStart {name} on {self.instance_type}: {self.image.rpartition('/')[2]}, {self.preset or 'no drafter'}"
        )


def parse(content: Mapping[str, Any], instance_type: str | None = None, config: str | None = None) -> JumpStartModel:
    """What `read_jumpstart` has read, for an instance type (default: AWS's) and a configuration (default: AWS's best).

    The best is the first in AWS's ranking, of those for the type, that brings a drafter: so a baseline runs in the same
    container as its speculative arm. Unknown fields are ignored. Raises HubError, or UsageError for a `config`
    that is not there.
    """
    try:
        return documents.fit(JumpStartModel, _parse(content, instance_type, config))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        name = content.get("HubContentName", "model")
        message = f"JumpStart's entry of {name} is of an unknown shape: {error!r}"
        raise HubError(message, hint=OTHER_SOURCE) from error


def doubts(model: JumpStartModel) -> Iterator[str]:
    """What speaks against deploying this as JumpStart has it, one sentence each."""
    if model.instance_type not in model.instance_types:
        yield f"JumpStart does not list {model.instance_type} for {model.id}, but {', '.join(model.instance_types)}."
    if model.preset and not model.preset.read:
        yield f"JumpStart's preset drafts nothing on {model.instance_type}: {model.repository} does not read it."
    if model.unread:
        yield f"JumpStart sets {', '.join(model.unread)}, which its image {model.repository} does not read."


def _parse(content: Mapping[str, Any], instance_type: str | None, config: str | None) -> JumpStartModel:
    document = content["HubContentDocument"]
    config = config or _best_config(document, instance_type)
    settings = _settings(document, config, content["HubContentName"])
    types = tuple(settings.get("SupportedInferenceInstanceTypes") or ())
    instance_type = instance_type or _require(settings, "DefaultInferenceInstanceType", content)
    variant = _variant(settings, instance_type)
    image = variant.get("ImageUri") or _require(settings, "HostingEcrUri", content)
    variables = settings.get("InferenceEnvironmentVariables") or ()
    defaults = {item["Name"]: item["Default"] for item in variables if item.get("Default") is not None}
    defaults.update(variant.get("EnvironmentVariables") or {})
    model = JumpStartModel(
        id=content["HubContentName"],
        version=content["HubContentVersion"],
        config=config,
        instance_type=instance_type,
        instance_types=types,
        image=image,
        environment={name: value if isinstance(value, str) else json.dumps(value) for name, value in defaults.items()},
        target=_target(settings, content),
        drafter=next((_drafter(item, content) for item in _drafters(settings)), None),
        preset=None,
        ami=settings.get("InferenceAmiVersion") or "",
        health_check_timeout=settings.get("ContainerStartupHealthCheckTimeout"),
        download_timeout=settings.get("ModelDataDownloadTimeout"),
        volume_gb=settings.get("InferenceVolumeSize"),
        network_isolation=bool(settings.get("InferenceEnableNetworkIsolation")),
    )
    return replace(model, preset=_preset(model))


def _best_config(document: Mapping[str, Any], instance_type: str | None) -> str:
    configs = document.get("InferenceConfigs") or {}
    rankings = (document.get("InferenceConfigRankings") or {}).get("overall") or {}
    ranked = [name for name in rankings.get("Rankings") or sorted(configs) if name in configs]
    settings = {name: _settings(document, name, "") for name in ranked}
    for_type = [
        name for name in ranked if instance_type in (settings[name].get("SupportedInferenceInstanceTypes") or ())
    ]
    candidates = for_type or ranked
    drafting = [name for name in candidates if _drafters(settings[name])]
    return next(iter([*drafting, *candidates]), "")


def _settings(document: Mapping[str, Any], config: str, model: str) -> Mapping[str, Any]:
    """The document with the components of a configuration laid over it."""
    if not config:
        return document
    configs = document.get("InferenceConfigs") or {}
    if config not in configs:
        raise UsageError(f"JumpStart's {model} has no configuration {config}", hint=f"It has {', '.join(configs)}.")
    settings = document
    for name in configs[config]["ComponentNames"]:
        settings = _over(settings, document["InferenceConfigComponents"][name])
    return settings


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = (key for key in above if isinstance(below.get(key), Mapping) and isinstance(above[key], Mapping))
    return {**below, **above, **{key: _over(below[key], above[key]) for key in both}}


def _variant(settings: Mapping[str, Any], instance_type: str) -> Mapping[str, Any]:
    """What the entry says of an instance type: that of its family (`g7e`), and over it that of the type itself."""
    listing = settings.get("HostingInstanceTypeVariants") or {}
    variants, aliases = listing.get("Variants") or {}, listing.get("Aliases") or {}
    family = instance_type.removeprefix("ml.").partition(".")[0]
    below, above = ((variants.get(name) or {}).get("Properties") or {} for name in (family, instance_type))
    variant = _over(below, above)
    image = variant.get("ImageUri") or ""
    return {**variant, "ImageUri": aliases[image[1:]]} if image.startswith("$") else variant


def _target(settings: Mapping[str, Any], content: Mapping[str, Any]) -> DataSource:
    if settings.get("HostingModelPackageArn"):
        message = f"JumpStart's {content['HubContentName']} is a model package of the Marketplace, not weights"
        raise UsageError(message, hint="Subscribe to it and deploy it in SageMaker Studio.")
    uri = _require(settings, "HostingArtifactUri", content)
    licence = settings.get("HostingEulaUri") or settings.get("HostingEulaExternalLink") or ""
    gated = bool(licence or content["HubContentDocument"].get("GatedBucket") or uri.startswith(_PRIVATE_BUCKET))
    folder = uri.endswith("/")
    return DataSource(
        channel="",
        uri=_regional(uri, content),
        data_type=settings.get("HostingArtifactS3DataType") or ("S3Prefix" if folder else "S3Object"),
        compression=settings.get("HostingArtifactCompressionType") or ("None" if folder else "Gzip"),
        gated=gated,
        licence=_licence(licence, content) if gated else "",
        hub_content=content["HubContentArn"] if content.get("HubContentType") == "ModelReference" else "",
    )


def _drafters(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (settings.get("HostingAdditionalDataSources") or {}).get("speculative_decoding") or []


def _drafter(item: Mapping[str, Any], content: Mapping[str, Any]) -> DataSource:
    source, provider = item["S3DataSource"], item.get("Provider") or {}
    gated_bucket = provider.get("Classification") == "gated"
    uri = source["S3Uri"]
    if not uri.startswith("s3://"):
        # The SDK's catalogue of files has keys here, and this rule for their bucket (jumpstart/utils.py).
        owner = "jumpstart-private-cache" if gated_bucket else "jumpstart-cache"
        bucket = owner if provider.get("Name") == "JumpStart" else "sagemaker-sd-models"
        uri = f"s3://{bucket}-prod-{_region(content)}/{uri}"
    licence = item.get("HostingEulaUri") or ""
    gated = bool(licence) or gated_bucket or uri.startswith(_PRIVATE_BUCKET)
    return DataSource(
        channel=item["ChannelName"],
        uri=_regional(uri, content),
        data_type=source.get("S3DataType") or "S3Prefix",
        compression=source.get("CompressionType") or "None",
        gated=gated,
        licence=_licence(licence, content) if gated else "",
        hub_content=(source.get("HubAccessConfig") or {}).get("HubContentArn") or "",
    )


def _preset(model: JumpStartModel) -> Preset | None:
    written = [name for name in (*_CONFIG_VARIABLES, _DRAFT_MODEL_VARIABLE) if name in model.environment]
    if not written:
        return None
    variable = next((name for name in written if name not in model.unread), written[0])
    read = variable not in model.unread
    if variable == _DRAFT_MODEL_VARIABLE:
        return Preset(methods.configured(_ENGINE, {"method": "draft_model"}), None, variable, read)
    config = documents.parse(dict[str, Any], model.environment[variable])
    method = methods.configured(_ENGINE, config)
    return Preset(method, config.get("num_speculative_tokens"), variable, read)


def _require(settings: Mapping[str, Any], field: str, content: Mapping[str, Any]) -> str:
    value = settings.get(field)
    if not isinstance(value, str) or not value:
        raise HubError(f"JumpStart's entry of {content['HubContentName']} has no `{field}`", hint=OTHER_SOURCE)
    return value


def _regional(uri: str, content: Mapping[str, Any]) -> str:
    return _BUCKET.sub(rf"s3://\1-prod-{_region(content)}/", uri)


def _region(content: Mapping[str, Any]) -> str:
    """Of `arn:aws:sagemaker:us-west-2:aws:hub-content/SageMakerPublicHub/Model/<id>/<version>`."""
    return str(content["HubContentArn"].split(":")[3])


def _licence(uri: str, content: Mapping[str, Any]) -> str:
    """Where a browser finds a licence that lies in S3, or else the model's own page."""
    if not uri.startswith("s3://"):
        return str(uri or content["HubContentDocument"]["Url"])
    bucket, _, key = _regional(uri, content).removeprefix("s3://").partition("/")
    region = _region(content)
    return f"https://{bucket}.s3.{region}.{partition_of(region)[1]}/{key}"
