"""All that a version in the model registry takes: the weights, the recipe beside them, the group, and the version."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from toolkit.engines.arguments import builds
from toolkit.planning.kinds import in_order
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.parts import Version
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.kinds import ORDER
from toolkit.platforms.sagemaker.kinds.bucket import made_bucket, staged
from toolkit.platforms.sagemaker.kinds.image import images, repositories
from toolkit.platforms.sagemaker.kinds.model import model_of
from toolkit.platforms.sagemaker.kinds.model_package import (
    RECIPE,
    RECIPE_DIGEST,
    RECIPE_NAME,
    TOOLKIT,
    TRAINING_JOB,
    ModelPackageGroupKind,
    version_of,
)
from toolkit.platforms.sagemaker.rules.model_card import model_card
from toolkit.platforms.sagemaker.rules.model_data import Deployment, ModelData, addresses, texts_data
from toolkit.platforms.sagemaker.rules.names import registered
from toolkit.platforms.sagemaker.rules.portable import REPORT_FILE, portable_files
from toolkit.recipe.recipe import Recipe
from toolkit.version import __version__

# What a model package's container takes of a model's (botocore 1.44.5, ModelPackageContainerDefinition).
_CONTAINER = ("Image", "Environment", "ModelDataSource", "AdditionalModelDataSources")
_DESCRIPTION_CHARACTERS = 1024


def version_resources(recipe: Recipe, account: Account, version: Version) -> tuple[Resource, ...]:
    """All resources of the version, without duplicates. The marks on the weights are the group's. Raises UsageError."""
    texts = portable_files(recipe, account)
    if version.proof:
        texts[REPORT_FILE] = json.dumps(version.proof.to_dict(), indent=1)
    files = texts_data("recipe", texts, recipe, account)
    group = {"ModelPackageGroupName": version.group}
    wanted = [
        *made_bucket(account),
        *((*repositories(recipe), *images(recipe, account)) if builds(recipe) else ()),
        *staged([*Deployment(recipe, account).data, files], registered(version.group)),
        Resource(ModelPackageGroupKind.kind, version.group, group),
        version_of(version.group, _package(recipe, account, version, files, texts), version.status),
    ]
    return in_order(wanted, ORDER)


def _package(
    recipe: Recipe, account: Account, version: Version, files: ModelData, texts: dict[str, str]
) -> dict[str, Any]:
    """The request of the version, without its group and status."""
    assert files.weights
    model = model_of(recipe.on(recipe.platform.types[0]), account).request["PrimaryContainer"]
    prefix = f"arn:{account.partition}:sagemaker:{account.region}:{account.id}:training-job/"
    job = f"{prefix}{version.training_job}" if version.training_job else ""
    waits = version.status != "Approved"
    card = model_card(recipe, addresses(model), version.proof, job)
    package: dict[str, Any] = {
        "ModelPackageDescription": _description(recipe)[:_DESCRIPTION_CHARACTERS],
        "Domain": "NATURAL_LANGUAGE_PROCESSING",
        "Task": "TEXT_GENERATION",
        "InferenceSpecification": {
            "Containers": [{key: model[key] for key in _CONTAINER if key in model}],
            "SupportedRealtimeInferenceInstanceTypes": list(recipe.platform.types),
            "SupportedContentTypes": ["application/json"],
            "SupportedResponseMIMETypes": ["application/json"],
        },
        "ModelCard": {"ModelCardContent": card, "ModelCardStatus": "PendingReview" if waits else "Approved"},
        "CustomerMetadataProperties": {
            RECIPE: files.uri,
            RECIPE_NAME: recipe.name,
            RECIPE_DIGEST: content_digest(texts),
            TOOLKIT: __version__,
            **({TRAINING_JOB: job} if job else {}),
        },
    }
    if REPORT_FILE in texts:
        digest = hashlib.sha256(texts[REPORT_FILE].encode()).hexdigest()
        report = {
            "ContentType": "application/json",
            "ContentDigest": f"sha256:{digest}",
            "S3Uri": f"{files.uri}{REPORT_FILE}",
        }
        package["ModelMetrics"] = {"ModelQuality": {"Statistics": report}}
    if key := aws(recipe).kms_key:
        package["SecurityConfig"] = {"KmsKeyId": key}
    return package


def content_digest(texts: dict[str, str]) -> str:
    """The digest of a recipe's files, by which a version of them is known again."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()


def _description(recipe: Recipe) -> str:
    return recipe.description or f"{recipe.target} with {recipe.method}"
