"""The model data of a container: its models and settings in S3, addressed by content; and of a whole deployment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from toolkit.engines.arguments import (
    CONFIG_CHANNEL,
    CONFIG_NAME,
    DRAFTER_CHANNEL,
    FILES_CHANNEL,
    TARGET_FOLDER,
    config_file,
    fetched_by_container,
    is_in_image,
    staged_downloads,
)
from toolkit.planning import artifacts
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.rules import jumpstart
from toolkit.platforms.sagemaker.rules.arms import arms
from toolkit.platforms.sagemaker.rules.in_account import job_request
from toolkit.platforms.sagemaker.rules.names import STAGED_PREFIX, WEIGHTS_PREFIX, bucket_name
from toolkit.recipe.content import ContentHash, WeightsFile, digest, manifest_digest, model_manifest
from toolkit.recipe.model_files import staged_names
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import Download
from toolkit.recipe.source import ModelSource

COMPILED_CHANNEL = "compiled"

_COMMIT_CHARACTERS = 12
_KEY_CHARACTERS = 6
_ORIGIN_CHARACTERS = 8


@dataclass(frozen=True)
class ModelData:
    """Files for a container. `channel` is empty for the model itself.

    `source` is the request's S3DataSource; `weights` uploads the files, None if they are in S3 already.
    """

    channel: str
    source: Mapping[str, Any]
    weights: Resource | None = None

    @property
    def uri(self) -> str:
        """Their address in S3."""
        return str(self.source["S3Uri"])


def addresses(container: Mapping[str, Any]) -> list[str]:
    """Where in S3 the data of an existing model's container is."""
    sources = [container.get("ModelDataSource", {}), *container.get("AdditionalModelDataSources", [])]
    return [source["S3DataSource"]["S3Uri"] for source in sources if "S3DataSource" in source]


def model_data(recipe: Recipe, account: Account) -> list[ModelData]:
    """All files for a container: models, settings too long for its environment, the engine's files, compiled code."""
    sources = _separate(recipe, account)
    return [_together(recipe, sources, account)] if recipe.one_data_source else sources


def with_one_data_source(recipe: Recipe, account: Account) -> Recipe:
    """The recipe for CloudFormation, whose AWS::SageMaker::Model has only the ModelDataSource.

    Where there is more than that, all files are staged below one S3 prefix, if they can be copied there.
    """
    sources = model_data(recipe, account)
    movable = recipe.target.kind != "jumpstart" and all(_is_plain(item) for item in sources)
    if not movable or not any(item.channel for item in sources):
        return recipe
    return replace(recipe, one_data_source=True)


def _separate(recipe: Recipe, account: Account) -> list[ModelData]:
    sources = [source_data("", recipe.target, recipe, account)]
    drafter = recipe.drafter
    if recipe.one_data_source and recipe.baseline_of:
        drafter = recipe.baseline_of.drafter  # so that a pair and its baseline share what is staged
    if drafter and not is_in_image(recipe):
        sources.append(source_data(DRAFTER_CHANNEL, drafter, recipe, account))
    if settings := config_file(recipe):
        sources.append(settings_data(settings, recipe, account))
    sources += [_from_weights(FILES_CHANNEL, _download(item, recipe, account)) for item in staged_downloads(recipe)]
    if artifacts.compiles_ahead(recipe):
        compiled = f"s3://{bucket_name(account)}/{artifacts.prefix(artifacts.key(recipe))}"
        sources.append(ModelData(COMPILED_CHANNEL, _prefix(compiled)))
    return [data for data in sources if data]


def _is_plain(data: ModelData) -> bool:
    """Whether the caller can copy the files: not an archive, and not those behind a licence of JumpStart's."""
    return data.weights is not None or data.source == _prefix(data.uri)


def _together(recipe: Recipe, data: Sequence[ModelData], account: Account) -> ModelData:
    """All files below one S3 prefix, each model in a folder of its own. Only templates have it: see their commands."""
    folders = {item.channel or TARGET_FOLDER: item for item in data}
    content = [(folder, item.uri) for folder, item in folders.items()]
    twin = " --baseline" if recipe.baseline_of else ""
    made_by = {COMPILED_CHANNEL: {"MadeBy": f"toolkit compile RECIPE{twin}"}}
    weights = _resource(f"{recipe.target.name}-set-{digest(content)[:_COMMIT_CHARACTERS]}", recipe, account, {})
    parts = {
        folder: {
            **(item.weights.request if item.weights else {"From": item.uri, **made_by.get(folder, {})}),
            **weights.request,
            "Prefix": f"{weights.request['Prefix']}{folder}/",
        }
        for folder, item in folders.items()
    }
    return _from_weights("", replace(weights, request={**weights.request, "Folders": parts}))


def files_data(channel: str, folder: Path, files: Sequence[WeightsFile], recipe: Recipe, account: Account) -> ModelData:
    """Files of a folder, such as training data, for a channel of a training job."""
    return _from_weights(channel, _listed(channel, files, {"Source": str(folder)}, recipe, account))


def settings_data(settings: Mapping[str, Any], recipe: Recipe, account: Account) -> ModelData:
    """Flags of the engine as a JSON file."""
    return text_data(CONFIG_CHANNEL, CONFIG_NAME, json.dumps(settings, sort_keys=True), recipe, account)


def text_data(channel: str, name: str, text: str, recipe: Recipe, account: Account) -> ModelData:
    """A file of that name and text."""
    return texts_data(channel, {name: text}, recipe, account)


def texts_data(channel: str, texts: Mapping[str, str], recipe: Recipe, account: Account) -> ModelData:
    """Files by their names and texts."""
    files = []
    for name, text in sorted(texts.items()):
        content = ContentHash(len(text.encode()))
        content.update(text.encode())
        files.append(WeightsFile(name, len(text.encode()), content.hexdigest()))
    return _from_weights(channel, _listed(channel, files, {"Content": dict(texts)}, recipe, account))


def source_data(channel: str, source: ModelSource, recipe: Recipe, account: Account) -> ModelData | None:
    """A model; None for one that the container, or a training job, fetches from the hub itself."""
    if fetched_by_container(recipe, source):
        return None
    if source.kind == "jumpstart":
        if channel:
            return ModelData(channel, jumpstart.drafter_source(recipe, source, account.jumpstart))
        return ModelData(channel, jumpstart.target_source(recipe, account.jumpstart))
    if source.kind == "s3":
        return ModelData(channel, _prefix(source.model.rstrip("/") + "/"))
    return _from_weights(channel, _weights(source, recipe, account))


def _from_weights(channel: str, weights: Resource) -> ModelData:
    return ModelData(channel, _prefix(f"s3://{weights.request['Bucket']}/{weights.request['Prefix']}"), weights)


def _prefix(uri: str) -> dict[str, Any]:
    return {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}


def _weights(source: ModelSource, recipe: Recipe, account: Account) -> Resource:
    folder = source.folder
    if folder is None:
        revision = source.revision or "main"
        # Models of two organisations may have the same name, and branch names the same beginning.
        origin_digest = hashlib.sha256(f"{source.model}@{revision}".encode()).hexdigest()[:_ORIGIN_CHARACTERS]
        name = f"{source.name}-{revision[:_COMMIT_CHARACTERS].replace('/', '-')}-{origin_digest}"
        secret = {"HubTokenSecret": recipe.platform.hub_token_secret} if recipe.platform.hub_token_secret else {}
        origin = {"Hub": source.model, "Revision": revision, "Mark": f"{STAGED_PREFIX}{name}"}
        staged = recipe.staged_files.get(source.model)
        names = {"Names": list(staged_names(staged, code=recipe.runs_model_code))} if staged else {}
        code = {"Code": True} if recipe.runs_model_code else {}
        job = job_request(recipe, recipe.model_bytes.get(source.model))
        return _resource(name, recipe, account, {**origin, **names, **code, **secret, **job})
    return _listed(
        folder.name, model_manifest(folder, code=recipe.runs_model_code), {"Source": str(folder)}, recipe, account
    )


def _download(item: Download, recipe: Recipe, account: Account) -> Resource:
    name = f"{item.name.rpartition('.')[0]}-{item.sha256[:_COMMIT_CHARACTERS]}"
    file = WeightsFile(item.name, item.size, item.sha256)
    return _resource(name, recipe, account, {"Url": item.url, "Files": [asdict(file)]})


def _listed(
    what: str, files: Sequence[WeightsFile], origin: Mapping[str, Any], recipe: Recipe, account: Account
) -> Resource:
    """Weights that are known file by file, under a name with a digest of them."""
    name = f"{what}-{manifest_digest(tuple(files))[:_COMMIT_CHARACTERS]}"
    return _resource(name, recipe, account, {**origin, "Files": [asdict(file) for file in files]})


def _resource(name: str, recipe: Recipe, account: Account, origin: Mapping[str, Any]) -> Resource:
    """Under a name with a digest of the key, if there is one: with another, the weights are staged anew."""
    key = aws(recipe).kms_key
    if key:
        name = f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:_KEY_CHARACTERS]}"
    location = {"Bucket": bucket_name(account), "Prefix": f"{WEIGHTS_PREFIX}{name}/"}
    return Resource("Weights", name, {**location, **origin, **({"KmsKeyId": key} if key else {})})


@dataclass(frozen=True)
class Deployment:
    """A complete recipe, to be deployed to an account."""

    recipe: Recipe
    account: Account

    @cached_property
    def data(self) -> Sequence[ModelData]:
        """The model data of every arm on every instance type, between which compiled code and settings may differ."""
        every = [
            item
            for arm in arms(self.recipe)
            for instance_type in arm.platform.types
            for item in model_data(arm.on(instance_type), self.account)
        ]
        return list({item.uri: item for item in every}.values())
