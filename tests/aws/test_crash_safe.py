"""Whatever happens on the way to AWS, the same command carries on: nothing double, nothing orphaned.

A command dies in a process of its own, which ends in the midst of its calls as by SIGKILL: no `finally` runs, and the
lease that it leaves is that of a dead process. With $TOOLKIT_EVERY_CRASH it dies before and after every call that
changes something (between those it leaves the same behind), otherwise after every seventh of them.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moto.s3.models import s3_backends
from pairs import HUB_RECIPE, write_pair, write_recipe
from standin import ACCOUNT, StandIn, When, crash_at

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import ApplyError, PlatformError
from toolkit.home import home
from toolkit.planning.record import Record
from toolkit.platforms.lease import lease, this_process
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.objects import BucketLease

EVERYWHERE = bool(os.environ.get("TOOLKIT_EVERY_CRASH"))
pytestmark = pytest.mark.timeout(7200 if EVERYWHERE else 300)
BUCKET, LEASE = f"toolkit-{ACCOUNT}-us-west-2", "leases/hub"
LOG_GROUP = "logs group /aws/sagemaker/Endpoints/hub"
SCALED = "scaling: {min_instances: 1, max_instances: 3}\n"
ENDPOINT = HUB_RECIPE.replace("platform: {", "platform: {role: create, ").replace("org/", "./") + SCALED
COMPONENT = ENDPOINT.replace("role: create", "inference_component: {}, role: create").replace("s: 1, m", "s: 0, m")
LENGTHS = ("max_model_len: 1024", "max_model_len: 512")
READING = ("Describe", "List", "Get", "Head", "Batch")
WHEN: tuple[When, ...] = ("before", "after")
DONE, FAILED, DEAD = 0, 1, 9

Command = Callable[[], object]


class Road:
    """The commands of one user with one recipe."""

    def __init__(self, standin: StandIn, recipe: Path) -> None:
        self.standin, self.recipe = standin, recipe

    def deploy(self, progress: Silent | None = None) -> None:
        assert toolkit.deploy(self.recipe, progress=progress or Silent()).status().status == "InService"

    def rollback(self) -> None:
        toolkit.rollback(self.recipe, progress=Silent())

    def destroy(self) -> None:
        toolkit.destroy(self.recipe, progress=Silent())

    def wants(self, length: str) -> None:
        """Change the recipe."""
        text = self.recipe.read_text()
        for other in LENGTHS:
            text = text.replace(other, length)
        self.recipe.write_text(text)

    def runs(self) -> str:
        """The endpoint's configuration."""
        described: Any = self.standin.session().client("sagemaker").describe_endpoint(EndpointName="hub")
        return str(described["EndpointConfigName"])

    def calls_of(self, command: Command) -> list[tuple[int, When]]:
        """Do it once: at which of its calls, and when, it shall die after this."""
        self.standin.calls.clear()
        command()
        calls = [call.operation for call in self.standin.calls]
        changing = [n for n, name in enumerate(calls, start=1) if not name.startswith(READING)]
        return [(n, when) for n in changing for when in WHEN] if EVERYWHERE else [(n, "after") for n in changing[::7]]

    def dies(self, command: Command, n: int, when: When) -> bool:
        """Whether a process of its own died at its n-th call; otherwise it did the command, or was refused."""

        def until_then() -> None:
            session = self.standin.session()
            crash_at(session, n, when, lambda _: os._exit(DEAD))
            boto3.Session = lambda **_: session  # type: ignore[assignment,misc]
            command()

        _, status = os.waitpid(forked(until_then), 0)
        return os.waitstatus_to_exitcode(status) == DEAD


def forked(command: Command) -> int:
    """The number of a process that does it, and ends without any of our own affairs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: it asks them for nothing
        child = os.fork()
    if child:
        return child
    code = FAILED
    try:
        command()
        code = DONE
    finally:
        os._exit(code)


class Once(Silent):
    """Does something when a stage begins whose name begins so."""

    def __init__(self, stage: str, then: Command) -> None:
        self._stage, self._then = stage, then

    def stage(self, name: str) -> AbstractContextManager[None]:
        if name.startswith(self._stage):
            self._then()
        return super().stage(name)


@pytest.fixture
def road(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Road:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.001"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "Session", lambda **_: standin.session())
    write_pair(tmp_path)
    return Road(standin, write_recipe(tmp_path, ENDPOINT))


@pytest.fixture(params=[ENDPOINT, COMPONENT], ids=["endpoint", "component"])
def either(road: Road, request: pytest.FixtureRequest) -> Road:
    road.recipe.write_text(request.param)
    return road


# ---- a command that dies ----


def test_a_deploy_that_dies_is_carried_on(either: Road) -> None:
    road, standin = either, either.standin
    points = road.calls_of(road.deploy)
    undisturbed = standin.leftovers()
    for n, when in points:
        standin.reset()
        assert road.dies(road.deploy, n, when)
        road.deploy()
        assert standin.leftovers() == undisturbed, f"died {when} call {n}"
        assert toolkit.plan(road.recipe).changes == [], f"died {when} call {n}"


def test_a_deploy_that_dies_is_removed(road: Road) -> None:
    standin = road.standin
    for n, when in road.calls_of(road.deploy):
        standin.reset()
        assert road.dies(road.deploy, n, when)
        road.destroy()
        assert without_logs(standin) == [], f"died {when} call {n}"


def test_an_update_that_dies_is_carried_on_and_can_be_rolled_back(either: Road) -> None:
    road, standin = either, either.standin
    old, new = LENGTHS
    road.deploy()
    first = road.runs()
    road.wants(new)
    points = road.calls_of(road.deploy)
    undisturbed = standin.leftovers()
    for n, when in points:
        standin.reset()
        road.wants(old)
        road.deploy()
        road.wants(new)
        assert road.dies(road.deploy, n, when)
        road.deploy()
        assert standin.leftovers() == undisturbed, f"died {when} call {n}"
        assert toolkit.plan(road.recipe).changes == [], f"died {when} call {n}"
        if road.runs() != first:  # another model of a component leaves the endpoint as it is
            road.rollback()
            assert road.runs() == first, f"died {when} call {n}"


def test_a_rollback_that_dies_is_carried_on(road: Road) -> None:
    old, new = LENGTHS
    updated: list[Command] = [lambda: road.wants(old), road.deploy, lambda: road.wants(new), road.deploy]
    for step in updated:
        step()
    second = road.runs()
    points = road.calls_of(road.rollback)
    first, undisturbed = road.runs(), road.standin.leftovers()
    for n, when in points:
        road.standin.reset()
        for step in updated:
            step()
        assert road.dies(road.rollback, n, when)
        road.standin.settle()
        if road.runs() == second:
            road.rollback()
        assert road.runs() == first, f"died {when} call {n}"
        # The lease of the dead one goes with whatever is done next.
        left = [item for item in road.standin.leftovers() if not item.endswith(LEASE)]
        assert left == undisturbed, f"died {when} call {n}"


def test_a_destroy_that_dies_is_carried_on(either: Road) -> None:
    road, standin = either, either.standin
    road.deploy()
    for n, when in road.calls_of(road.destroy):
        standin.reset()
        road.deploy()
        assert road.dies(road.destroy, n, when)
        road.destroy()
        assert without_logs(standin) == [], f"died {when} call {n}"


@pytest.mark.parametrize("then", ["deploy", "destroy"])
def test_a_component_that_is_still_being_made_is_waited_for(road: Road, then: str) -> None:
    road.recipe.write_text(COMPONENT)
    road.deploy()
    made = [call.operation for call in road.standin.calls].index("CreateInferenceComponent") + 1
    road.standin.reset()
    road.standin.script_component("hub", [*["Creating"] * 30, "InService"])
    assert road.dies(road.deploy, made, "after")
    {"deploy": road.deploy, "destroy": road.destroy}[then]()
    assert toolkit.plan(road.recipe).changes == [] if then == "deploy" else without_logs(road.standin) == []


def without_logs(standin: StandIn) -> list[str]:
    return [item for item in standin.leftovers() if not item.startswith("logs group")]


COMMANDS = st.sampled_from(["deploy", "update", "rollback", "destroy"])
TROUBLE = st.sampled_from(["", "throttled", "cut before", "cut after", "expired"])


@settings(
    deadline=None, max_examples=60 if EVERYWHERE else 5, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    history=st.lists(st.tuples(COMMANDS, TROUBLE, st.integers(1, 90), st.sampled_from(WHEN)), min_size=1, max_size=5)
)
def test_whatever_was_tried_before_the_last_deploy_wins_and_destroy_leaves_nothing(
    road: Road, history: list[tuple[str, str, int, When]]
) -> None:
    standin = road.standin
    standin.reset()
    old, new = LENGTHS
    for command, trouble, n, when in history:
        road.wants(new if command == "update" else old)
        arrange(standin, trouble)
        road.dies({"rollback": road.rollback, "destroy": road.destroy}.get(command, road.deploy), n, when)
        standin.faults.clear()
    road.wants(old)
    road.deploy()
    assert toolkit.plan(road.recipe).changes == []
    found = standin.leftovers()
    assert len(found) == len(set(found))
    for kind in ("model", "endpoint-config"):  # what runs, and at most what ran before
        assert sum(item.startswith(f"sagemaker {kind} ") for item in found) <= 2
    road.destroy()
    assert standin.leftovers() == [LOG_GROUP]


def arrange(standin: StandIn, trouble: str) -> None:
    match trouble:
        case "throttled":
            standin.faults.storm("ThrottlingException")
        case "cut before":
            standin.faults.storm("", when="before")
        case "cut after":
            standin.faults.storm("", when="after")
        case "expired":
            standin.faults.expire_token("sagemaker:CreateEndpointConfig")


# ---- a network and a service that fail ----


@pytest.mark.parametrize(
    ("text", "code", "status", "when"),
    [
        (ENDPOINT, "", 0, "before"),
        (ENDPOINT, "", 0, "after"),
        (COMPONENT, "", 0, "after"),
        (ENDPOINT, "InternalFailure", 500, "after"),
    ],
    ids=["cut before", "cut after", "cut after, component", "500 after"],
)
def test_every_answer_is_lost_once_and_nothing_is_made_twice(
    road: Road, text: str, code: str, status: int, when: When
) -> None:
    road.recipe.write_text(text)
    outlives(road, lambda: road.standin.faults.storm(code, status=status, when=when))


def test_a_storm_of_throttling_is_outlived(road: Road) -> None:
    outlives(road, lambda: road.standin.faults.storm("ThrottlingException", times=2))


def outlives(road: Road, trouble: Command) -> None:
    """A whole life in trouble is what it is without."""
    lives = []
    for arrange in (lambda: None, trouble):
        road.standin.reset()
        arrange()
        lives.append(life(road))
    assert lives[0] == lives[1]


def life(road: Road) -> list[list[str]]:
    """What is there after each step."""
    old, new = LENGTHS
    steps: list[Command] = [lambda: road.wants(old), road.deploy, lambda: road.wants(new), road.deploy, road.destroy]
    found = []
    for step in steps:
        step()
        found.append(road.standin.leftovers())
    return found


@pytest.mark.parametrize("stage", ["create Model", "wait"])
def test_expired_credentials_are_said_and_with_new_ones_the_same_command_carries_on(road: Road, stage: str) -> None:
    faults = road.standin.faults
    with pytest.raises(PlatformError, match="ExpiredToken") as caught:
        road.deploy(Once(stage, faults.expire_token))
    assert "Log in again" in caught.value.hint
    faults.clear()
    road.deploy()
    assert toolkit.plan(road.recipe).changes == []


def test_the_record_says_at_which_action_it_failed(road: Road) -> None:
    with pytest.raises(ApplyError, match="create Model hub-"):
        road.deploy(Once("create Model", road.standin.faults.expire_token))
    last = Record(home() / "records" / "hub.jsonl", print, place=f"sagemaker/{ACCOUNT}/us-west-2").events()[-1]
    assert (last.verb, last.kind, last.step) == ("create", "Model", "failed")
    assert "expired" in last.detail


# ---- two at once ----


def test_of_two_threads_that_deploy_one_name_one_is_refused(road: Road) -> None:
    under_way, refused = threading.Event(), threading.Event()

    def wait() -> None:
        under_way.set()
        assert refused.wait(60)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(road.deploy, Once("create Model", wait))
        assert under_way.wait(60)
        with pytest.raises(PlatformError, match="hub is being changed by"):
            road.deploy()
        refused.set()
        first.result()
    assert toolkit.plan(road.recipe).changes == []


def test_while_another_process_deploys_one_is_refused_and_once_it_is_dead_not(road: Road) -> None:
    reading, writing = os.pipe()

    def stop() -> None:
        os.write(writing, b".")
        signal.pause()

    other = forked(lambda: road.deploy(Once("create Model", stop)))
    os.read(reading, 1)
    for command in (road.deploy, road.destroy):
        with pytest.raises(PlatformError, match=f"is being changed by .* \\(process {other}\\)"):
            command()
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    road.deploy()
    assert toolkit.plan(road.recipe).changes == []


def held_elsewhere(standin: StandIn, seconds: float) -> None:
    """The lease of somebody on another machine, renewed so many seconds ago by S3's clock."""
    theirs = replace(this_process(), machine="another")
    s3: Any = standin.session().client("s3")
    with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(Bucket=BUCKET, Key=LEASE, Body=json.dumps(asdict(theirs)))
    s3_backends[ACCOUNT]["aws"].buckets[BUCKET].keys[LEASE].last_modified -= timedelta(seconds=seconds)


def test_a_lease_of_another_machine_counts_until_it_has_expired(road: Road) -> None:
    held_elsewhere(road.standin, 240)
    with pytest.raises(PlatformError, match="hub is being changed by"):
        road.deploy()
    held_elsewhere(road.standin, 302)
    road.deploy()


def test_where_s3_does_not_say_the_time_no_lease_has_expired(road: Road) -> None:
    """No other clock decides in its place."""
    held_elsewhere(road.standin, 10_000)
    session = road.standin.session()
    session.events.register("after-call.s3.GetObject", without_date)
    with (
        pytest.raises(PlatformError, match="hub is being changed by"),
        lease("hub", BucketLease(Clients(session), BUCKET, "hub")),
    ):
        pass


def without_date(parsed: Any, **_: object) -> None:
    del parsed["ResponseMetadata"]["HTTPHeaders"]["date"]


@pytest.mark.parametrize("ahead", [-600.0, 600.0])
def test_a_live_lease_is_not_stolen_by_a_process_whose_clock_differs(road: Road, ahead: float) -> None:
    """The holder's clock is ten minutes off, and the other one's ten minutes the other way."""
    road.deploy()
    reading, writing = os.pipe()

    def hold() -> None:
        with lease_by_clock(road.standin, ahead):
            os.write(writing, b".")
            signal.pause()

    def attempt() -> None:
        with pytest.raises(PlatformError, match="hub is being changed by"), lease_by_clock(road.standin, -ahead):
            pass

    holder = forked(hold)
    try:
        os.read(reading, 1)
        _, status = os.waitpid(forked(attempt), 0)
        assert os.waitstatus_to_exitcode(status) == DONE
        s3 = Clients(road.standin.session()).s3
        assert json.loads(s3.get_object(Bucket=BUCKET, Key=LEASE)["Body"].read())["pid"] == holder
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)


def lease_by_clock(standin: StandIn, ahead: float) -> AbstractContextManager[None]:
    """The lease, in a process of its own whose clock is so many seconds ahead."""
    real = time.time
    time.time = lambda: real() + ahead
    return lease("hub", BucketLease(Clients(standin.session()), BUCKET, "hub"), time.time)


def test_who_read_a_lease_before_its_renewal_does_not_take_it_over(road: Road) -> None:
    """The holder is the same, and so was the ETag where that alone is stored."""
    road.deploy()
    store, holder = BucketLease(Clients(road.standin.session()), BUCKET, "hub"), this_process()
    read = store.create(holder)
    renewed = store.replace(holder, read)
    assert renewed
    assert not store.replace(replace(holder, machine="another"), read)
    assert not store.delete(read)
    entry = store.read()
    assert entry
    assert (entry.version, entry.holder) == (renewed, holder)


def test_of_two_that_take_over_an_expired_lease_the_second_is_refused(road: Road) -> None:
    held_elsewhere(road.standin, 302)
    session = road.standin.session()
    # Between our look at the lease and our own claim.
    session.events.register("after-call.s3.GetObject", lambda **_: held_elsewhere(road.standin, 0))
    with (
        pytest.raises(PlatformError, match="hub is being changed by"),
        lease("hub", BucketLease(Clients(session), BUCKET, "hub")),
    ):
        pass


def test_a_lease_that_was_taken_over_is_not_given_back_for_the_other(road: Road) -> None:
    road.deploy()
    clients = Clients(road.standin.session())
    with lease("hub", BucketLease(clients, BUCKET, "hub")):
        held_elsewhere(road.standin, 0)
    assert clients.s3.head_object(Bucket=BUCKET, Key=LEASE)
