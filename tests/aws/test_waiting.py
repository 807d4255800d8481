"""Waiting for an endpoint on AWS: its log is read on, and a failure tells the cause that stands there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fakes import FakeClock, Told
from standin import CAPACITY, PING, StandIn
from standin_user import User, one

from toolkit.apply.waiter import wait_in_service
from toolkit.errors import EndpointFailed
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.platform import SageMakerPlatform

DEAD = (Path(__file__).parents[1] / "golden" / "logs" / "hidden-size.txt").read_text().splitlines()
GROUP = "/aws/sagemaker/Endpoints/ep"


@pytest.fixture
def platform(user: User) -> SageMakerPlatform:
    return SageMakerPlatform(Clients(user.session))


def write(user: User, stream: str, *texts: str) -> None:
    created = user.logs.describe_log_streams(logGroupName=GROUP)["logStreams"]
    if stream not in [item["logStreamName"] for item in created]:
        user.logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)
    events = [{"timestamp": int(time.time() * 1000) + 1, "message": text} for text in texts]
    user.logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)


def wait(platform: SageMakerPlatform, config: str = "ep") -> FakeClock:
    clock = FakeClock()
    wait_in_service(platform, {"ep": config}, Told(), 3600, clock, clock.sleep)
    return clock


def test_only_what_is_new_is_read_again(user: User, platform: SageMakerPlatform) -> None:
    user.deploy("ep")
    bookmarks: dict[str, str] = {}
    before = [line.text for line in platform.logs("ep", bookmarks=bookmarks)]
    assert before
    assert list(platform.logs("ep", bookmarks=bookmarks)) == []

    (stream,) = bookmarks
    write(user, stream, "one more")
    write(user, "only/i-2", "another container")
    assert [line.text for line in platform.logs("ep", bookmarks=bookmarks)] == ["one more", "another container"]
    assert [line.text for line in platform.logs("ep")] == [*before, "one more", "another container"]


def test_a_log_has_no_colours(user: User, platform: SageMakerPlatform) -> None:
    user.deploy("ep")
    write(user, "only/i-2", "\x1b[0;36m(EngineCore pid=7)\x1b[0;0m \x1b[1;38:5:9mERROR\x1b[m gone")
    assert [line.text for line in platform.logs("ep")][-1] == "(EngineCore pid=7) ERROR gone"


def test_a_log_of_many_pages_is_read_to_its_end(user: User, platform: SageMakerPlatform) -> None:
    """A page of CloudWatch holds at most 10,000 events; the error stands on the last one."""
    user.deploy("ep")
    write(user, "only/i-2", *[f"line {number}" for number in range(10_000)])
    write(user, "only/i-2", "the last words")
    assert [line.text for line in platform.logs("ep")][-1] == "the last words"


def test_containers_that_began_before_are_left_out(user: User, platform: SageMakerPlatform) -> None:
    user.deploy("ep")
    ended = user.describe("ep")["LastModifiedTime"].timestamp() + 1
    assert list(platform.logs("ep")) != []
    assert list(platform.logs("ep", since=ended)) == []


def test_what_is_under_way_has_a_beginning(user: User, platform: SageMakerPlatform) -> None:
    user.create("ep")
    began = platform.status("ep").began  # since its last change, which moto dates a moment after the creation
    assert began == pytest.approx(user.describe("ep")["CreationTime"].timestamp(), abs=1)
    assert platform.status("ep").began == 0.0


def test_each_look_at_an_endpoint_describes_it_once(standin: StandIn, user: User, platform: SageMakerPlatform) -> None:
    standin.script("ep", ["Creating"] * 5 + ["InService"])
    user.create("ep")
    standin.calls.clear()
    clock = wait(platform)
    looks = 1 + clock.seconds / platform.poll_seconds
    assert sum(str(call) == "sagemaker:DescribeEndpoint" for call in standin.calls) == looks


def test_aws_that_is_not_reached_for_a_while_is_waited_for(
    standin: StandIn, user: User, platform: SageMakerPlatform
) -> None:
    standin.script("ep", ["Creating", "Creating", "InService"])
    user.create("ep")
    standin.faults.drop("DescribeEndpoint", when="before", times=2 * platform.clients.attempts)
    clock = FakeClock()
    told = Told()
    wait_in_service(platform, {"ep": "ep"}, told, 3600, clock, clock.sleep)
    assert "ep: still waiting: describing ep: Connection was closed" in told.said[0]


def test_a_failed_endpoint_tells_its_containers_cause(
    standin: StandIn, user: User, platform: SageMakerPlatform
) -> None:
    standin.script("ep", ["Creating", "Creating", "Failed"], PING, DEAD)
    user.create("ep")
    with pytest.raises(EndpointFailed, match="ep failed: RuntimeError: The size of tensor a") as caught:
        wait(platform)
    assert caught.value.cause
    assert caught.value.cause.code == "hidden-size"


def test_a_failure_without_a_log_tells_awss_reason(standin: StandIn, user: User, platform: SageMakerPlatform) -> None:
    standin.script("ep", ["Creating", "Failed"], CAPACITY, logs=())
    user.create("ep")
    with pytest.raises(EndpointFailed) as caught:
        wait(platform)
    assert caught.value.cause
    assert caught.value.cause.code == "capacity"


def test_nobody_waits_for_the_time_out_of_a_dead_container(
    standin: StandIn, user: User, platform: SageMakerPlatform
) -> None:
    standin.script("ep", ["Creating"] * 1000, logs=DEAD)
    user.create("ep")
    with pytest.raises(EndpointFailed, match="ep cannot start: RuntimeError: The size of tensor a"):
        wait(platform)
    assert sum(str(call) == "sagemaker:DescribeEndpoint" for call in standin.calls) < 20


def test_a_rolled_back_update_tells_the_new_containers_cause(
    standin: StandIn, user: User, platform: SageMakerPlatform
) -> None:
    user.deploy("ep")
    user.create_config("other", one("ep", InitialInstanceCount=2))
    standin.script("ep", ["Updating", "RollingBack", "InService"], PING, DEAD)
    user.sagemaker.update_endpoint(EndpointName="ep", EndpointConfigName="other")
    with pytest.raises(EndpointFailed, match="ep was rolled back and still runs ep: RuntimeError: The size of tensor"):
        wait(platform, "other")
