"""All that a version in the model registry takes: the weights, the recipe beside them, the group, and the version.

The recipe's files are kept so that another machine deploys the same: models of this machine's folders are named by
where they are staged, what the file leaves open is as it was chosen, the lock pins the images that were looked at, and
other files lie beside the recipe.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from toolkit import documents
from toolkit.engines.arguments import DRAFTER_CHANNEL, builds, is_in_image
from toolkit.errors import UsageError
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
from toolkit.platforms.sagemaker.kinds.image import base_images, images, repositories
from toolkit.platforms.sagemaker.kinds.model import model_of
from toolkit.platforms.sagemaker.kinds.model_package import (
    RECIPE,
    RECIPE_DIGEST,
    RECIPE_FILE,
    RECIPE_NAME,
    TOOLKIT,
    TRAINING_JOB,
    ModelPackageGroupKind,
    version_of,
)
from toolkit.platforms.sagemaker.rules.model_data import Deployment, ModelData, addresses, source_data, texts_data
from toolkit.platforms.sagemaker.rules.names import registered
from toolkit.recipe.content import digest
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.lock import lock_path, read_lock
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource
from toolkit.recipe.values import INSTANCE_TYPES, VERSION
from toolkit.sizing.fit import TENSOR_PARALLEL
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
        texts[_REPORT_FILE] = json.dumps(version.proof.to_dict(), indent=1)
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
    if _REPORT_FILE in texts:
        sha256 = hashlib.sha256(texts[_REPORT_FILE].encode()).hexdigest()
        report = {
            "ContentType": "application/json",
            "ContentDigest": f"sha256:{sha256}",
            "S3Uri": f"{files.uri}{_REPORT_FILE}",
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


_REPORT_FILE = "report.json"
_DOCKERFILE, _WORKLOADS = "Dockerfile", "workloads"


def portable_files(recipe: Recipe, account: Account) -> dict[str, str]:
    """Names and texts of the files. Raises UsageError for what cannot be deployed from there, or is no text."""
    staged = _staged(recipe, account)
    files = {RECIPE_FILE: _written(recipe, staged)}
    if (lock := _lock(recipe, account, staged)) is not None:
        files[Path(RECIPE_FILE).with_suffix(".lock.json").name] = json.dumps(lock.to_dict(), indent=1, sort_keys=True)
    if recipe.container and recipe.container.dockerfile:
        files[_DOCKERFILE] = _text("container.dockerfile", Path(recipe.container.dockerfile))
    for name, path in recipe.workloads.items():
        files[_workload(name, path)] = _text(f"workloads.{name}", path)
    return files


def _staged(recipe: Recipe, account: Account) -> dict[str, str]:
    """Where models of folders lie in S3, by their keys in the recipe."""
    found = {}
    for key, source in recipe.models.items():
        if source.folder is None:
            continue
        if key != "target.model" and is_in_image(recipe):
            hint = "Write `container: {bake_drafter: false}`, or name a drafter of the hub."
            raise UsageError(
                f"{key}: a drafter of a folder lies in the image, which is built from that folder", hint=hint
            )
        data = source_data("" if key == "target.model" else DRAFTER_CHANNEL, source, recipe, account)
        assert data, "a folder is always staged"
        found[key] = data.uri
    return found


def _written(recipe: Recipe, staged: Mapping[str, str]) -> str:
    """The recipe's text, with what has changed in it; comments stay. It is trained elsewhere, so `training` goes."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    data: Any = yaml.load(recipe.path.read_text(encoding="utf-8"))
    data.pop("training", None)
    for key, uri in staged.items():
        data[key.partition(".")[0]]["model"] = uri
    if VERSION in recipe.chosen:
        data["engine"]["version"] = recipe.engine.version
    if INSTANCE_TYPES in recipe.chosen:
        data["platform"]["instance_types"] = list(recipe.platform.types)
    if f"engine.args.{TENSOR_PARALLEL}" in recipe.chosen:
        data["engine"].setdefault("args", {})[TENSOR_PARALLEL] = recipe.engine.args[TENSOR_PARALLEL]
    if recipe.container and recipe.container.dockerfile:
        data["container"]["dockerfile"] = f"./{_DOCKERFILE}"
    for name, path in recipe.workloads.items():
        data["workloads"][name] = f"./{_workload(name, path)}"
    text = io.StringIO()
    yaml.dump(data, text)
    return text.getvalue()


def _lock(recipe: Recipe, account: Account, staged: Mapping[str, str]) -> Lock | None:
    """The lock, with the facts of what is staged and the images that tags mean now; none for an unlocked hub model."""
    lock = read_lock(lock_path(recipe))
    models = dict(recipe.models)
    target = _facts(models["target.model"], staged.get("target.model")) or (lock.target if lock else None)
    if target is None:
        return None
    drafter = _facts(models.get("speculation.model"), staged.get("speculation.model")) or (
        lock.drafter if lock else None
    )
    known = {image: account.digests[image] for image in base_images(recipe, account) if image in account.digests}
    images = {image: found.partition("@")[2] for image, found in known.items()}
    return Lock(target, drafter, {**images, **(lock.images if lock else {})}, lock.wheels if lock else {})


def _facts(source: ModelSource | None, uri: str | None) -> ModelFacts | None:
    """Of a model that is staged from a folder."""
    return replace(read_folder(source.folder), model=uri) if source and source.folder and uri else None


def _workload(name: str, path: Path) -> str:
    return f"{_WORKLOADS}/{name}{path.suffix}"


def _text(key: str, path: Path) -> str:
    try:
        return documents.read_file(path, documents.Limits(size=64 * 1024**2)).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{key}: {path} cannot be read: {error.strerror}", hint="Name a file that exists.") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{key}: {path} is no text, which is all that is registered", hint="Write it as .jsonl."
        ) from error
    except documents.Unfit as error:
        raise UsageError(f"{key}: {path} cannot be registered: {error}", hint="Name a shorter file.") from error
