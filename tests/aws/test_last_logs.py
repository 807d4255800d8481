"""The last lines of an endpoint's log are read from its end, over pages and over containers."""

from __future__ import annotations

import time
from typing import Any

import pytest
from standin import StandIn
from standin_ages import pass_days
from standin_user import User

from toolkit.api.endpoint import Endpoint
from toolkit.errors import UsageError
from toolkit.platforms.sagemaker import observe
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.platform import SageMakerPlatform

GROUP = "/aws/sagemaker/Endpoints/ep"


@pytest.fixture
def endpoint(user: User, standin: StandIn) -> Endpoint:
    """Two containers wrote 250 lines each, the first one two minutes ago."""
    standin.script("ep", ["Creating", "InService"], logs=[])
    user.deploy("ep")
    user.logs.create_log_group(logGroupName=GROUP)
    now = int(time.time() * 1000)
    for container, began in (("only/i-1", now - 120_000), ("only/i-2", now)):
        user.logs.create_log_stream(logGroupName=GROUP, logStreamName=container)
        events: list[Any] = [{"timestamp": began + n, "message": f"{container} {n}"} for n in range(250)]
        user.logs.put_log_events(logGroupName=GROUP, logStreamName=container, logEvents=events)
    standin.calls.clear()
    return Endpoint("ep", SageMakerPlatform(Clients(user.session)), None, destroyer=pytest.fail)


def test_the_last_line_takes_one_page_of_one_line(endpoint: Endpoint, standin: StandIn) -> None:
    assert list(endpoint.logs(tail=1)) == ["only/i-2 249"]
    (call,) = [call for call in standin.calls if call.operation == "GetLogEvents"]
    assert call.request["limit"] == 1


def test_more_lines_than_the_newest_container_wrote(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [*(f"only/i-1 {n}" for n in range(200, 250)), *(f"only/i-2 {n}" for n in range(250))]
    assert list(endpoint.logs(tail=300)) == expected
    monkeypatch.setattr(observe, "_MOST_EVENTS", 100)  # AWS's limit of a page
    assert list(endpoint.logs(tail=300)) == expected
    assert len(list(endpoint.logs(tail=10_000))) == 500


def test_of_the_last_lines_only_those_of_the_last_minute(endpoint: Endpoint) -> None:
    assert list(endpoint.logs(tail=300, since=60)) == [f"only/i-2 {n}" for n in range(250)]


def test_aws_is_asked_for_lines_of_the_last_minute_only(endpoint: Endpoint, standin: StandIn) -> None:
    assert list(endpoint.logs(since=60)) == [f"only/i-2 {n}" for n in range(250)]
    asked = [call.request["startTime"] for call in standin.calls if call.operation == "GetLogEvents"]
    assert asked
    assert all(time.time() - 61 < start / 1000 < time.time() - 59 + 5 for start in asked)


def test_the_last_lines_cannot_be_followed(endpoint: Endpoint) -> None:
    with pytest.raises(UsageError):
        endpoint.logs(tail=1, follow=True)


def test_containers_that_ended_long_ago_cost_nothing(endpoint: Endpoint, user: User, standin: StandIn) -> None:
    """But a stream without a line comes last in CloudWatch's order, so it is looked for where no other has begun."""
    for number in range(200):
        user.logs.create_log_stream(logGroupName=GROUP, logStreamName=f"old/i-{number}")
        events: list[Any] = [{"timestamp": int(time.time() * 1000), "message": "stopped"}]
        user.logs.put_log_events(logGroupName=GROUP, logStreamName=f"old/i-{number}", logEvents=events)
    pass_days(1)
    today = time.time() - 3600
    clients = Clients(user.session)
    user.logs.create_log_stream(logGroupName=GROUP, logStreamName="new/i-1")
    assert observe.log_streams(clients, GROUP, today) == ["new/i-1"]

    user.logs.create_log_stream(logGroupName=GROUP, logStreamName="new/i-2")
    user.logs.put_log_events(
        logGroupName=GROUP,
        logStreamName="new/i-2",
        logEvents=[{"timestamp": int(time.time() * 1000), "message": "starts"}],
    )
    standin.calls.clear()
    assert observe.log_streams(clients, GROUP, today) == ["new/i-2"]
    assert [call.operation for call in standin.calls] == ["DescribeLogStreams"]
