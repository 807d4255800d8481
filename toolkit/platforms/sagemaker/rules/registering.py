"""All that a version in the model registry takes: the weights, the recipe beside them, the group, and the version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from toolkit.engines.arguments import builds
from toolkit.measure.headline import comparable, headline, speedup_of
from toolkit.measure.measurement import ArmReport
from toolkit.measure.report import BenchReport
from toolkit.measure.wording import interval, load
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
from toolkit.platforms.sagemaker.rules.model_data import Deployment, ModelData, addresses, texts_data
from toolkit.platforms.sagemaker.rules.names import registered
from toolkit.platforms.sagemaker.rules.portable import REPORT_FILE, portable_files
from toolkit.recipe.content import digest
from toolkit.recipe.recipe import Recipe
from toolkit.version import __version__

# Limits of a model card's schema (developer guide, model-registry-details): characters of a name, of an observation
# and of other texts; items of a list.
_NAME, _OBSERVATION, _TEXT, _MOST = 63, 2096, 1024, 15

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
    card = _model_card(recipe, addresses(model), version.proof, job)
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
            RECIPE_DIGEST: digest(texts),
            TOOLKIT: __version__,
            **({TRAINING_JOB: job} if job else {}),
        },
    }
    if REPORT_FILE in texts:
        sha256 = hashlib.sha256(texts[REPORT_FILE].encode()).hexdigest()
        report = {
            "ContentType": "application/json",
            "ContentDigest": f"sha256:{sha256}",
            "S3Uri": f"{files.uri}{REPORT_FILE}",
        }
        package["ModelMetrics"] = {"ModelQuality": {"Statistics": report}}
    if key := aws(recipe).kms_key:
        package["SecurityConfig"] = {"KmsKeyId": key}
    return package


def _description(recipe: Recipe) -> str:
    return recipe.description or f"{recipe.target} with {recipe.method}"


def _model_card(recipe: Recipe, artifacts: Sequence[str], proof: BenchReport | None, training_job: str) -> str:
    """The model card as JSON. It says what is known; what a model is for, and its risks, its owner adds."""
    drafter = {"drafter": str(recipe.drafter)} if recipe.drafter else {}
    tokens = {"num_speculative_tokens": str(recipe.speculation.num_speculative_tokens)} if recipe.speculation else {}
    details = {
        "recipe": recipe.name,
        "target": str(recipe.target),
        "method": recipe.method,
        **drafter,
        **tokens,
        "engine": f"{recipe.engine.name} {recipe.engine.version}",
        "toolkit": __version__,
    }
    card: dict[str, Any] = {
        "model_overview": {"model_artifact": list(artifacts[:_MOST])},
        "additional_information": {"custom_details": {key: text[:_TEXT] for key, text in details.items()}},
    }
    if training_job:
        card["training_details"] = {"training_job_details": {"training_arn": training_job}}
    if proof:
        card["evaluation_details"] = [_evaluation(proof)]
    return json.dumps(card)


def _evaluation(proof: BenchReport) -> dict[str, Any]:
    short = headline(proof)
    groups = [{"name": _group(arm)[:_NAME], "metric_data": list(_metrics(proof, arm))} for arm in proof.arms]
    return {
        "name": "toolkit prove",
        "evaluation_observation": " ".join([f"{short.title}.", *short.sentences])[:_OBSERVATION],
        "metric_groups": [group for group in groups if group["metric_data"]],
    }


def _group(arm: ArmReport) -> str:
    return f"{arm.workload}, load {load(arm)}, {arm.arm}"


def _metrics(proof: BenchReport, arm: ArmReport) -> Iterator[dict[str, Any]]:
    speedup = speedup_of(proof, arm) if comparable(proof) else None
    figures = {
        "output tokens per second": arm.output_tokens_per_second,
        "acceptance length": arm.acceptance_length,
        "share of answers equal to the baseline's": arm.identical,
        "speedup": speedup.ratio if speedup else None,
    }
    for name, value in figures.items():
        if value is not None:
            notes = {"notes": interval(speedup)} if speedup and name == "speedup" else {}
            yield {"name": name, "type": "number", "value": value, **notes}
