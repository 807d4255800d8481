"""Containers of one endpoint, without a daemon around them."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import until

from toolkit.platforms.local import container, keeper, modeldata
from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.command import entrypoint, process
from toolkit.platforms.local.deployment import ContainerDeployment, HealthChecks, Model
from toolkit.platforms.local.endpoints import Lifecycle, Release
from toolkit.platforms.local.host import EndpointSpec, Placement, StartQueue, Target, Variant
from toolkit.platforms.local.spare import Spares

SERVER = """
import http.server, os, socketserver, sys, time
time.sleep(float(os.environ.get("STARTS_IN", "0")))
if "DIES" in os.environ: sys.exit("gone")
stuck = os.environ.get("STUCK_ONCE", "/dev/null/no")
class Ping(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        is_stuck = os.path.exists(stuck) and open(stuck).read() in ("", str(os.getpid()))
        if is_stuck: open(stuck, "w").write(str(os.getpid()))
        self.send_response(503 if is_stuck else 200)
        self.end_headers()
    def log_message(self, *_): pass
socketserver.ThreadingUnixStreamServer(os.environ["SM_VLLM_UDS"], Ping).serve_forever()
"""


class Heard:
    """A watcher that keeps what it hears."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.over = threading.Event()

    def healthy(self) -> None:
        self.said.append(("healthy", ""))
        self.over.set()

    def failing(self, reason: str) -> None:
        self.said.append(("failing", reason))

    def failed(self, reason: str) -> None:
        self.said.append(("failed", reason))
        self.over.set()


@pytest.mark.parametrize(("is_first", "status"), [(True, "Creating"), (False, "RollingBack")])
def test_only_what_has_an_earlier_release_rolls_back_to_it(is_first: bool, status: str, tmp_path: Path) -> None:
    spec, containers = EndpointSpec("e", "c", ()), deployment(tmp_path)
    lifecycle = Lifecycle(spec, threading.RLock())
    if not is_first:
        Release(lifecycle, spec, containers).healthy()
    Release(lifecycle, spec, containers).failing("no memory")
    assert (lifecycle.status, lifecycle.failure) == (status, "" if is_first else "no memory")


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Model]:
    program = tmp_path / "serve"
    program.write_text(SERVER)

    def make(startup_timeout_s: float = 30.0, **environment: str) -> Model:
        return Model(partial(process, program, environment), {}, startup_timeout_s, grace_s=0.2)

    return make


def deployment(
    folder: Path, checks: HealthChecks | None = None, queue: StartQueue | None = None, **models: Model
) -> ContainerDeployment:
    s3: Any = None  # no model data, no S3
    placements = (Placement("ml.g6e.xlarge", {"Image": "image"}),)
    variants = tuple(Variant(name, {}, placements, weight=1.0, count=1) for name in models)
    spec = EndpointSpec("endpoint", "config", variants)
    return ContainerDeployment(spec, models, folder / "endpoint" / "1", s3, checks or HealthChecks(), queue)


def failure(one: ContainerDeployment) -> str:
    """Why it failed to start."""
    heard = Heard()
    one.start(heard)
    assert heard.over.wait(20)
    (first, reason), last = heard.said
    assert (first, last) == ("failing", ("failed", reason)), "said when it is known, and when all is cleared away"
    return reason


def test_a_container_that_is_silent_for_too_long_is_given_up(tmp_path: Path, model: Callable[..., Model]) -> None:
    reason = failure(deployment(tmp_path, v=model(startup_timeout_s=0.5, STARTS_IN="60")))
    assert "did not pass the ping health check" in reason
    assert reason.endswith("No answer within 0 seconds.")
    assert not (tmp_path / "endpoint").exists(), "its folder is gone, and so is what ran in it"


def test_one_variant_that_dies_does_not_wait_for_the_others(tmp_path: Path, model: Callable[..., Model]) -> None:
    started = time.monotonic()
    reason = failure(deployment(tmp_path, slow=model(STARTS_IN="60"), dying=model(DIES="1")))
    assert "production variant dying did not pass" in reason
    assert reason.endswith("It ended with exit code 1.")
    assert time.monotonic() - started < 50


def test_starts_are_one_after_the_other(tmp_path: Path, model: Callable[..., Model]) -> None:
    """The second is launched when the first serves, or when that cannot be waited for."""
    queue, first_heard, second_heard = StartQueue(1), Heard(), Heard()
    first = deployment(tmp_path / "1", None, queue, v=model(STARTS_IN="60", startup_timeout_s=60.0))
    second = deployment(tmp_path / "2", None, queue, v=model())
    first.start(first_heard)
    second.start(second_heard)
    until(lambda: (tmp_path / "2" / "endpoint" / "1" / "v").is_dir())
    assert not second_heard.over.wait(0.5)
    first.stop(lambda: None)
    assert second_heard.over.wait(20)
    assert second_heard.said == [("healthy", "")]
    stopped = threading.Event()
    second.stop(stopped.set)
    assert stopped.wait(20)


def test_a_start_that_hangs_does_not_keep_the_others_waiting(tmp_path: Path, model: Callable[..., Model]) -> None:
    queue, heard = StartQueue(1, longest_s=0.2), Heard()
    hanging, other = (
        deployment(tmp_path / "1", None, queue, v=model(STARTS_IN="60")),
        deployment(tmp_path / "2", None, queue, v=model()),
    )
    hanging.start(Heard())
    other.start(heard)
    assert heard.over.wait(20)
    assert heard.said == [("healthy", "")]
    for one in (hanging, other):
        stopped = threading.Event()
        one.stop(stopped.set)
        assert stopped.wait(20)


def test_stopping_ends_a_start_that_is_under_way(tmp_path: Path, model: Callable[..., Model]) -> None:
    one = deployment(tmp_path, v=model())
    stopped = threading.Event()
    one.stop(stopped.set)
    assert stopped.wait(20)
    assert failure(one) == "The endpoint is being deleted."


QUICK = HealthChecks(interval_s=0.05, failures=2)


def test_a_container_that_fails_its_health_checks_is_taken_out_of_service_and_started_again(
    tmp_path: Path, model: Callable[..., Model]
) -> None:
    stuck = tmp_path / "stuck"
    with serving(deployment(tmp_path, QUICK, v=model(STUCK_ONCE=str(stuck)))) as one:
        (first,) = one.targets()
        stuck.touch()
        until(lambda: one.targets() == [])
        until(lambda: is_another(one, first))


def test_a_container_that_is_stopped_is_killed_and_started_again(tmp_path: Path, model: Callable[..., Model]) -> None:
    """The keeper too: nothing that has to run for it is in the same session."""
    with serving(deployment(tmp_path, QUICK, v=model())) as one:
        (first,) = one.targets()
        session = int((tmp_path / "endpoint" / "1" / "v" / "session").read_text())
        stopped = keeper.session_members(session)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: is_another(one, first), timeout_s=60)
        assert not set(stopped) & set(keeper.session_members(session))


def test_a_container_that_fails_now_and_then_stays(tmp_path: Path) -> None:
    """As a server does that is very busy: only failures in a row count."""
    program, pings = tmp_path / "serve", tmp_path / "pings"
    note = f"open({str(pings)!r}, 'a').write('.')"
    answer = f"self.send_response(200 if os.path.getsize({str(pings)!r}) % 2 else 503)"
    program.write_text(SERVER.replace("self.send_response(503 if is_stuck else 200)", f"{note}; {answer}"))
    with serving(deployment(tmp_path, HealthChecks(0.01, 2), v=Model(partial(process, program, {}), {}, 30))) as one:
        (first,) = one.targets()
        until(lambda: pings.stat().st_size > 30)
        assert not is_another(one, first)
        assert one.targets()


@contextmanager
def serving(one: ContainerDeployment) -> Iterator[ContainerDeployment]:
    heard, ended = Heard(), threading.Event()
    one.start(heard)
    try:
        assert heard.over.wait(20)
        yield one
    finally:
        one.stop(ended.set)
        assert ended.wait(30)


def is_another(one: ContainerDeployment, target: Target) -> bool:
    """Whether it serves, from another container than that target's."""
    return bool(one.targets()) and one.targets()[0] is not target


@pytest.mark.parametrize(
    ("image", "runs"),
    [
        ("123456789012.dkr.ecr.us-west-2.amazonaws.com/vllm:0.32.0-cpu", True),
        ("vllm:0.32.0-cpu", True),
        ("vllm:0.32.0-gpu-py312", False),
        ("vllm", False),
        ("registry/team/vllm:1-cpu", False),
        ("registry/sglang:1-cpu", False),
        ("registry/..:1-cpu", False),
        ("", False),
    ],
)
def test_which_images_run(tmp_path: Path, image: str, runs: bool) -> None:
    serve = tmp_path / "vllm" / "serve"
    serve.parent.mkdir()
    serve.touch()
    assert entrypoint(image, tmp_path) == (serve if runs else None)


def test_that_no_port_is_free_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"no port from {port} to {port} is free on 127.0.0.1"):
            container.free_port(range(port, port + 1))


def test_a_port_that_is_taken_is_not_given() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        candidates = range(port - 20, port + 20)
        assert port not in {container.free_port(candidates) for _ in range(50)}


class Bucket:
    """The two calls of S3 that fetching needs."""

    def get_paginator(self, _: str) -> Bucket:
        return self

    def paginate(self, **_: str) -> list[dict[str, list[dict[str, Any]]]]:
        return [{"Contents": [{"Key": "m/weights", "Size": 10**15}]}]


def test_a_disk_that_is_too_small_is_said_before_anything_is_copied(tmp_path: Path) -> None:
    s3: Any = Bucket()
    with pytest.raises(
        ServiceError, match=r"too full for s3://b/m/: it takes 93132\d\.\d GiB, \d+\.\d GiB are free at"
    ):
        modeldata.fetch(s3, "s3://b/m/", tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.parametrize(("variables", "was_healthy"), [({}, True), ({"DIES": "1"}, False)])
def test_the_next_container_is_expected_to_be_like_one_that_was_healthy(
    tmp_path: Path, model: Callable[..., Model], variables: dict[str, str], was_healthy: bool
) -> None:
    spares, heard, stopped = Spares(tmp_path, 0), Heard(), threading.Event()
    one = deployment(tmp_path, v=replace(model(**variables), spares=spares))
    one.start(heard)
    assert heard.over.wait(20)
    assert bool(spares.pattern) == was_healthy
    one.stop(stopped.set)
    assert stopped.wait(20)
