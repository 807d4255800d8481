"""Training jobs that compile, and what they left in S3. A job's name has the key of what it compiles.

SageMaker takes a job's files to S3 while it runs, in no order that is documented: what is there counts once no job of
that key is under way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from botocore.exceptions import ClientError

from toolkit.apply.training import TrainingJob
from toolkit.planning import artifacts
from toolkit.planning.compilation import JOB_UNDER_WAY
from toolkit.planning.names import ARTIFACTS_PREFIX, ENDPOINT_TAG, bucket_name
from toolkit.planning.resources import Account, Existing, Resource
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import is_denied, is_missing
from toolkit.platforms.sagemaker.tags import sagemaker_tags

if TYPE_CHECKING:
    from types_boto3_sagemaker.type_defs import ListTrainingJobsRequestPaginateTypeDef, TrainingJobSummaryTypeDef

_ENDED_BADLY = ("Failed", "Stopped")


def observe(
    clients: Clients, account: Account, desired: Sequence[Resource], endpoints: Sequence[str]
) -> Iterator[Existing]:
    """What is known of the jobs and artifacts that are wanted; where nothing is, jobs that run for the endpoints."""
    if not desired:
        for endpoint in endpoints:
            yield from _running(clients, endpoint)
    for item in desired:
        if item.kind in ("TrainingJob", "Artifacts"):
            yield Existing(item.kind, item.name, True, (), _state(clients, bucket_name(account), *_wanted(item)))


def served(account: Account, existing: Sequence[Existing]) -> list[Existing]:
    """The artifacts that models start with, which stay when their endpoint goes."""
    bucket = bucket_name(account)
    return [
        Existing("Artifacts", prefix.split("/")[1], True, item.endpoints, {"Bucket": bucket, "Prefix": prefix})
        for item in existing
        if item.kind == "Model"
        for prefix in item.state["Prefixes"]
        if prefix.startswith(ARTIFACTS_PREFIX)
    ]


def status(clients: Clients, name: str) -> TrainingJob:
    """How far a job is."""
    answer = clients.sagemaker.describe_training_job(TrainingJobName=name)
    created = answer["CreationTime"].timestamp()
    changes = answer.get("SecondaryStatusTransitions", [])
    return TrainingJob(
        name,
        answer["TrainingJobStatus"],
        answer["SecondaryStatus"],
        answer.get("FailureReason", ""),
        created,
        changes[-1]["StartTime"].timestamp() if changes else created,
    )


def _wanted(item: Resource) -> tuple[str, Mapping[str, str]]:
    """The key of what is compiled, and its parts, as far as they are known."""
    if item.kind == "Artifacts":
        return item.request["Key"], item.request["Parts"]
    environment = item.request["Environment"]
    return environment[artifacts.KEY], json.loads(environment.get(artifacts.PARTS, "{}"))


def _state(clients: Clients, bucket: str, key: str, parts: Mapping[str, str]) -> dict[str, Any]:
    jobs = [
        [item["TrainingJobName"], item["TrainingJobStatus"], _reason(clients, item)]
        for item in _jobs(clients, NameContains=key)
    ]
    is_under_way = any(its_status in JOB_UNDER_WAY for _, its_status, _ in jobs)
    is_there = _record(clients, bucket, key) is not None
    nearest = None if is_there or jobs else _nearest(clients, bucket, parts)
    return {"Complete": is_there and not is_under_way, "Jobs": jobs, "Nearest": nearest}


def _jobs(
    clients: Clients, **only: Unpack[ListTrainingJobsRequestPaginateTypeDef]
) -> Iterator[TrainingJobSummaryTypeDef]:
    """The toolkit's own, the newest first."""
    newest_first: ListTrainingJobsRequestPaginateTypeDef = {"SortBy": "CreationTime", "SortOrder": "Descending", **only}
    for page in clients.sagemaker.get_paginator("list_training_jobs").paginate(**newest_first):
        for item in page["TrainingJobSummaries"]:
            if ENDPOINT_TAG in sagemaker_tags(clients, item["TrainingJobArn"]):
                yield item


def _running(clients: Clients, endpoint: str) -> list[Existing]:
    """None for a caller who may not list jobs, and so has started none."""
    try:
        jobs = list(_jobs(clients, NameContains=endpoint, StatusEquals="InProgress"))
    except ClientError as error:
        if is_denied(error):
            return []
        raise
    owners = {item["TrainingJobName"]: sagemaker_tags(clients, item["TrainingJobArn"])[ENDPOINT_TAG] for item in jobs}
    return [Existing("TrainingJob", name, True, (endpoint,), {}) for name, owner in owners.items() if owner == endpoint]


def _reason(clients: Clients, job: TrainingJobSummaryTypeDef) -> str:
    if job["TrainingJobStatus"] not in _ENDED_BADLY:
        return ""
    answer = clients.sagemaker.describe_training_job(TrainingJobName=job["TrainingJobName"])
    return answer.get("FailureReason") or answer["SecondaryStatus"]


def _record(clients: Clients, bucket: str, key: str) -> dict[str, str] | None:
    """The parts that the record of that key says, None without a record, or with another one's."""
    try:
        answer = clients.s3.get_object(Bucket=bucket, Key=f"{artifacts.prefix(key)}{artifacts.RECORD}")
        record = json.loads(answer["Body"].read())
        parts: dict[str, str] = record["parts"]
        return parts if record["key"] == key else None
    except ClientError as error:
        if is_missing(error):
            return None
        raise
    except (ValueError, KeyError, TypeError):
        return None


def _nearest(clients: Clients, bucket: str, parts: Mapping[str, str]) -> dict[str, str] | None:
    """The parts of what was compiled of the same target with the fewest differences; None without any."""
    found = [record for key in _keys(clients, bucket) if (record := _record(clients, bucket, key))]
    same = [record for record in found if _model(record) == _model(parts)]
    return min(same, key=lambda record: len(record.items() ^ parts.items()), default=None)


def _model(parts: Mapping[str, str]) -> str:
    return parts.get("target", "").partition("@")[0]


def _keys(clients: Clients, bucket: str) -> list[str]:
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=ARTIFACTS_PREFIX, Delimiter="/")
    try:
        return [item["Prefix"].split("/")[1] for page in pages for item in page.get("CommonPrefixes", [])]
    except ClientError as error:
        if is_missing(error):
            return []
        raise
