"""A daemon whose files are lost is found again; one that cannot be reached is named, and one that ended says why."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from fault_tools import CONTAINERS, Toolkit, daemon_in
from processes import until

from toolkit.errors import PlatformError, UsageError
from toolkit.platforms.local import credentials
from toolkit.platforms.local.daemon import LocalDaemon, credentials_file, running, start, stop
from toolkit.platforms.local.presence import Activity, Presence


@pytest.fixture
def local(home: Path) -> Path:
    return home / "local"


@pytest.fixture
def daemon(local: Path) -> LocalDaemon:
    found = running(local)
    assert found
    return found


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"pid": "x", "control_url": 5}', "[" * 100_000])
def test_a_description_that_is_lost_or_makes_no_sense_is_written_again(
    local: Path, daemon: LocalDaemon, content: str | None
) -> None:
    if content is None:
        (local / "daemon.json").unlink()
    else:
        (local / "daemon.json").write_text(content)
    assert running(local) == daemon
    assert start(local, CONTAINERS) == daemon


def test_a_lock_that_is_deleted_is_taken_again(local: Path, daemon: LocalDaemon) -> None:
    (local / "daemon.lock").unlink()
    assert running(local) == daemon
    assert start(local, CONTAINERS) == daemon, "and no second one is started"
    until(lambda: (local / "daemon.lock").exists())


def test_a_home_that_is_deleted_comes_back(local: Path, daemon: LocalDaemon) -> None:
    shutil.rmtree(local)
    until(lambda: running(local) == daemon)


def test_it_is_found_or_not_while_it_mends_its_files_and_is_never_an_error(tmp_path: Path) -> None:
    """Its files come back one by one: a look that falls between two of them must wait for the rest."""
    home = tmp_path / "local"
    home.mkdir()
    credentials.create(credentials_file(home))
    presence, ended = Presence(home), threading.Event()
    itself = LocalDaemon(os.getpid(), "http://control", "http://runtime", 1.0, str(credentials_file(home)))
    presence.announce(itself)

    def lose_and_mend() -> None:
        while not ended.is_set():
            for file in ("daemon.json", "daemon.lock", "credentials"):
                (home / file).unlink()
            presence.mend()

    mending = threading.Thread(target=lose_and_mend)
    mending.start()
    try:
        assert {running(home) for _ in range(60)} <= {itself, None}
    finally:
        ended.set()
        mending.join()
    assert credentials.read(credentials_file(home)), "only its owner can read it, as before"


def test_a_daemon_that_cannot_be_reached_is_named_with_the_way_to_end_it(
    local: Path, daemon: LocalDaemon, toolkit: Toolkit
) -> None:
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        (local / "daemon.json").write_text("")
        ran = toolkit("status", "--platform", "local")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert ran.code == 3
    assert f"the local platform runs (process {daemon.pid}), but {local / 'daemon.json'} does not say where" in ran.err
    assert "toolkit local stop" in ran.err


def test_it_is_stopped_without_any_of_its_files_but_the_lock(tmp_path: Path) -> None:
    with daemon_in(tmp_path):
        local = tmp_path / "local"
        (local / "daemon.json").unlink()
        assert stop(local) is True
        assert running(local) is None


def test_another_daemon_in_its_home_ends_it(tmp_path: Path) -> None:
    """Which takes a home that was deleted, and a command in the same quarter of a second."""
    local = tmp_path / "local"
    with daemon_in(tmp_path):
        first = running(local)
        assert first
        os.kill(first.pid, signal.SIGSTOP)
        shutil.rmtree(local)
        second = start(local, CONTAINERS)
        os.kill(first.pid, signal.SIGCONT)
        until(lambda: not Path(f"/proc/{first.pid}").exists())
        assert running(local) == second


def is_gone(local: Path) -> bool:
    """Whether there is no daemon; one that is just ending cannot say where it answers."""
    with suppress(PlatformError):
        return running(local) is None
    return False


def test_after_hours_without_a_request_it_ends_and_the_next_command_says_why(
    tmp_path: Path, recipe: Path, toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path))
    monkeypatch.setenv("TOOLKIT_LOCAL_IDLE_HOURS", "0.0015")  # 5.4 s, with room for a slow plan
    with daemon_in(tmp_path):
        assert toolkit("deploy", recipe, "--no-prove").code == 0
        until(lambda: is_gone(tmp_path / "local"))
        log = (tmp_path / "local" / "daemon.log").read_text()
        first, second = toolkit("status", "--platform", "local"), toolkit("status", "--platform", "local")
    assert "The local platform ended by itself on " in log
    assert "nothing was asked of it for 0.0015 hours (TOOLKIT_LOCAL_IDLE_HOURS)." in log
    assert "Its endpoints went with it: tiny." in log
    assert log.splitlines()[-1] in first.err
    assert second.err == "Next: toolkit deploy tiny/p-eagle --platform local\n"
    assert list(tmp_path.glob("local/endpoints/*")) == []


def test_one_that_was_killed_is_told_of_once(tmp_path: Path, toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path))
    with daemon_in(tmp_path):
        found = running(tmp_path / "local")
        assert found
        os.kill(found.pid, signal.SIGKILL)
        until(lambda: running(tmp_path / "local") is None)
        first, second = toolkit("status", "--platform", "local"), toolkit("status", "--platform", "local")
    assert "The local platform was killed, or this machine was started again. Its endpoints went with it." in first.err
    assert second.err == "Next: toolkit deploy tiny/p-eagle --platform local\n"


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
@pytest.mark.parametrize(
    ("variable", "unit"), [("TOOLKIT_LOCAL_IDLE_HOURS", "hours"), ("TOOLKIT_LOCAL_SPARE_MINUTES", "minutes")]
)
def test_times_that_are_no_number_are_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, unit: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(UsageError, match=f"{variable}={text}: not a number of {unit}"):
        start(tmp_path / "local", CONTAINERS)


def test_a_request_that_is_being_answered_is_activity() -> None:
    seconds = iter([0.0, 10.0, 100.0, 130.0])
    activity = Activity(lambda: next(seconds))
    assert activity.idle_seconds() == 10
    seen: list[float] = []
    application = activity.count_wsgi(lambda environ, start_response: [seen.append(activity.idle_seconds()) or b""])
    application({}, lambda *_: lambda _: None)
    assert seen == [0]
    assert activity.idle_seconds() == 30


def test_no_free_port_is_said(tmp_path: Path) -> None:
    """In a network of its own, which has one port to give."""
    if os.geteuid():
        pytest.skip("only root may make a network")
    ports = "/proc/sys/net/ipv4/ip_local_port_range"
    python = f"{sys.executable} -c '{START}' {tmp_path / 'local'}"
    script = f"ip link set lo up && echo 40000 40000 > {ports} && exec {python}"
    ran = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert "did not start: no port of 127.0.0.1 is free (Address already in use" in ran.stdout, ran.stderr


START = """
import sys
from pathlib import Path
from toolkit.errors import PlatformError
from toolkit.platforms.local.daemon import start
try: start(Path(sys.argv[1]))
except PlatformError as error: print(error)
"""
