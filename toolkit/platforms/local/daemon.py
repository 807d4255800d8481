"""The daemon of the local platform: start it on demand, find it, end it.

Its home, private to the user, holds:

    credentials   the key that requests to it are signed with, made anew by each daemon
    daemon.json   who it is and where it answers; written when both servers do
    daemon.lock   locked by the daemon for as long as it lives, so that no process id has to be trusted
    start.lock    locked by whoever starts or stops it
    daemon.log    its own log
    endpoints/    a folder for each running container

This module is light: it imports nothing but the standard library. The daemon's process is `__main__.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import PlatformError
from toolkit.home import containers_dir
from toolkit.platforms.local import folders, keeper

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0  # containers get ten seconds of grace
_LOG_LINES = 15
_NOT_PASSED_ON = ("AWS_", "MOTO_")


@dataclass(frozen=True)
class LocalDaemon:
    """A running daemon. `started_at` is seconds since the epoch; `credentials_file` holds the key of its owner."""

    pid: int
    control_url: str
    runtime_url: str
    started_at: float
    credentials_file: str


def credentials_file(home: Path) -> Path:
    """Where a daemon of that home keeps its key."""
    return home / "credentials"


def running(home: Path) -> LocalDaemon | None:
    """The daemon of that home, when one is alive."""
    try:
        described = json.loads((home / "daemon.json").read_text())
    except FileNotFoundError:
        return None
    return LocalDaemon(**described) if _is_locked(home / "daemon.lock") else None


def start(home: Path, containers: Path | None = None) -> LocalDaemon:
    """The daemon of that home, started if it was not running; both its servers answer.

    `containers` holds `<image repository>/serve` for each container that it can run, by default those that come with
    the toolkit; a daemon that already runs keeps its own. Raises PlatformError, with the daemon's last lines, when it
    does not come up.
    """
    home = home.resolve()
    try:
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        _must_be_ours(home)
        with _exclusive(home / "start.lock"):
            return running(home) or _launch(home, (containers or containers_dir()).resolve())
    except OSError as exc:
        raise PlatformError(f"The local platform cannot keep its state in {home}: {exc}.") from exc


def stop(home: Path) -> bool:
    """End the daemon and all its containers, and wait until nothing is left; False when there was none.

    Also removes what a daemon that was killed left behind.
    """
    home = home.resolve()
    if not home.is_dir():
        return False
    with _exclusive(home / "start.lock"):
        daemon = running(home)
        if daemon:
            os.kill(daemon.pid, signal.SIGTERM)
            _wait_until_gone(home, daemon.pid)
        _clear(home)
        return daemon is not None


def _must_be_ours(home: Path) -> None:
    """Whoever owns the folder decides what is in it: for root, `chmod` alone proves nothing."""
    if home.stat().st_uid != os.geteuid():
        raise PlatformError(
            f"The local platform cannot keep its state in {home}: the folder belongs to another user.",
            hint="Set TOOLKIT_HOME to a folder of your own.",
        )


def _launch(home: Path, containers: Path) -> LocalDaemon:
    _clear(home)
    ready, to_daemon = os.pipe()
    with (home / "daemon.log").open("wb") as log:
        launcher = subprocess.Popen(
            [sys.executable, "-P", "-m", "toolkit.platforms.local", str(home), str(containers), str(to_daemon)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env=_environment(),
            pass_fds=[to_daemon],
            start_new_session=True,
        )
    os.close(to_daemon)
    launcher.wait()  # it leaves the daemon behind, as nobody's child
    # The daemon closes the pipe when it is ready; so does the kernel when it is dead.
    in_time = bool(select.select([ready], [], [], _START_TIMEOUT_S)[0])
    os.close(ready)
    if daemon := running(home):
        return daemon
    keeper.kill_session(launcher.pid)
    lines = (home / "daemon.log").read_text(errors="replace").splitlines()[-_LOG_LINES:]
    why = "\n  ".join(lines) if in_time else f"it was not ready within {_START_TIMEOUT_S:.0f} seconds"
    raise PlatformError(f"The local platform's daemon did not start: {why}", hint=f"Its log: {home / 'daemon.log'}")


def _environment() -> dict[str, str]:
    """The user's own, without what points to a real account, and with moto's objects on the disk."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
    return inherited | {
        "MOTO_DISABLE_GLOBAL_CORS": "true",  # no web page shall talk to it
        "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(1024**2),  # larger objects go to the disk
    }


def _wait_until_gone(home: Path, pid: int) -> None:
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while _is_locked(home / "daemon.lock"):
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _clear(home: Path) -> None:
    credentials_file(home).unlink(missing_ok=True)
    (home / "daemon.json").unlink(missing_ok=True)
    folders.clear_leftovers(home)


def _is_locked(file: Path) -> bool:
    """Whether a daemon holds it. A shared lock asks, so that two who ask at once do not see each other."""
    try:
        with file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def _exclusive(file: Path) -> Iterator[None]:
    with file.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
