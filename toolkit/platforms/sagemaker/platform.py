"""SageMaker behind the small protocols that the stages see."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, EventStreamError

from toolkit.apply.progress import Progress
from toolkit.apply.waiter import EndpointStatus, LogLine, wait_deleted, wait_settled
from toolkit.errors import EndpointNotFound, InvocationError
from toolkit.planning.plan import Action
from toolkit.planning.resources import Account, Observed, Resource
from toolkit.platforms.sagemaker import execute, observe
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors, is_missing

_DELETE_TIMEOUT_SECONDS = 600.0
# As long as an endpoint may take to come up.
_SETTLE_TIMEOUT_SECONDS = 7200.0


@dataclass(frozen=True)
class SageMakerPlatform:
    """Real-time endpoints of one account and region. `poll_seconds` is the pause between two looks at an endpoint."""

    clients: Clients
    poll_seconds: float = 5.0
    pause_between_arms: float = 0.0

    def account(self) -> Account:
        """Account and region of the session."""
        with aws_errors("asking who we are"):
            return Account(self.clients.sts.get_caller_identity()["Account"], self.clients.session.region_name)

    def observe(self, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
        """See planning.resources.Observer."""
        with aws_errors("looking at what exists"):
            return observe.observe(self.clients, self.account(), desired, endpoints)

    def endpoints(self) -> list[EndpointStatus]:
        """All endpoints that carry our tag."""
        with aws_errors("listing endpoints"):
            return [self.status(name) for name in observe.owned_endpoints(self.clients)]

    def execute(self, action: Action, progress: Progress) -> None:
        """See apply.executor.Executor."""
        with aws_errors(str(action)):
            if action.kind == "Endpoint" and action.verb != "create":
                wait_settled(self, action.name, _SETTLE_TIMEOUT_SECONDS, progress)
            if action.verb in ("delete", "replace"):
                execute.delete(self.clients, action)
                if action.kind == "Endpoint":
                    wait_deleted(self, action.name, _DELETE_TIMEOUT_SECONDS)
            if action.verb in ("create", "replace"):
                execute.create(self.clients, action, progress)
            elif action.verb == "update":
                execute.update(self.clients, action, progress)

    def status(self, endpoint: str) -> EndpointStatus:
        """See apply.waiter.Waitable."""
        answer = self._describe(endpoint)
        config, reason = answer["EndpointConfigName"], answer.get("FailureReason", "")
        return EndpointStatus(endpoint, answer["EndpointStatus"], config, reason)

    def logs(self, endpoint: str) -> Iterator[LogLine]:
        """See apply.waiter.Waitable. Follows every page to the last one: the error stands there."""
        created = self._describe(endpoint)["CreationTime"].timestamp()
        group = f"/aws/sagemaker/Endpoints/{endpoint}"
        with aws_errors(f"reading the log of {endpoint}"):
            for stream, start in self._streams(group):
                if start >= created:
                    yield from self._lines(group, stream)

    def invoke(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The container's JSON answer to one request. Raises EndpointNotFound or InvocationError."""
        try:
            answer = self.clients.runtime.invoke_endpoint(
                EndpointName=endpoint, Body=json.dumps(body).encode(), ContentType="application/json"
            )
            document: dict[str, Any] = json.loads(answer["Body"].read())
        except (ClientError, BotoCoreError, ValueError) as error:
            raise _invocation_error(endpoint, error) from error
        return document

    def stream(self, endpoint: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The container's answer as it comes; parts may end anywhere. Raises EndpointNotFound or InvocationError."""
        try:
            answer = self.clients.runtime.invoke_endpoint_with_response_stream(
                EndpointName=endpoint, Body=json.dumps(body).encode(), ContentType="application/json"
            )
            with closing(answer["Body"]) as events:  # also when it breaks off, or the caller has had enough
                for event in events:
                    yield event["PayloadPart"]["Bytes"]
        except (ClientError, BotoCoreError, EventStreamError) as error:
            raise _invocation_error(endpoint, error) from error

    def _describe(self, endpoint: str) -> Mapping[str, Any]:
        with aws_errors(f"describing {endpoint}"):
            try:
                return self.clients.sagemaker.describe_endpoint(EndpointName=endpoint)
            except ClientError as error:
                if is_missing(error):
                    raise EndpointNotFound(f"there is no endpoint {endpoint}", hint="See: toolkit status") from error
                raise

    def _streams(self, group: str) -> list[tuple[str, float]]:
        """Streams of a log group with the second at which each began, oldest first; none when there is no group yet."""
        try:
            pages = self.clients.logs.get_paginator("describe_log_streams").paginate(logGroupName=group)
            streams = [
                (item["logStreamName"], item["creationTime"] / 1000) for page in pages for item in page["logStreams"]
            ]
        except ClientError as error:
            if is_missing(error):
                return []
            raise
        return sorted(streams, key=lambda stream: stream[1])

    def _lines(self, group: str, stream: str) -> Iterator[LogLine]:
        token: dict[str, Any] = {}
        while True:
            page = self.clients.logs.get_log_events(
                logGroupName=group, logStreamName=stream, startFromHead=True, **token
            )
            for event in page["events"]:
                yield LogLine(stream, event["timestamp"] / 1000, event["message"])
            # CloudWatch Logs says that this was the last page by giving the same token again.
            if page["nextForwardToken"] == token.get("nextToken"):
                return
            token = {"nextToken": page["nextForwardToken"]}


def _invocation_error(endpoint: str, error: Exception) -> InvocationError | EndpointNotFound:
    response: Mapping[str, Any] = error.response if isinstance(error, ClientError) else {}
    message = response.get("OriginalMessage") or response.get("Error", {}).get("Message") or str(error)
    if "not found" in message and response.get("Error", {}).get("Code") in ("ValidationError", "ValidationException"):
        return EndpointNotFound(f"there is no endpoint {endpoint} in service", hint="See: toolkit status")
    status = response.get("OriginalStatusCode")
    answered = f"answered {status}: " if status else ""
    return InvocationError(f"{endpoint}: {answered}{message}", hint=f"The container's log: toolkit logs {endpoint}")
