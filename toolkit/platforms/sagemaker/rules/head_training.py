"""The training job of a head on SageMaker, and all that it needs: image, data, role. Unverified: not run on AWS.

The job reads its models, its data and job.json as channels. Checkpoints are synchronized with S3 while it runs, below
the job's key, so that the next attempt, or the same one after a spot interruption, goes on from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from toolkit.errors import UsageError
from toolkit.home import containers_dir
from toolkit.images.spec import ContextFile, ImageSpec
from toolkit.planning.kinds import in_order
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.image import ROOT, render, store_of
from toolkit.platforms.sagemaker.kinds import ORDER
from toolkit.platforms.sagemaker.kinds.bucket import made_bucket, staged
from toolkit.platforms.sagemaker.kinds.image import built_image, repository
from toolkit.platforms.sagemaker.kinds.model import network
from toolkit.platforms.sagemaker.kinds.role import job_role, role_arn
from toolkit.platforms.sagemaker.rules import job_machines
from toolkit.platforms.sagemaker.rules.access import s3_actions
from toolkit.platforms.sagemaker.rules.compilation import (
    CHECKPOINTS_DIR,
    INPUT_DIR,
    TARGET_CHANNEL,
    algorithm,
    channels,
    output,
)
from toolkit.platforms.sagemaker.rules.job_machines import has_encrypted_volume, job_section, resource_config
from toolkit.platforms.sagemaker.rules.model_data import ModelData, files_data, source_data, text_data
from toolkit.platforms.sagemaker.rules.names import TRAINING_PREFIX, bucket_name, tags, trainer
from toolkit.recipe.content import ContentHash, WeightsFile, manifest
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection
from toolkit.recipe.source import ModelSource, model_source
from toolkit.recipe.training_schema import LONGEST_HOURS
from toolkit.training.job import FILE, TrainingJob
from toolkit.training.plan import job_name, section, training_job, training_key

PROGRAM = "train"
"""The folder in containers/, and the program in the image."""

JOB_CHANNEL, _START_CHANNEL = "job", "start"
_ENTRYPOINT = f"/opt/toolkit/{PROGRAM}"
_MODEL_DIR, _WORK_DIR = "/opt/ml/model/head", "/tmp/toolkit"  # noqa: S108 (on the job's own volume)
# In the lines of toolkit/training/progress.py.
_METRICS = [{"Name": "train:loss", "Regex": '"loss": ([0-9.e+-]+)'}]

# Beside the modules at the top, the part of the toolkit that runs in the job: what toolkit.training may import, and the
# engine that it asks for.
_PACKAGES = ("training", "engines", "recipe", "catalog")
_PIN = re.compile(r"^[A-Za-z0-9][\w.-]*==[\w.!+]+", re.M)


def training_resources(recipe: Recipe, account: Account) -> tuple[Resource, ...]:
    """All resources that the job needs, and the job. Raises UsageError, UnreadableModel."""
    data = _data(recipe, account)
    job = _job(recipe, data)
    data.append(text_data(JOB_CHANNEL, FILE, job.model_dump_json(indent=2), recipe, account))
    image = built_image(recipe, account, training_image(recipe, account), store_of(recipe))
    wanted = [
        *made_bucket(account),
        *repository(recipe),
        image,
        *staged(data, recipe.name),
        *_role(recipe, account, data),
        _resource(recipe, account, data, str(image.request["Image"])),
    ]
    return in_order(wanted, ORDER)


def _role(recipe: Recipe, account: Account, data: list[ModelData]) -> list[Resource]:
    volume = ["kms:CreateGrant"] if has_encrypted_volume(recipe) else []
    return job_role(
        recipe, account, data, trainer(recipe.name), _prefix(recipe), s3_actions("AbortMultipartUpload"), volume
    )


def notes(recipe: Recipe) -> Iterator[str]:
    """Notes for a plan of `toolkit train`."""
    yield from job_machines.notes(recipe)
    hours = section(recipe).max_hours
    yield f"The job is stopped after {hours:g} h, with a checkpoint from which the same command goes on"


def _resource(recipe: Recipe, account: Account, data: list[ModelData], image: str) -> Resource:
    training, address = job_section(recipe), f"s3://{bucket_name(account)}/{_prefix(recipe)}"
    name, folder = job_name(recipe), f"{INPUT_DIR}/{JOB_CHANNEL}"
    seconds = round(training.max_hours * 3600)
    waits = round((training.max_wait_hours or min(2 * training.max_hours, LONGEST_HOURS)) * 3600)
    isolated = {} if _needs_network(recipe) else {"EnableNetworkIsolation": True}
    request = {
        "TrainingJobName": name,
        "AlgorithmSpecification": algorithm(
            recipe, image, _ENTRYPOINT, ContainerArguments=[folder], MetricDefinitions=_METRICS
        ),
        "RoleArn": role_arn(recipe, account, trainer(recipe.name)),
        **channels(data),
        "OutputDataConfig": output(recipe, f"{address}output", CompressionType="NONE"),
        "CheckpointConfig": {"S3Uri": f"{address}checkpoints", "LocalPath": CHECKPOINTS_DIR},
        "ResourceConfig": resource_config(recipe),
        "StoppingCondition": {
            "MaxRuntimeInSeconds": seconds,
            **({"MaxWaitTimeInSeconds": waits} if training.spot else {}),
        },
        **({"EnableManagedSpotTraining": True} if training.spot else {}),
        **({"EnableInterContainerTrafficEncryption": True} if training.encrypt_traffic else {}),
        **isolated,
        **network(recipe),
        "Tags": tags(recipe),
    }
    return Resource("TrainingJob", name, request)


def _prefix(recipe: Recipe) -> str:
    """Below which the job writes, in the toolkit's bucket."""
    return f"{TRAINING_PREFIX}{recipe.name}/{training_key(recipe)}/"


def _data(recipe: Recipe, account: Account) -> list[ModelData]:
    """Models and data of the job by channel; what the job itself fetches from the hub has none."""
    training = section(recipe)
    if recipe.target.kind == "jumpstart":
        hint = "Set `target.model` to its Hugging Face id, or to where its files lie in S3."
        raise UsageError("a job cannot read the files of a JumpStart model", hint=hint)
    data = [source_data(TARGET_CHANNEL, recipe.target, recipe, account)]
    if training.start_from:
        start = model_source(training.start_from, Path())
        data.append(source_data(_START_CHANNEL, start, recipe, account))
    for number, item in enumerate(training.sources):
        if item.startswith("s3://"):
            data.append(source_data(f"data-{number}", ModelSource(model=item), recipe, account))
        elif "://" not in item:
            data.append(_staged_files(f"data-{number}", Path(item), recipe, account))
    return [item for item in data if item]


def _job(recipe: Recipe, data: list[ModelData]) -> TrainingJob:
    """job.json with the job's own paths."""
    job, mounted = training_job(recipe), {item.channel: f"{INPUT_DIR}/{item.channel}" for item in data}
    return job.model_copy(
        update={
            "target": mounted.get(TARGET_CHANNEL, job.target),
            "start_from": mounted.get(_START_CHANNEL, job.start_from),
            "data": tuple(mounted.get(f"data-{number}", item) for number, item in enumerate(job.data)),
            "checkpoints": CHECKPOINTS_DIR,
            "work": _WORK_DIR,
            "head": _MODEL_DIR,
        }
    )


def _needs_network(recipe: Recipe) -> bool:
    training = section(recipe)
    fetched = recipe.target.kind == "hub" and recipe.platform.weights == "hub"
    sources = [*training.sources, training.responses]
    return fetched or any(item.startswith(("hf://", "http://", "https://")) for item in sources)


def _staged_files(channel: str, path: Path, recipe: Recipe, account: Account) -> ModelData:
    """A folder, or one file."""
    if path.is_dir():
        return files_data(channel, path, manifest(path), recipe, account)
    size, content = path.stat().st_size, ContentHash(path.stat().st_size)
    with path.open("rb") as stream:
        while piece := stream.read(1024**2):
            content.update(piece)
    return files_data(channel, path.parent, (WeightsFile(path.name, size, content.hexdigest()),), recipe, account)


def training_image(recipe: Recipe, account: Account) -> ImageSpec:
    """All that makes the image. It has the same base as the recipe's own, and no drafter. Raises UsageError."""
    section = recipe.container or ContainerSection()
    wheels = [*pins(), *section.wheels]
    image = replace(recipe, container=section.model_copy(update={"wheels": wheels, "bake_drafter": False}))
    return render(image, account, program=PROGRAM, more=_library())


def pins() -> list[str]:
    """The packages that training adds to the base image, as name==version."""
    return _PIN.findall((containers_dir() / PROGRAM / "requirements.txt").read_text(encoding="utf-8"))


def _library() -> dict[str, ContextFile]:
    package = Path(__file__).parents[3]
    paths = [package / "words.json", *package.glob("*.py")]
    paths += [path for name in _PACKAGES for path in (package / name).rglob("*") if path.suffix in (".py", ".json")]
    return {
        f"{ROOT}/library/toolkit/{path.relative_to(package).as_posix()}": ContextFile(content=path.read_bytes())
        for path in sorted(paths)
    }
