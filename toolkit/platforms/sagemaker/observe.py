"""Read what exists on AWS, whose it is, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.apply.training import TrainingJob
from toolkit.apply.waiter import EndpointStatus
from toolkit.planning.resources import Existing, Observed
from toolkit.platforms.sagemaker.aws_errors import is_unknown_operation, unless_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.kinds.base import AwsKind, Look

if TYPE_CHECKING:
    from types_boto3_logs.type_defs import GetLogEventsResponseTypeDef, LogStreamTypeDef, OutputLogEventTypeDef
    from types_boto3_sagemaker.type_defs import DescribeEndpointConfigOutputTypeDef, DescribeEndpointOutputTypeDef

# 30 minutes: what users report of InsufficientInstanceCapacity. No log: aws/deep-learning-containers#6187.
NO_LOG_REASON = (
    "SageMaker looks for a free instance (and gives up after about 30), or the image does not start on that type, "
    "which leaves no log"
)

_MOST_EVENTS = 10_000
"""GetLogEvents gives at most so many."""
_LATE_SECONDS = 3600.0


def observe(look: Look, kinds: Sequence[AwsKind]) -> Observed:
    """What exists of what is desired, and all that is tagged or marked for one of the endpoints. Reads only.

    An endpoint that serves one of them as an inference component belongs to it too. Without endpoints all
    are new, and kinds are skipped whose API reports an existing resource when it is created: see execute.create.
    Kinds whose service lacks an operation are skipped too, and the result says so.
    """
    seen = [kind for kind in kinds if look.endpoints or kind.seen_when_new]
    existing: list[Existing] = []
    unseen: list[str] = []
    for kind in seen:
        try:
            existing += kind.observe(look)
        except ClientError as error:
            if not is_unknown_operation(error):
                raise
            unseen.append(f"{kind.kind}: not looked for, because the service has no {error.operation_name}")
    return Observed(tuple({(item.kind, item.name): item for item in existing}.values()), tuple(unseen))


def endpoint_status(
    endpoint: str, status: str, config: str, failure_reason: str = "", began: float = 0.0
) -> EndpointStatus:
    """What SageMaker says of an endpoint or component, and what a user should know of one in that status."""
    return EndpointStatus(endpoint, status, config, failure_reason, began, NO_LOG_REASON, _hopeless(endpoint, status))


def _hopeless(endpoint: str, status: str) -> str:
    meanwhile = "; the old configuration continues to serve" if status == "Updating" else ", and bills"
    return (
        f"It is still {status}{meanwhile}: its container is started again until the time for the health check is up, "
        "and before that SageMaker lets nobody change or delete it. `toolkit deploy` of the corrected recipe and "
        f"`toolkit destroy {endpoint}` wait for it."
    )


def log_streams(clients: Clients, group: str, since: float) -> list[str]:
    """Streams of a log group that began at that second or later, oldest first; none when there is no group yet.

    A group keeps the stream of each container that ever ran. So those that were written to last are asked for first,
    and no more once some have begun since then and the others end before: CloudWatch Logs may say up to an hour late
    when a stream was last written to (DescribeLogStreams, `orderBy`).
    """
    pages = clients.logs.get_paginator("describe_log_streams").paginate(
        logGroupName=group, orderBy="LastEventTime", descending=True
    )

    def read() -> list[LogStreamTypeDef]:
        begun: list[LogStreamTypeDef] = []
        for page in pages:
            begun += [stream for stream in page["logStreams"] if stream["creationTime"] / 1000 >= since]
            written = page["logStreams"][-1].get("lastEventTimestamp") if page["logStreams"] else None
            if begun and written is not None and written / 1000 < since - _LATE_SECONDS:
                break
        return begun

    streams = sorted(unless_missing(clients, read) or [], key=lambda stream: stream["creationTime"])
    return [stream["logStreamName"] for stream in streams]


def training_streams(clients: Clients, group: str, job: str) -> list[str]:
    """The log streams of a training job, oldest first; none when there is no group yet."""
    pages = clients.logs.get_paginator("describe_log_streams").paginate(
        logGroupName=group, logStreamNamePrefix=f"{job}/"
    )
    streams = unless_missing(clients, lambda: [item for page in pages for item in page["logStreams"]]) or []
    return [stream["logStreamName"] for stream in sorted(streams, key=lambda stream: stream["creationTime"])]


def last_events(clients: Clients, group: str, stream: str, count: int) -> Iterator[OutputLogEventTypeDef]:
    """So many of a stream's events, the last one first."""
    token: str | None = None
    while count > 0:
        before: dict[str, Any] = {"nextToken": token} if token else {}
        limit = min(count, _MOST_EVENTS)
        page = clients.logs.get_log_events(logGroupName=group, logStreamName=stream, limit=limit, **before)
        yield from reversed(page["events"])
        count -= len(page["events"])
        if page["nextBackwardToken"] == token:
            return
        token = page["nextBackwardToken"]


def log_pages(
    clients: Clients, group: str, stream: str, token: str | None = None, written_since: float = 0.0
) -> Iterator[GetLogEventsResponseTypeDef]:
    """Pages of a stream from that token and second on, to the last one; each names the token of the next."""
    first: dict[str, Any] = {"startTime": int(written_since * 1000)} if written_since > 0 else {}
    while True:
        following: dict[str, Any] = {"nextToken": token, **first} if token else first
        page = clients.logs.get_log_events(logGroupName=group, logStreamName=stream, startFromHead=True, **following)
        yield page
        # CloudWatch Logs says that this was the last page by giving the same token again.
        if page["nextForwardToken"] == token:
            return
        token = page["nextForwardToken"]


def training_status(clients: Clients, name: str) -> TrainingJob:
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


def read_endpoint(
    clients: Clients, name: str, paced: Callable[[Callable[[], Any]], Any] = lambda ask: ask()
) -> tuple[DescribeEndpointOutputTypeDef, DescribeEndpointConfigOutputTypeDef] | None:
    """An endpoint and its configuration; None when one of them has gone. `paced` makes each of the two calls."""

    def read() -> tuple[DescribeEndpointOutputTypeDef, DescribeEndpointConfigOutputTypeDef]:
        endpoint = paced(lambda: clients.sagemaker.describe_endpoint(EndpointName=name))
        config = endpoint["EndpointConfigName"]
        return endpoint, paced(lambda: clients.sagemaker.describe_endpoint_config(EndpointConfigName=config))

    return unless_missing(clients, read)
