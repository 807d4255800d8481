"""SageMaker's training jobs, those that compile for Trainium and those that train a head; and compiled code in S3.

Jobs have the key of their result in their names. A name is never used twice, so the next attempt has another one; it
goes on from the checkpoint in S3, whose address has the key alone. SageMaker copies a job's files to S3 while it runs,
in an undocumented order, so compiled code only counts when no job for its key is running. Unverified: nothing here was
run on AWS.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from toolkit import documents
from toolkit.planning import artifacts
from toolkit.planning.kinds import Decision
from toolkit.planning.names import ARTIFACTS_PREFIX, ENDPOINT_TAG
from toolkit.planning.plan import Verb
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.sagemaker.aws_errors import is_denied, unless, unless_missing
from toolkit.platforms.sagemaker.kinds.base import ApiCall, AwsKind, Look, SageMakerKind, Work, owner_of, sagemaker_tags
from toolkit.platforms.sagemaker.kinds.model import read_models
from toolkit.platforms.sagemaker.rules.arms import arms
from toolkit.platforms.sagemaker.rules.names import bucket_name
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

UNDER_WAY = ("InProgress", "Stopping")
_ENDED_BADLY = ("Failed", "Stopped")
_LARGEST_RECORD = 1024**2


@dataclass(frozen=True)
class _Record:
    """What a job wrote beside its compiled code."""

    key: str
    parts: dict[str, str]


class ArtifactsKind(AwsKind):
    """Compiled code, which only training jobs create: in the plan of an endpoint, `create` means that it is missing."""

    kind = "Artifacts"
    is_kept = True
    seen_when_new = True

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [
            Resource(
                self.kind,
                key,
                {
                    "Bucket": bucket_name(deployment.account),
                    "Prefix": artifacts.prefix(key),
                    "Key": key,
                    "Parts": artifacts.parts(here),
                    "ExpectedSeconds": artifacts.expected_seconds(here),
                },
            )
            for key, here in (needed([deployment.recipe]) if self.on_aws else {}).items()
        ]

    @property
    def kept_as(self) -> str:
        return "compiled code" if self.on_aws else ""

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing and existing.state["Complete"]:
            return Decision("reuse", "is compiled")
        return Decision("create", missing(existing, resource.request["Parts"]))

    def kept_note(self, existing: Existing) -> str:
        if not self.on_aws:
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
            yield Existing(
                self.kind, item.name, True, (), compiled_state(look, item.request["Key"], item.request["Parts"])
            )


def needed(recipes: Sequence[Recipe]) -> dict[str, Recipe]:
    """Each arm by the key of its compiled code, on the first of its instance types that has this key."""
    found: dict[str, Recipe] = {}
    for recipe in filter(artifacts.compiles_ahead, recipes):
        for arm in arms(recipe):
            for here in map(arm.on, arm.platform.types):
                found.setdefault(artifacts.key(here), here)
    return found


def jobs_of(existing: Existing | None) -> Sequence[tuple[str, str, str]]:
    return existing.state["Jobs"] if existing else ()


def missing(existing: Existing | None, wanted: Mapping[str, str]) -> str:
    """Why compiled code is missing: the result of the newest job, or how the most similar code differs."""
    if jobs := jobs_of(existing):
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


def compiled_state(look: Look, key: str, parts: Mapping[str, str]) -> dict[str, Any]:
    """Whether the compiled code of a key is complete, its jobs, and the parts of the most similar code."""
    clients, bucket = look.clients, bucket_name(look.account)
    jobs = jobs_named(clients, key)
    is_under_way = any(its_status in UNDER_WAY for _, its_status, _ in jobs)
    is_complete = _record(clients, bucket, key) is not None
    nearest = None if is_complete or jobs else _nearest(clients, bucket, parts)
    return {"Complete": is_complete and not is_under_way, "Jobs": jobs, "Nearest": nearest}


def jobs_named(clients: Clients, part: str) -> list[list[str]]:
    """The toolkit's jobs with that in their names, newest first: name, status, and why one ended badly."""
    return [
        [item["TrainingJobName"], item["TrainingJobStatus"], _reason(clients, item)]
        for item in listed(clients, NameContains=part)
    ]


def listed(clients: Clients, **only: Any) -> Iterator[Mapping[str, Any]]:
    """The toolkit's jobs, newest first, with the filters of ListTrainingJobs."""
    newest_first: Any = {"SortBy": "CreationTime", "SortOrder": "Descending", **only}
    for page in clients.sagemaker.get_paginator("list_training_jobs").paginate(**newest_first):
        for item in page["TrainingJobSummaries"]:
            if ENDPOINT_TAG in sagemaker_tags(clients, item["TrainingJobArn"]):
                yield item


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
    records = [record for key in _keys(clients, bucket) if (record := _record(clients, bucket, key))]
    same = [record for record in records if _target(record) == _target(parts)]
    return min(same, key=lambda record: len(record.items() ^ parts.items()), default=None)


def _target(parts: Mapping[str, str]) -> str:
    return parts.get("target", "").partition("@")[0]


def _keys(clients: Clients, bucket: str) -> list[str]:
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=ARTIFACTS_PREFIX, Delimiter="/")
    prefixes = unless_missing(clients, lambda: [item for page in pages for item in page.get("CommonPrefixes", [])])
    return [item["Prefix"].split("/")[1] for item in prefixes or ()]


class TrainingJobKind(SageMakerKind):
    """Not created if a job of the same key has completed already, or is under way.

    The state is that of the key: whether its result is complete, its jobs as (name, status, reason), newest first, and
    of compiled code the parts of the most similar one.
    """

    kind = "TrainingJob"
    call = "training_job"
    is_job = True
    seen_when_new = True

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        jobs = jobs_of(existing)
        newest, status, _ = jobs[0] if jobs else ("", "", "")
        done, doing = ("compiled", "compiling") if _compiles(resource) else ("trained", "training")
        if existing and existing.state["Complete"]:
            completed = next((name for name, status, _ in jobs if status == "Completed"), newest)
            return _decide(resource, "reuse", f"is already {done}", completed or resource.name)
        if status in UNDER_WAY:
            return _decide(resource, "update", f"is already {doing}; waits for it", newest)
        taken = {name for name, _, _ in jobs}
        names = chain([resource.name], (f"{resource.name}-{n}" for n in count(2)))
        name = next(name for name in names if name not in taken)
        reason = missing(existing, _parts(resource)) if _compiles(resource) else _why_again(newest, status, existing)
        return _decide(resource, "create", reason, name)

    def observe(self, look: Look) -> Iterator[Existing]:
        """The desired jobs, or if nothing is desired, jobs that are running for the endpoints."""
        if not look.desired:
            for endpoint in look.endpoints:
                yield from _running(look.clients, endpoint)
        for item in look.wanted(self.kind):
            yield Existing(self.kind, item.name, True, (), _state(look, item))

    def updating(self, request: Any, existing: Existing | None) -> tuple[ApiCall, ...]:
        """None: the job runs already."""
        return ()

    def update(self, work: Work, request: Any) -> None:
        """Does nothing."""

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        """Stop it; it remains in SageMaker's list."""
        return (ApiCall("sagemaker", "StopTrainingJob", {"TrainingJobName": name}),)

    def is_going(self, clients: Clients, name: str) -> bool:
        """Whether it has ended, or is stopping."""
        return bool(self.describe(clients, name)["TrainingJobStatus"] != "InProgress")


def _compiles(resource: Resource) -> bool:
    return artifacts.KEY in resource.request.get("Environment", {})


def _parts(resource: Resource) -> Mapping[str, str]:
    parts: dict[str, str] = json.loads(resource.request["Environment"].get(artifacts.PARTS, "{}"))
    return parts


def _state(look: Look, resource: Resource) -> dict[str, Any]:
    if _compiles(resource):
        return compiled_state(look, resource.request["Environment"][artifacts.KEY], _parts(resource))
    jobs = jobs_named(look.clients, resource.name)
    return {"Complete": any(status == "Completed" for _, status, _ in jobs), "Jobs": jobs}


def _why_again(newest: str, status: str, existing: Existing | None) -> str:
    """Why a head is to be trained: nobody has, or the newest job ended before it was done."""
    if not newest:
        return "is not trained yet"
    why = jobs_of(existing)[0][2]
    return f"{newest} {'failed' if status == 'Failed' else 'was stopped'}: {why}; goes on from its last checkpoint"


def _decide(job: Resource, verb: Verb, reason: str, name: str) -> Decision:
    seconds = 0 if verb == "reuse" else job.expected_seconds
    return Decision(verb, reason, seconds, name, {**job.request, "TrainingJobName": name})


def _running(clients: Clients, endpoint: str) -> list[Existing]:
    """Running jobs of an endpoint; empty if the caller may not list jobs and so has started none."""
    running = listed(clients, NameContains=endpoint, StatusEquals="InProgress")
    return [
        Existing("TrainingJob", item["TrainingJobName"], True, (endpoint,), {})
        for item in unless(clients, lambda: list(running), is_denied) or ()
        if owner_of(clients, item["TrainingJobArn"]) == endpoint
    ]
