"""Compiling before deployment, for Trainium or for warm starts: its job, its notes, and the error if it was not done.

SageMaker allows a container an hour to start, and compiling may take longer. Of its jobs, only training jobs run on
Trainium. A job runs the recipe's image with the recipe's environment on the same instance type. Unverified: nothing
here was run on AWS.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from toolkit.engines.arguments import (
    CHANNELS_DIR,
    CONFIG_CHANNEL,
    config_file,
    environment,
    fetched_by_container,
    variable,
)
from toolkit.engines.registry import engine_rules
from toolkit.errors import NotCompiled, UsageError
from toolkit.planning import artifacts
from toolkit.planning.kinds import in_order
from toolkit.planning.names import ARTIFACTS_PREFIX
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.image import by_digest
from toolkit.platforms.sagemaker.keys import aws, aws_network
from toolkit.platforms.sagemaker.kinds import ORDER
from toolkit.platforms.sagemaker.kinds.bucket import made_bucket, staged
from toolkit.platforms.sagemaker.kinds.image import image_uri, images, repositories
from toolkit.platforms.sagemaker.kinds.model import network
from toolkit.platforms.sagemaker.kinds.role import job_role, role_arn
from toolkit.platforms.sagemaker.kinds.training_job import needed
from toolkit.platforms.sagemaker.rules import price
from toolkit.platforms.sagemaker.rules.model_data import COMPILED_CHANNEL, ModelData, model_data, settings_data
from toolkit.platforms.sagemaker.rules.names import bucket_name, compiler, tags
from toolkit.recipe.recipe import Recipe

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


def compile_resources(recipes: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
    """All resources that compiling for the recipes needs. The first is the recipe itself. Raises UsageError."""
    compiled_code = needed(recipes)
    data = {item.uri: item for here in compiled_code.values() for item in job_data(here, account)}
    wanted = [
        *made_bucket(account),
        *(item for here in compiled_code.values() for item in (*repositories(here), *images(here, account))),
        *staged(data.values(), recipes[0].name),
        # A job for another K may use the role at the same time: it may write below all keys of compiled code.
        *job_role(recipes[0], account, list(data.values()), compiler(recipes[0].name), ARTIFACTS_PREFIX),
        *(job(here, recipes[0], account) for here in compiled_code.values()),
    ]
    return in_order(wanted, ORDER)


def notes(recipe: Recipe) -> Iterator[str]:
    """Notes on compiling for the plan of an endpoint."""
    takes = f"which takes {_takes(recipe)}"
    command = f"`toolkit compile {recipe.path}`"
    if artifacts.compiles_ahead(recipe):
        twin = "; add `--baseline` to compile for the baseline too" if recipe.speculation else ""
        if recipe.engine_rules.compilation:
            yield f"Its containers need compiled code to start: {command} creates it, {takes}{twin}"
        else:
            yield (
                f"Its containers start with what {command} compiles before, in a job that takes as long as a start of "
                f"the endpoint{twin}. {'. '.join(_job_prices(recipe))}"
            )
    elif recipe.engine_rules.compilation:
        yield f"Every container compiles when it starts, {takes}; SageMaker allows 60 min at most"


def job_notes(recipe: Recipe) -> Iterator[str]:
    """Notes for a plan of `toolkit compile`."""
    yield from _job_prices(recipe)
    if aws(recipe).capacity_reservation:
        yield "The job does not use platform.capacity_reservation, which is for endpoints"
    longest = f"{LONGEST_SECONDS // 3600} h"
    yield f"A job takes {_takes(recipe)}, and is stopped after {longest}. Unverified: no such job has run on AWS yet"


def require_compiled(plan: Plan) -> None:
    """Raise NotCompiled if compiled code that the plan needs does not exist."""
    lacking = [action for action in plan.actions if action.kind == "Artifacts" and action.verb == "create"]
    if not lacking:
        return
    what = "; ".join(f"{action.name} {action.reason}" for action in lacking)
    minutes = max(action.request["ExpectedSeconds"] for action in lacking) / 60
    takes = f" (the longest job takes about {minutes:.0f} min, an estimate)" if minutes else ""
    twin = " --baseline" if len(plan.endpoints) > 1 else ""
    raise NotCompiled(
        f"compiled code is missing: {what}",
        hint=f"Run: toolkit compile {plan.recipe}{twin}{takes}. Or {_without(lacking[0].request['Parts']['engine'])}",
    )


def _without(engine: str) -> str:
    made = engine_rules(engine).artifacts
    return made.how_to_do_without if made else ""


def _job_prices(recipe: Recipe) -> Iterator[str]:
    """What each instance type costs on which a job runs. AWS asks the price of hosting for training too."""
    for instance_type in dict.fromkeys(here.platform.types[0] for here in needed([recipe]).values()):
        hourly = recipe.discounted(price.price_of(instance_type, recipe.region))
        if hourly is None:
            yield f"Price of the training instance unknown ({instance_type}); it is billed by the second"
        else:
            yield f"The job's {instance_type} costs {hourly:.2f} $/h, as for hosting, and is billed by the second"


def _takes(recipe: Recipe) -> str:
    minutes = artifacts.expected_seconds(recipe) // 60
    return f"about {minutes} min (an estimate)" if minutes else "an unknown time"


def job_data(recipe: Recipe, account: Account) -> list[ModelData]:
    """The recipe's models, and settings too long for a job's environment, whose limit is lower than a model's."""
    its_own = (COMPILED_CHANNEL, CONFIG_CHANNEL)
    data = [item for item in model_data(recipe, account) if item.channel not in its_own]
    if settings := config_file(recipe, LONGEST_VALUE):
        data.append(settings_data(json.loads(_in_job(json.dumps(settings))), recipe, account))
    return data


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
        "ResourceConfig": {"InstanceType": recipe.platform.types[0], "InstanceCount": 1},
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
        **(private if aws_network(recipe).private_registry else {}),
    }


def output(recipe: Recipe, address: str, **more: Any) -> dict[str, Any]:
    """OutputDataConfig, with the recipe's key."""
    key = aws(recipe).kms_key
    return {"S3OutputPath": address, **more, **({"KmsKeyId": key} if key else {})}


def channels(data: Sequence[ModelData]) -> dict[str, Any]:
    """The data as channels of a training job, which are copied to its disk."""
    inputs = [
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
    return {"InputDataConfig": inputs} if inputs else {}


def _environment(recipe: Recipe) -> dict[str, str]:
    """The environment of an endpoint's container, with a job's paths. Raises UsageError for too long values."""
    folder = {variable(recipe, "model"): f"{INPUT_DIR}/{TARGET_CHANNEL}"}
    model = {} if fetched_by_container(recipe, recipe.target) else folder
    serving = {name: _in_job(value) for name, value in environment(recipe, LONGEST_VALUE).items()}
    variables = {**serving, **model, **artifacts.variables(recipe, CHECKPOINTS_DIR, LONGEST_VALUE)}
    for name, value in variables.items():
        if len(value) > LONGEST_VALUE:
            message = f"{name} has {len(value)} characters, but a training job allows {LONGEST_VALUE}"
            raise UsageError(message, hint=f"Shorten it in engine.env of {recipe.path}.")
    return dict(sorted(variables.items()))


def _in_job(text: str) -> str:
    """A text with the paths of an endpoint's channels replaced by a job's."""
    return text.replace(CHANNELS_DIR, INPUT_DIR)
