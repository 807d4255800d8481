"""Training jobs that compile for Trainium, and the compiled code in S3.

SageMaker allows a container an hour to start, and compiling may take longer. Of its jobs, only training jobs run on
Trainium. A job runs the recipe's image with the recipe's environment on the same instance type. Its name has the key of
the compiled code. SageMaker copies a job's files to S3 while it runs, in an undocumented order, so files only count
when no job for that key is running. Unverified: nothing here was run on AWS.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from toolkit import documents
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
from toolkit.planning.names import ARTIFACTS_PREFIX, ENDPOINT_TAG
from toolkit.planning.plan import Verb
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.planning.rules import Decision
from toolkit.platforms.image import by_digest
from toolkit.platforms.sagemaker.rules.arms import arms
from toolkit.platforms.sagemaker.rules.aws_errors import is_denied, unless_missing
from toolkit.platforms.sagemaker.rules.kinds.base import AwsKind, Look, Work, sagemaker_tags
from toolkit.platforms.sagemaker.rules.kinds.image import image_uri
from toolkit.platforms.sagemaker.rules.kinds.model import network, read_models
from toolkit.platforms.sagemaker.rules.kinds.role import role_arn
from toolkit.platforms.sagemaker.rules.model_data import COMPILED_CHANNEL, ModelData, model_data, settings_data
from toolkit.platforms.sagemaker.rules.names import bucket_name, compiler, tags
from toolkit.recipe.resolve import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.deployment import Deployment

# botocore 1.44.5, service model of SageMaker: TrainingEnvironmentValue.
LONGEST_VALUE = 512
# The manifests of AWS's samples allow an engine 4 h 45 min to compile and start.
LONGEST_SECONDS = 5 * 3600

_UNDER_WAY = ("InProgress", "Stopping")
_ENDED_BADLY = ("Failed", "Stopped")
_PROGRAM = "/opt/toolkit/compile"
_INPUT_DIR = "/opt/ml/input/data"
_OUTPUT_DIR = "/opt/ml/checkpoints"
_TARGET_CHANNEL = "target"
# With a key of 12 characters and an attempt number, a name has at most 60 of the 63 allowed characters.
_NAME_CHARACTERS = 44

_LARGEST_RECORD = 1024**2


@dataclass(frozen=True)
class _Record:
    """What a job wrote beside its compiled code."""

    key: str
    parts: dict[str, str]


class TrainingJobKind(AwsKind):
    """Not created if a job of the same key has compiled already, or is compiling. A name is never used twice.

    The state is that of the key: whether its compiled code is complete, its jobs as (name, status, reason), newest
    first, and the parts of the most similar compiled code.
    """

    kind = "TrainingJob"
    seen_when_new = True

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        jobs = _jobs(existing)
        newest, status, _ = jobs[0] if jobs else ("", "", "")
        if existing and existing.state["Complete"]:
            return _named(resource, "reuse", "is already compiled", newest or resource.name)
        if status in _UNDER_WAY:
            return _named(resource, "update", "is already compiling; waits for it", newest)
        taken = {name for name, _, _ in jobs}
        names = chain([resource.name], (f"{resource.name}-{n}" for n in count(2)))
        name = next(name for name in names if name not in taken)
        parts = json.loads(resource.request["Environment"].get(artifacts.PARTS, "{}"))
        return _named(resource, "create", _missing(existing, parts), name)

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        return {"TrainingJobName": existing.name}

    def observe(self, look: Look) -> Iterator[Existing]:
        """The desired jobs, or if nothing is desired, jobs that are running for the endpoints."""
        if not look.desired:
            for endpoint in look.endpoints:
                yield from _running(look.clients, endpoint)
        for item in look.wanted(self.kind):
            environment = item.request["Environment"]
            parts = json.loads(environment.get(artifacts.PARTS, "{}"))
            yield Existing(self.kind, item.name, True, (), _state(look, environment[artifacts.KEY], parts))

    def create(self, work: Work, request: Any) -> None:
        work.clients.sagemaker.create_training_job(**request)

    def update(self, work: Work, request: Any) -> None:
        """Does nothing: the job runs already."""

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        """Stop it; it remains in SageMaker's list."""
        clients.sagemaker.stop_training_job(TrainingJobName=name)

    def tags(self, clients: Clients, name: str) -> Mapping[str, str]:
        found = clients.sagemaker.describe_training_job(TrainingJobName=name)
        return sagemaker_tags(clients, found["TrainingJobArn"])

    def is_going(self, clients: Clients, name: str) -> bool:
        """Whether it has ended, or is stopping."""
        return clients.sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] != "InProgress"


class ArtifactsKind(AwsKind):
    """Compiled code, which only training jobs create: in the plan of an endpoint, `create` means that it is missing."""

    kind = "Artifacts"
    is_kept = True
    seen_when_new = True

    def desired(self, deployment: Deployment) -> list[Resource]:
        return compiled(deployment.recipe, deployment.account) if self.capabilities.compiles else []

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing and existing.state["Complete"]:
            return Decision("reuse", "is compiled")
        return Decision("create", _missing(existing, resource.request["Parts"]))

    def kept_note(self, existing: Existing) -> str:
        if not self.capabilities.outlasts:
            return ""
        address = shlex.quote(f"s3://{existing.state['Bucket']}/{existing.state['Prefix']}")
        return (
            f"compiled code in {address}, so that another deployment need not compile, about $0.023 per GB and month "
            f"(us-east-1, unverified). Remove it: aws s3 rm --recursive {address}"
        )

    def observe(self, look: Look) -> Iterator[Existing]:
        """The compiled code of existing models, and the state of desired compiled code."""
        bucket = bucket_name(look.account)
        for name in look.names if look.endpoints else ():
            for model in look.once(read_models, name):
                for prefix in model.state["Prefixes"]:
                    if prefix.startswith(ARTIFACTS_PREFIX):
                        users = look.components(name) or model.endpoints
                        state = {"Bucket": bucket, "Prefix": prefix}
                        yield Existing(self.kind, prefix.split("/")[1], True, users, state)
        for item in look.wanted(self.kind):
            yield Existing(self.kind, item.name, True, (), _state(look, item.request["Key"], item.request["Parts"]))


def compiled(recipe: Recipe, account: Account) -> list[Resource]:
    """The compiled code that the recipe's endpoint needs."""
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
        for key, here in needed([recipe]).items()
    ]


def needed(recipes: Sequence[Recipe]) -> dict[str, Recipe]:
    """Each arm on each of its instance types, by the key of its compiled code."""
    return {
        artifacts.key(here): here
        for recipe in recipes
        if artifacts.compiles_ahead(recipe)
        for arm in arms(recipe)
        for here in map(arm.on, arm.platform.instance_types)
    }


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
    algorithm: dict[str, Any] = {
        "TrainingImage": by_digest(uri, recipe, account),
        "TrainingInputMode": "File",
        "ContainerEntrypoint": [_PROGRAM],
    }
    if recipe.network.private_registry:
        algorithm["TrainingImageConfig"] = {"TrainingRepositoryAccessMode": "Vpc"}
    request = {
        "TrainingJobName": name,
        "AlgorithmSpecification": algorithm,
        "RoleArn": role_arn(owner, account, compiler(owner.name)),
        **_channels(job_data(recipe, account)),
        # Only SageMaker itself writes job output here.
        "OutputDataConfig": {
            "S3OutputPath": f"{s3_prefix}jobs",
            **({"KmsKeyId": recipe.platform.kms_key} if recipe.platform.kms_key else {}),
        },
        # Synchronized with S3 during the job, so that a second job resumes where the first was stopped.
        "CheckpointConfig": {"S3Uri": s3_prefix, "LocalPath": _OUTPUT_DIR},
        "ResourceConfig": {"InstanceType": recipe.platform.instance_types[0], "InstanceCount": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": LONGEST_SECONDS},
        "Environment": _environment(recipe),
        **network(recipe),
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
    """The environment of an endpoint's container, with a job's paths. Raises UsageError for too long values."""
    folder = {variable(recipe, "model"): f"{_INPUT_DIR}/{_TARGET_CHANNEL}"}
    model = {} if fetched_by_container(recipe, recipe.target) else folder
    serving = {name: _in_job(value) for name, value in environment(recipe, LONGEST_VALUE).items()}
    found = {**serving, **model, **artifacts.variables(recipe, _OUTPUT_DIR, LONGEST_VALUE)}
    for name, value in found.items():
        if len(value) > LONGEST_VALUE:
            message = f"{name} has {len(value)} characters, but a training job allows {LONGEST_VALUE}"
            raise UsageError(message, hint=f"Shorten it in engine.env of {recipe.path}.")
    return dict(sorted(found.items()))


def _in_job(text: str) -> str:
    """A text with the paths of an endpoint's channels replaced by a job's."""
    return text.replace(CHANNELS_DIR, _INPUT_DIR)


def _named(job: Resource, verb: Verb, reason: str, name: str) -> Decision:
    seconds = 0 if verb == "reuse" else job.expected_seconds
    return Decision(verb, reason, seconds, name, {**job.request, "TrainingJobName": name})


def _jobs(existing: Existing | None) -> Sequence[tuple[str, str, str]]:
    return existing.state["Jobs"] if existing else ()


def _missing(existing: Existing | None, wanted: Mapping[str, str]) -> str:
    """Why compiled code is missing: the result of the newest job, or how the most similar code differs."""
    if jobs := _jobs(existing):
        name, status, why = jobs[0]
        words = {
            "InProgress": "compiles it",
            "Stopping": "is being stopped",
            "Completed": "compiled it, but it was removed since then",
        }
        return f"does not exist: {name} {words.get(status) or f'{status.lower()}: {why}'}"
    nearest: Mapping[str, str] = (existing.state["Nearest"] if existing else None) or {}
    if not nearest or not wanted:
        return "does not exist"
    differ = [name for name in sorted({*nearest, *wanted}) if nearest.get(name) != wanted.get(name)]
    said = ", ".join(f"{name} {nearest.get(name, 'none')}, not {wanted.get(name, 'none')}" for name in differ)
    return f"does not exist; the most similar code was compiled for {said}"


def _state(look: Look, key: str, parts: Mapping[str, str]) -> dict[str, Any]:
    clients, bucket = look.clients, bucket_name(look.account)
    jobs = [
        [item["TrainingJobName"], item["TrainingJobStatus"], _reason(clients, item)]
        for item in _listed(clients, NameContains=key)
    ]
    is_under_way = any(its_status in _UNDER_WAY for _, its_status, _ in jobs)
    is_complete = _record(clients, bucket, key) is not None
    nearest = None if is_complete or jobs else _nearest(clients, bucket, parts)
    return {"Complete": is_complete and not is_under_way, "Jobs": jobs, "Nearest": nearest}


def _listed(clients: Clients, **only: Any) -> Iterator[Mapping[str, Any]]:
    """The toolkit's jobs, newest first."""
    newest_first: Any = {"SortBy": "CreationTime", "SortOrder": "Descending", **only}
    for page in clients.sagemaker.get_paginator("list_training_jobs").paginate(**newest_first):
        for item in page["TrainingJobSummaries"]:
            if ENDPOINT_TAG in sagemaker_tags(clients, item["TrainingJobArn"]):
                yield item


def _running(clients: Clients, endpoint: str) -> list[Existing]:
    """Running jobs of an endpoint; empty if the caller may not list jobs and so has started none."""
    try:
        jobs = list(_listed(clients, NameContains=endpoint, StatusEquals="InProgress"))
    except clients.refusal as error:
        if is_denied(error):
            return []
        raise
    owners = {item["TrainingJobName"]: sagemaker_tags(clients, item["TrainingJobArn"])[ENDPOINT_TAG] for item in jobs}
    return [Existing("TrainingJob", name, True, (endpoint,), {}) for name, owner in owners.items() if owner == endpoint]


def _reason(clients: Clients, job: Mapping[str, Any]) -> str:
    if job["TrainingJobStatus"] not in _ENDED_BADLY:
        return ""
    answer = clients.sagemaker.describe_training_job(TrainingJobName=job["TrainingJobName"])
    return answer.get("FailureReason") or answer["SecondaryStatus"]


def _record(clients: Clients, bucket: str, key: str) -> dict[str, str] | None:
    """The parts in the record of that key; None without a valid record."""
    path = f"{artifacts.prefix(key)}{artifacts.RECORD}"
    answer = unless_missing(clients, lambda: clients.s3.get_object(Bucket=bucket, Key=path))
    if answer is None:
        return None
    try:
        record = documents.parse(_Record, answer["Body"].read(_LARGEST_RECORD))
    except ValueError:
        return None
    return record.parts if record.key == key else None


def _nearest(clients: Clients, bucket: str, parts: Mapping[str, str]) -> dict[str, str] | None:
    """The parts of the most similar code compiled for the same target, if any."""
    found = [record for key in _keys(clients, bucket) if (record := _record(clients, bucket, key))]
    same = [record for record in found if _target(record) == _target(parts)]
    return min(same, key=lambda record: len(record.items() ^ parts.items()), default=None)


def _target(parts: Mapping[str, str]) -> str:
    return parts.get("target", "").partition("@")[0]


def _keys(clients: Clients, bucket: str) -> list[str]:
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=ARTIFACTS_PREFIX, Delimiter="/")
    found = unless_missing(clients, lambda: [item for page in pages for item in page.get("CommonPrefixes", [])])
    return [item["Prefix"].split("/")[1] for item in found or ()]
