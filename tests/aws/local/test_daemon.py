"""The daemon: one for each home, gone without a trace, whatever ends it."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from local_account import CONTAINERS, Account
from processes import processes_in, until

from toolkit.errors import PlatformError, Unavailable
from toolkit.home import containers_dir
from toolkit.platforms.local.daemon import running, start, stop
from toolkit.platforms.local.folders import endpoint_folder
from toolkit.platforms.local.platform import local_platform


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home of its own for each test here; the last line is for tests that fail."""
    yield tmp_path / "home"
    stop(tmp_path / "home")


def temporary_folders(home: Path) -> list[Path]:
    return [link.readlink() for link in home.glob("endpoints/*/*/*/tmp")]


def test_starting_twice_at_once_gives_one_daemon(home: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        daemons = list(pool.map(lambda _: start(home, CONTAINERS), range(4)))
    assert len(set(daemons)) == 1
    assert running(home) == daemons[0]


def test_one_that_another_command_is_starting_is_awaited(home: Path) -> None:
    """However long that takes: it locks its home long before it says where it answers."""
    home.mkdir()
    with ThreadPoolExecutor(1) as pool, (home / "start.lock").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        with (home / "daemon.lock").open("w") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            waiting = pool.submit(start, home, CONTAINERS)
            inode = f":{os.fstat(starting.fileno()).st_ino} "
            locks = Path("/proc/locks")
            until(lambda: waiting.done() or any("->" in x and inode in x for x in locks.read_text().splitlines()))
            assert not waiting.done()
        fcntl.flock(starting, fcntl.LOCK_UN)
        assert waiting.result() == running(home)


def test_it_outlives_the_command_that_started_it(home: Path) -> None:
    command = f"from pathlib import Path; from toolkit.platforms.local.daemon import start; start(Path({str(home)!r}))"
    subprocess.run([sys.executable, "-c", command], check=True, timeout=60)
    daemon = running(home)
    assert daemon is not None
    assert Account(daemon).s3.list_buckets()["Buckets"] == []


def test_stop_leaves_no_process_and_no_folder(home: Path) -> None:
    account = Account(start(home, CONTAINERS))
    account.deploy("first")
    account.create("starting", {"STARTS_IN": "60"})
    until(lambda: len(temporary_folders(home)) == 2)
    folders = temporary_folders(home)
    until(lambda: len(processes_in(home / "endpoints")) == 6)

    assert stop(home) is True
    assert processes_in(home) == []
    assert sorted(file.name for file in home.iterdir()) == ["daemon.lock", "daemon.log", "start.lock"]
    assert not any(folder.exists() for folder in folders)
    assert running(home) is None
    assert stop(home) is False


def test_one_that_has_ended_is_not_waited_for(home: Path) -> None:
    """As AWS is, which comes back."""
    platform = local_platform(start(home, CONTAINERS))
    stop(home)
    with pytest.raises(PlatformError, match="describing ep") as ended:
        platform.status("ep")
    assert not isinstance(ended.value, Unavailable)
    assert "run the same command again, which starts it" in ended.value.hint


def test_killed_it_takes_its_containers_along(home: Path) -> None:
    account = Account(start(home, CONTAINERS))
    account.deploy("orphan")
    assert len(processes_in(home / "endpoints")) == 3, "keeper, server, and the server's own child"

    os.kill(account.daemon.pid, signal.SIGKILL)
    until(lambda: not processes_in(home / "endpoints"), timeout_s=5)
    assert running(home) is None


def test_killed_it_starts_again_empty(home: Path) -> None:
    account = Account(start(home, CONTAINERS))
    account.deploy("before")
    folders = temporary_folders(home)
    os.kill(account.daemon.pid, signal.SIGKILL)
    until(lambda: running(home) is None)

    again = Account(start(home, CONTAINERS))
    assert again.daemon.pid != account.daemon.pid
    assert again.sagemaker.list_endpoints()["Endpoints"] == []
    assert not (home / "endpoints").exists()
    assert not any(folder.exists() for folder in folders)
    again.deploy("before")


def test_killed_together_with_the_keeper_the_next_one_clears_away(home: Path) -> None:
    account = Account(start(home, CONTAINERS))
    account.deploy("left")
    keeper = int((endpoint_folder(home / "endpoints", "left") / "1" / "only" / "session").read_text())
    os.kill(account.daemon.pid, signal.SIGSTOP)  # so that it cannot react to the keeper's death
    os.kill(keeper, signal.SIGKILL)
    os.kill(account.daemon.pid, signal.SIGKILL)
    until(lambda: running(home) is None)
    assert len(processes_in(home / "endpoints")) == 2, "nobody is left to end these"

    start(home, CONTAINERS)
    assert processes_in(home / "endpoints") == []


def test_a_keeper_that_is_killed_alone_leaves_nothing_and_the_container_comes_back(home: Path) -> None:
    account = Account(start(home, CONTAINERS))
    account.deploy("kept")
    old = processes_in(home / "endpoints")
    session = endpoint_folder(home / "endpoints", "kept") / "1" / "only" / "session"
    os.kill(int(session.read_text()), signal.SIGKILL)
    until(lambda: not set(old) & set(processes_in(home / "endpoints")))
    until(lambda: len(processes_in(home / "endpoints")) == 3)


def test_stop_clears_away_what_a_killed_daemon_left(home: Path) -> None:
    account = Account(start(home, CONTAINERS))
    account.deploy("rest")
    os.kill(account.daemon.pid, signal.SIGKILL)
    until(lambda: running(home) is None)
    assert stop(home) is False
    assert sorted(file.name for file in home.iterdir()) == ["daemon.lock", "daemon.log", "start.lock"]


def test_asking_whether_it_runs_takes_no_time(home: Path) -> None:
    assert running(home) is None
    start(home, CONTAINERS)
    took = []
    for _ in range(100):
        before = time.perf_counter()
        assert running(home)
        took.append(time.perf_counter() - before)
    assert min(took) < 0.005


def test_asking_imports_neither_boto3_nor_moto() -> None:
    command = "import toolkit.platforms.local, sys; assert not {'boto3', 'moto', 'aiohttp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", command], check=True, timeout=60)


def test_the_home_is_private_and_the_sockets_are_on_loopback(home: Path) -> None:
    daemon = start(home, CONTAINERS)
    account = Account(daemon)
    account.deploy("private")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "daemon.json").stat().st_mode) == 0o600
    pids = {daemon.pid, *processes_in(home)}
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {str(fd.readlink()) for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir()}
    ours = [entry[1] for entry in listening if entry[3] == "0A" and f"socket:[{entry[9]}]" in inodes]
    assert len(ours) == 2, "control and runtime; the container listens in a folder of its own"
    assert all(address.startswith("0100007F:") for address in ours)


def test_a_start_that_fails_says_why(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ImportError('libuv is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(PlatformError, match=r"daemon did not start: (.|\n)*ImportError: libuv is broken") as caught:
        start(home, CONTAINERS)
    assert str(home / "daemon.log") in caught.value.hint
    assert running(home) is None


def test_what_is_compiled_of_moto_can_be_read_by_others(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a virtual environment that several users share: botocore lists all folders of moto's."""
    package = tmp_path / "moto"
    package.mkdir()
    (package / "__init__.py").write_text("import os, sys; sys.exit(f'umask {os.umask(0):o}')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    umask = os.umask(0o022)
    try:
        with pytest.raises(PlatformError, match="umask 22"):
            start(home)
    finally:
        os.umask(umask)


def test_a_home_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PlatformError, match=r"cannot keep its state in .*/file/home: .*Not a directory"):
        start(tmp_path / "file" / "home", CONTAINERS)


def test_the_toolkits_own_containers_are_found() -> None:
    assert (containers_dir() / "vllm" / "serve").is_file()
