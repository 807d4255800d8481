"""The training job that compiles for Trainium before an endpoint is deployed.

SageMaker allows a container an hour to start, and compiling may take longer. Of its jobs, only training jobs run on
Trainium. A job runs the recipe's image with the recipe's environment on the same instance type. Unverified: nothing
here was run on AWS.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from toolkit.engines.arguments import (
    CHANNELS_DIR,
    CONFIG_CHANNEL,
    config_file,
    environment,
    fetched_by_container,
    variable,
)
from toolkit.errors import UsageError
from toolkit.planning import artifacts
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.image import by_digest
from toolkit.platforms.sagemaker.kinds.image import image_uri
from toolkit.platforms.sagemaker.kinds.model import network
from toolkit.platforms.sagemaker.kinds.role import role_arn
from toolkit.platforms.sagemaker.rules.model_data import COMPILED_CHANNEL, ModelData, model_data, settings_data
from toolkit.platforms.sagemaker.rules.names import bucket_name, compiler, tags
from toolkit.recipe.resolve import Recipe

# botocore 1.44.5, service model of SageMaker: TrainingEnvironmentValue.
LONGEST_VALUE = 512
# The manifests of AWS's samples allow an engine 4 h 45 min to compile and start.
LONGEST_SECONDS = 5 * 3600

INPUT_DIR = "/opt/ml/input/data"
CHECKPOINTS_DIR = "/opt/ml/checkpoints"
TARGET_CHANNEL = "target"

_PROGRAM = "/opt/toolkit/compile"
# With a key of 12 characters and an attempt number, a name has at most 60 of the 63 allowed characters.
_NAME_CHARACTERS = 44


def job_data(recipe: Recipe, account: Account) -> list[ModelData]:
    """The recipe's models, and settings too long for a job's environment, whose limit is lower than a model's."""
    its_own = (COMPILED_CHANNEL, CONFIG_CHANNEL)
    found = [item for item in model_data(recipe, account) if item.channel not in its_own]
    if settings := config_file(recipe, LONGEST_VALUE):
        found.append(settings_data(json.loads(_in_job(json.dumps(settings))), recipe, account))
    return found


def job(recipe: Recipe, owner: Recipe, account: Account) -> Resource:
    """The compile job of a recipe for its first instance type, with the role of `owner`."""
    key = artifacts.key(recipe)
    name = f"{recipe.name[:_NAME_CHARACTERS].rstrip('-')}-{key}"
    s3_prefix = f"s3://{bucket_name(account)}/{artifacts.prefix(key)}"
    uri = image_uri(recipe, account)
    request = {
        "TrainingJobName": name,
        "AlgorithmSpecification": algorithm(recipe, by_digest(uri, recipe, account), _PROGRAM),
        "RoleArn": role_arn(owner, account, compiler(owner.name)),
        **channels(job_data(recipe, account)),
        # Only SageMaker itself writes job output here.
        "OutputDataConfig": output(recipe, f"{s3_prefix}jobs"),
        # Synchronized with S3 during the job, so that a second job resumes where the first was stopped.
        "CheckpointConfig": {"S3Uri": s3_prefix, "LocalPath": CHECKPOINTS_DIR},
        "ResourceConfig": {"InstanceType": recipe.platform.instance_types[0], "InstanceCount": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": LONGEST_SECONDS},
        "Environment": _environment(recipe),
        **network(recipe),
        "Tags": tags(owner),
    }
    return Resource("TrainingJob", name, request, expected_seconds=artifacts.expected_seconds(recipe))


def algorithm(recipe: Recipe, image: str, program: str, **more: Any) -> dict[str, Any]:
    """AlgorithmSpecification of a job that runs a program of an image."""
    private = {"TrainingImageConfig": {"TrainingRepositoryAccessMode": "Vpc"}}
    return {
        "TrainingImage": image,
        "TrainingInputMode": "File",
        "ContainerEntrypoint": [program],
        **more,
        **(private if recipe.network.private_registry else {}),
    }


def output(recipe: Recipe, address: str, **more: Any) -> dict[str, Any]:
    """OutputDataConfig, with the recipe's key."""
    key = recipe.platform.kms_key
    return {"S3OutputPath": address, **more, **({"KmsKeyId": key} if key else {})}


def channels(data: Sequence[ModelData]) -> dict[str, Any]:
    """The data as channels of a training job, which are copied to its disk."""
    found = [
        {
            "ChannelName": item.channel or TARGET_CHANNEL,
            "DataSource": {
                "S3DataSource": {
                    "S3DataType": "S3Prefix",
                    "S3Uri": item.uri,
                    "S3DataDistributionType": "FullyReplicated",
                }
            },
        }
        for item in data
    ]
    return {"InputDataConfig": found} if found else {}


def _environment(recipe: Recipe) -> dict[str, str]:
    """The environment of an endpoint's container, with a job's paths. Raises UsageError for too long values."""
    folder = {variable(recipe, "model"): f"{INPUT_DIR}/{TARGET_CHANNEL}"}
    model = {} if fetched_by_container(recipe, recipe.target) else folder
    serving = {name: _in_job(value) for name, value in environment(recipe, LONGEST_VALUE).items()}
    found = {**serving, **model, **artifacts.variables(recipe, CHECKPOINTS_DIR, LONGEST_VALUE)}
    for name, value in found.items():
        if len(value) > LONGEST_VALUE:
            message = f"{name} has {len(value)} characters, but a training job allows {LONGEST_VALUE}"
            raise UsageError(message, hint=f"Shorten it in engine.env of {recipe.path}.")
    return dict(sorted(found.items()))


def _in_job(text: str) -> str:
    """A text with the paths of an endpoint's channels replaced by a job's."""
    return text.replace(CHANNELS_DIR, INPUT_DIR)
