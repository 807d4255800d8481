"""A recipe as the training jobs that compile for it, ahead of its endpoint. Pure but for reading models' digests.

SageMaker gives a container an hour to start, and compiling may take longer; of its jobs only those for training run on
Trainium. A job starts the recipe's own image with the recipe's own environment, on the same instance type, and leaves
what was compiled in S3. Nothing here was tried on AWS.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

from toolkit.catalog.registry import platform_rules
from toolkit.engines.arguments import CHANNELS_DIR, CONFIG_CHANNEL, config_file, environment, pulled, variable
from toolkit.errors import NotCompiled, UsageError
from toolkit.planning import artifacts, hosting, permissions, storage
from toolkit.planning.image import image
from toolkit.planning.names import bucket_name, compiler, tags
from toolkit.planning.plan import Action, Plan, Verb
from toolkit.planning.resources import KINDS, Account, Existing, Resource
from toolkit.planning.storage import ModelData
from toolkit.recipe.resolve import Recipe

# botocore 1.44.5, service model of SageMaker: TrainingEnvironmentValue.
LONGEST_VALUE = 512

JOB_UNDER_WAY = ("InProgress", "Stopping")
"""Statuses of a training job that will end by itself."""

AT_START = "then the container compiles when it starts, and SageMaker gives it 60 min for that at most."

_PROGRAM = "/opt/toolkit/compile"
_INPUT_DIR = "/opt/ml/input/data"
_OUTPUT_DIR = "/opt/ml/checkpoints"
_TARGET_CHANNEL = "target"
# The samples' manifests give an engine 4 h 45 min to compile and start.
_LONGEST_SECONDS = 5 * 3600
# With a key of 12 characters and an attempt's number it is at most 60; a job's name may have 63.
_NAME_CHARACTERS = 44


def desired(recipes: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
    """All that compiling for the recipes takes; the first is the recipe, the others its arms. Raises UsageError."""
    needed = _needed(recipes)
    data = {item.uri: item for here in needed.values() for item in _data(here, account)}
    weights = [item for item in data.values() if item.weights]
    found = [
        storage.bucket(account),
        *(item for here in needed.values() for item in image(here, account)),
        *(storage.use(item, recipes[0].name) for item in weights),
        *(item.weights for item in weights),
        *permissions.compile_role(recipes[0], account, list(data.values())),
        *(_job(here, recipes[0], account) for here in needed.values()),
    ]
    resources = {(item.kind, item.name): item for item in found if item}
    return tuple(sorted(resources.values(), key=lambda item: KINDS.index(item.kind)))


def compiled(recipe: Recipe, account: Account) -> list[Resource]:
    """What has to be compiled before the recipe's endpoint can be made."""
    if recipe.platform.name != "sagemaker":
        return []
    return [
        Resource(
            "Artifacts",
            key,
            {
                "Bucket": bucket_name(account),
                "Prefix": artifacts.prefix(key),
                "Key": key,
                "Parts": artifacts.parts(here),
                "ExpectedSeconds": artifacts.expected_seconds(here),
            },
        )
        for key, here in _needed([recipe]).items()
    ]


def notes(recipe: Recipe) -> Iterator[str]:
    """What the reader of the plan of an endpoint should know of compiling."""
    takes = f"which takes {_takes(recipe)}"
    if artifacts.compiles_ahead(recipe):
        twin = "; for its baseline too with `--baseline`" if recipe.speculation else ""
        yield f"Its containers start with compiled code only: `toolkit compile {recipe.path}` makes it, {takes}{twin}"
    elif recipe.engine.rules.compiles(recipe):
        yield f"Every container compiles when it starts, {takes}: SageMaker gives it 60 min for that at most"


def job_notes(recipe: Recipe) -> Iterator[str]:
    """What the reader of the plan of a compilation should know."""
    yield f"Price of training instances not known ({recipe.platform.instance_types[0]}); they are billed by the second"
    if recipe.platform.capacity_reservation:
        yield "The job does not use platform.capacity_reservation, which is an endpoint's"
    longest = f"{_LONGEST_SECONDS // 3600} h"
    yield f"A job takes {_takes(recipe)}, and is stopped after {longest}; none was tried on AWS so far"


def require_compilable(recipe: Recipe) -> None:
    """Raise UsageError for a recipe without errors that SageMaker has nothing to compile for."""
    if not recipe.engine.rules.compiles(recipe):
        raise UsageError(f"{recipe.engine.name} compiles nothing ahead", hint="Only engines for Trainium do.")
    if not recipe.engine.compile_ahead:
        hint = "Remove `engine: {compile: at-start}`."
        raise UsageError(f"{recipe.name} compiles when its containers start", hint=hint)
    if recipe.platform.name == "kubernetes":
        platform_rules("kubernetes").require_compilable(recipe)
    if recipe.platform.name != "sagemaker":
        raise UsageError(
            f"platform `{recipe.platform.name}` has no Trainium", hint="Write `platform: {name: sagemaker}`."
        )


def job_action(job: Resource, existing: Existing | None) -> Action:
    """What becomes of a job: none is made where one of the same key has compiled, or does; a name is used once.

    `existing` is the key's: whether all is there, jobs as (name, status, reason) with the newest first, and the parts
    of what comes nearest.
    """
    jobs = _jobs(existing)
    newest, status, _ = jobs[0] if jobs else ("", "", "")
    if existing and existing.state["Complete"]:
        return _as(job, "reuse", "is compiled already", newest or job.name)
    if status in JOB_UNDER_WAY:
        return _as(job, "update", "is compiling already, and is waited for", newest)
    taken = {name for name, _, _ in jobs}
    name = next(name for name in chain([job.name], (f"{job.name}-{n}" for n in count(2))) if name not in taken)
    parts = json.loads(job.request["Environment"].get(artifacts.PARTS, "{}"))
    return _as(job, "create", _missing(existing, parts), name)


def decide_artifacts(resource: Resource, existing: Existing) -> tuple[Verb, str]:
    """Whether compiled code is there. The plan of an endpoint cannot make it: `create` stands for its lack."""
    if existing.state["Complete"]:
        return "reuse", "is compiled"
    return "create", _missing(existing, resource.request["Parts"])


def require_compiled(plan: Plan) -> None:
    """Raise NotCompiled where code that the plan needs was not compiled."""
    lacking = [action for action in plan.actions if action.kind == "Artifacts" and action.verb == "create"]
    if not lacking:
        return
    what = "; ".join(f"{action.name} {action.reason}" for action in lacking)
    minutes = max(action.request["ExpectedSeconds"] for action in lacking) / 60
    takes = f" (the longest job takes about {minutes:.0f} min, an estimate)" if minutes else ""
    twin = " --baseline" if len(plan.endpoints) > 1 else ""
    raise NotCompiled(
        f"compiled code is missing: {what}",
        hint=f"Run: toolkit compile {plan.recipe}{twin}{takes}. Or write `engine: {{compile: at-start}}`: {AT_START}",
    )


def _takes(recipe: Recipe) -> str:
    minutes = artifacts.expected_seconds(recipe) // 60
    return f"about {minutes} min (an estimate)" if minutes else "a time that is not known"


def _as(job: Resource, verb: Verb, reason: str, name: str) -> Action:
    seconds = 0 if verb == "reuse" else job.expected_seconds
    return Action("TrainingJob", name, verb, reason, {**job.request, "TrainingJobName": name}, seconds)


def _jobs(existing: Existing | None) -> Sequence[tuple[str, str, str]]:
    return existing.state["Jobs"] if existing else ()


def _missing(existing: Existing | None, wanted: Mapping[str, str]) -> str:
    """Why there is no compiled code: what became of the newest job, or what the nearest code was compiled for."""
    if jobs := _jobs(existing):
        name, status, why = jobs[0]
        told = {
            "InProgress": "compiles it",
            "Stopping": "is being stopped",
            "Completed": "compiled it, and it was removed since",
        }
        return f"does not exist: {name} {told.get(status) or f'{status.lower()}: {why}'}"
    nearest: Mapping[str, str] = (existing.state["Nearest"] if existing else None) or {}
    if not nearest or not wanted:
        return "does not exist"
    differ = [name for name in sorted({*nearest, *wanted}) if nearest.get(name) != wanted.get(name)]
    said = ", ".join(f"{name} {nearest.get(name, 'none')}, not {wanted.get(name, 'none')}" for name in differ)
    return f"does not exist; what there is was compiled for {said}"


def _needed(recipes: Sequence[Recipe]) -> dict[str, Recipe]:
    """By key, each arm as it runs on an instance type."""
    return {
        artifacts.key(here): here
        for recipe in recipes
        if artifacts.compiles_ahead(recipe)
        for arm in hosting.arms(recipe)
        for here in map(arm.on, arm.platform.instance_types)
    }


def _data(recipe: Recipe, account: Account) -> list[ModelData]:
    """The recipe's models, and settings that are too long for a job's environment, which takes less than a model's."""
    its_own = (storage.COMPILED_CHANNEL, CONFIG_CHANNEL)
    found = [item for item in storage.model_data(recipe, account) if item.channel not in its_own]
    if settings := config_file(recipe, LONGEST_VALUE):
        found.append(storage.settings_data(json.loads(_in_job(json.dumps(settings))), recipe, account))
    return found


def _job(recipe: Recipe, owner: Recipe, account: Account) -> Resource:
    key = artifacts.key(recipe)
    name = f"{recipe.name[:_NAME_CHARACTERS].rstrip('-')}-{key}"
    place = f"s3://{bucket_name(account)}/{artifacts.prefix(key)}"
    uri = hosting.image_uri(recipe, account)
    algorithm: dict[str, Any] = {
        "TrainingImage": account.digests.get(uri, uri),
        "TrainingInputMode": "File",
        "ContainerEntrypoint": [_PROGRAM],
    }
    if recipe.network.private_registry:
        algorithm["TrainingImageConfig"] = {"TrainingRepositoryAccessMode": "Vpc"}
    request = {
        "TrainingJobName": name,
        "AlgorithmSpecification": algorithm,
        "RoleArn": permissions.role_arn(owner, account, compiler(owner.name)),
        **_channels(_data(recipe, account)),
        # Nothing is put out but what SageMaker itself writes there of a job.
        "OutputDataConfig": {
            "S3OutputPath": f"{place}jobs",
            **({"KmsKeyId": recipe.platform.kms_key} if recipe.platform.kms_key else {}),
        },
        # Kept in step with S3 while the job runs: a second job goes on where the first was stopped.
        "CheckpointConfig": {"S3Uri": place, "LocalPath": _OUTPUT_DIR},
        "ResourceConfig": {"InstanceType": recipe.platform.instance_types[0], "InstanceCount": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": _LONGEST_SECONDS},
        "Environment": _environment(recipe),
        **hosting.network(recipe),
        "Tags": tags(owner),
    }
    return Resource("TrainingJob", name, request, expected_seconds=artifacts.expected_seconds(recipe))


def _channels(data: Sequence[ModelData]) -> dict[str, Any]:
    channels = [
        {
            "ChannelName": item.channel or _TARGET_CHANNEL,
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
    return {"InputDataConfig": channels} if channels else {}


def _environment(recipe: Recipe) -> dict[str, str]:
    """As an endpoint's container has it, but for where its files are. Raises UsageError for what does not fit."""
    model = {} if pulled(recipe, recipe.target) else {variable(recipe, "model"): f"{_INPUT_DIR}/{_TARGET_CHANNEL}"}
    there = {name: _in_job(value) for name, value in environment(recipe, LONGEST_VALUE).items()}
    found = {**there, **model, **artifacts.variables(recipe, _OUTPUT_DIR, LONGEST_VALUE)}
    for name, value in found.items():
        if len(value) > LONGEST_VALUE:
            message = f"{name} has {len(value)} characters, a training job's environment takes {LONGEST_VALUE}"
            raise UsageError(message, hint=f"Shorten it in engine.env of {recipe.path}.")
    return dict(sorted(found.items()))


def _in_job(text: str) -> str:
    """Paths of an endpoint's channels as those of a job's, whose names are the same."""
    return text.replace(CHANNELS_DIR, _INPUT_DIR)
