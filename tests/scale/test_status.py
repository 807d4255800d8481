"""`status` of 10, 100 and 1,000 endpoints, of AWS as it is and of one that takes 5, 10 or 20 requests a second.

Where AWS throttles, time is simulated: it passes only while the product waits, so that no verdict depends on the
machine. The time that the whole takes is asserted with $TOOLKIT_SCALE.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter

import pytest
from standin import StandIn
from standin_user import IMAGE, User, one

import toolkit
from toolkit.endpoint.platform import Found
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.listing import Pace, list_endpoints

WHOLE = bool(os.environ.get("TOOLKIT_SCALE"))
MOST_REQUESTS, MOST_SECONDS = 40, 2.0
TYPE = "ml.g6.xlarge"


class SimulatedClock:
    """Seconds that pass only when a thread sleeps; threads sleep side by side."""

    def __init__(self) -> None:
        self._seconds, self._lock = 0.0, threading.Lock()

    def __call__(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        wakes = self._seconds + seconds
        with self._lock:
            self._seconds = max(self._seconds, wakes)


def fill(standin: StandIn, count: int) -> list[str]:
    """So many endpoints of ours in service, all with one configuration, and one of somebody else."""
    user = User(standin)
    container = {"Image": IMAGE, "ModelDataSource": user.weights}
    user.sagemaker.create_model(ModelName="all", ExecutionRoleArn=user.role, PrimaryContainer=container)
    user.create_config("all", one("all", InstanceType=TYPE))
    names = [f"chat-{number:04}" for number in range(count)]
    for name in names:
        tags = [{"Key": ENDPOINT_TAG, "Value": name}]
        user.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName="all", Tags=tags)
    user.sagemaker.create_endpoint(EndpointName="of-somebody-else", EndpointConfigName="all")
    standin.settle()
    standin.calls.clear()
    return names


def listed(standin: StandIn, clock: SimulatedClock, seconds: float, details: bool | None = None) -> Found:
    """What `status` lists within so many simulated seconds."""
    pace = Pace(seconds, clock, clock.sleep)
    clients = Clients(standin.session(), attempts=1)
    return list_endpoints(clients, "sagemaker", lambda _: True, details, pace)


@pytest.mark.parametrize("count", [10, 100, 1000] if WHOLE else [10, 200])
def test_the_cost_of_a_list_grows_by_two_requests_for_a_hundred(standin: StandIn, count: int) -> None:
    names = fill(standin, count)
    began = time.perf_counter()
    listing = toolkit.status(platform="sagemaker", details=False)
    seconds = time.perf_counter() - began
    print(f"\n{count} endpoints: {len(standin.calls)} requests, {seconds:.2f} s")
    assert [item.name for item in listing] == names
    assert {item.status for item in listing} == {"InService"}
    assert len(standin.calls) <= 1 + 2 * (count // 100 + 1) <= MOST_REQUESTS  # one for those that are paused
    if WHOLE:
        assert seconds < MOST_SECONDS


def test_more_than_a_hundred_are_described_only_when_they_are_asked_for(standin: StandIn) -> None:
    fill(standin, 101)
    brief = toolkit.status(platform="sagemaker")
    assert brief.in_brief == 101
    assert brief.to_dict()["not_described"] == 101
    standin.calls.clear()
    some = toolkit.status("chat-000*", "chat-0100", platform="sagemaker")
    assert [item.instances for item in some] == [((TYPE, 1),)] * 11
    assert len(standin.calls) == 5 + 2 * 11
    assert toolkit.status(platform="sagemaker", details=True).in_brief == 0


@pytest.mark.parametrize("rate", [5, 10, 20])
def test_a_service_that_throttles_is_asked_at_its_pace(standin: StandIn, rate: int) -> None:
    names, clock = fill(standin, 100), SimulatedClock()
    standin.faults.limit(rate, clock)
    found = listed(standin, clock, seconds=600, details=True)
    assert [item.name for item in found] == names
    assert all(item.described for item in found)
    assert not found.incomplete
    calls = Counter(call.operation for call in standin.calls)
    described = calls["DescribeEndpoint"] + calls["DescribeEndpointConfig"]
    assert clock() < 2.5 * 200 / rate, "no faster than the service, and not much slower"
    assert described < 3 * 200, "most calls are not in vain"


@pytest.mark.parametrize("rate", [5, 10])
def test_without_time_for_all_details_the_rest_is_listed_and_marked(standin: StandIn, rate: int) -> None:
    names, clock = fill(standin, 100), SimulatedClock()
    standin.faults.limit(rate, clock)
    found = listed(standin, clock, seconds=5)
    assert [item.name for item in found] == names
    assert {item.status for item in found} == {"InService"}
    assert not found.incomplete
    described = [item for item in found if item.described]
    assert 5 < len(described) < 100
    assert all((item.price_per_hour is None) == (not item.described) for item in found)
    assert clock() < 8


def test_a_list_that_is_cut_short_keeps_what_was_found(standin: StandIn) -> None:
    names, clock = fill(standin, 300), SimulatedClock()
    standin.faults.limit(2, clock)
    found = listed(standin, clock, seconds=0.3, details=False)
    assert 0 < len(found.endpoints) < len(names)
    assert "AWS throttled the list of endpoints in us-west-2" in found.incomplete
