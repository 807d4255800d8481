"""Killed at any point, the same command carries on, and `destroy` leaves nothing. What is killed is a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from toolkit.cli.main import run
from toolkit.platforms.local.clients import DaemonSession
from toolkit.platforms.local.daemon import LocalDaemon, running, start, stop
from toolkit.recipe.known import catalogue_dir

ECHO = Path(__file__).parent / "local" / "containers" / "echo"
TOOLKIT = Path(sys.executable).with_name("toolkit")
DEPLOY = ("deploy", "tiny/p-eagle", "--no-prove", "--json")
DESTROY = ("destroy", "tiny/p-eagle", "--yes", "--json")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home whose local platform runs the echo container under the name `vllm`."""
    containers = tmp_path_factory.mktemp("containers")
    (containers / "vllm").symlink_to(ECHO)
    home = tmp_path_factory.mktemp("home")
    start(home / "local", containers)
    yield home
    stop(home / "local")


@pytest.mark.parametrize("events", [1, 7, 13, 19, 20])
def test_a_killed_deploy_is_carried_on_by_the_next(home: Path, events: int) -> None:
    record = home / "records" / "tiny-p-eagle.jsonl"
    record.unlink(missing_ok=True)
    command = _start(home, *DEPLOY)
    _until(lambda: record.is_file() and len(record.read_text().splitlines()) >= events)
    command.kill()
    command.communicate()

    assert _run(home, *DEPLOY)["status"] == "InService"
    assert {action["verb"] for action in _run(home, "plan", "tiny/p-eagle", "--json")["actions"]} == {"reuse"}

    _run(home, *DESTROY)
    assert _left(running(home / "local")) == []


def test_a_killed_destroy_is_carried_on_by_the_next(home: Path) -> None:
    record = home / "records" / "tiny-p-eagle.jsonl"
    _run(home, *DEPLOY)
    before = len(record.read_text().splitlines())
    command = _start(home, *DESTROY)
    _until(lambda: len(record.read_text().splitlines()) >= before + 5)
    command.kill()
    command.communicate()

    _run(home, *DESTROY)

    assert _left(running(home / "local")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_say_how_to_go_on(number: signal.Signals, home: Path, tmp_path: Path) -> None:
    """A CI job that is cancelled gets SIGTERM."""
    record = home / "records" / "tiny-p-eagle.jsonl"
    record.unlink(missing_ok=True)
    slow, now = tmp_path / "slow.yaml", tmp_path / "now"  # its container does not start before the signal has come
    text = (catalogue_dir() / "tiny" / "p-eagle.yaml").read_text().replace("./", f"{catalogue_dir()}/tiny/")
    slow.write_text(text.replace("env: {", f'env: {{STARTS_WHEN: "{now}", '))
    command = _start(home, "deploy", str(slow), "--no-prove", "--json")
    try:
        _until(lambda: record.is_file() and len(record.read_text().splitlines()) >= 5)
        command.send_signal(number)
        _, said = command.communicate(timeout=60)
    finally:
        command.kill()
        command.wait()
    now.touch()

    assert command.returncode == 130
    assert "The same command carries on" in said
    assert _run(home, *DEPLOY)["status"] == "InService"
    _run(home, *DESTROY)


def test_a_killed_daemon_is_replaced_and_its_endpoints_made_again(home: Path) -> None:
    _run(home, *DEPLOY)
    daemon = running(home / "local")
    assert daemon
    os.kill(daemon.pid, signal.SIGKILL)
    _until(lambda: running(home / "local") is None)

    assert _run(home, "status", "--json")["endpoints"] == []
    assert _run(home, *DESTROY)["actions"] == []
    start(home / "local", _containers_of(home))
    assert _run(home, *DEPLOY)["status"] == "InService"
    _run(home, *DESTROY)


def _containers_of(home: Path) -> Path:
    """The folder that the module's fixture made for its daemon."""
    return next(path for path in home.parent.glob("containers*") if (path / "vllm").is_symlink())


def _start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TOOLKIT_HOME": str(home)}
    return subprocess.Popen(
        [TOOLKIT, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _run(home: Path, *arguments: str) -> Any:
    """The answer of a command that nobody disturbs, in this process."""
    with pytest.MonkeyPatch.context() as environment, redirect_stdout(StringIO()) as answer:
        environment.setenv("TOOLKIT_HOME", str(home))
        assert run([*arguments]) == 0
    return json.loads(answer.getvalue())


def _left(daemon: LocalDaemon | None) -> list[str]:
    """Names of everything that our account still holds."""
    assert daemon
    aws = DaemonSession(daemon)
    sagemaker, s3, iam = aws.client("sagemaker"), aws.client("s3"), aws.client("iam")
    return [
        *[item["EndpointName"] for item in sagemaker.list_endpoints()["Endpoints"]],
        *[item["EndpointConfigName"] for item in sagemaker.list_endpoint_configs()["EndpointConfigs"]],
        *[item["ModelName"] for item in sagemaker.list_models()["Models"]],
        *[item["Name"] for item in s3.list_buckets()["Buckets"]],
        *[item["RoleName"] for item in iam.list_roles()["Roles"]],
    ]


def _until(look: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, f"nothing within {seconds} s"
        time.sleep(0.01)
