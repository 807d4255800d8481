"""The daemon of the local platform: start it on demand, find it, end it.

Its home, private to the user, holds:

    credentials   the key that requests to it are signed with, made anew by each daemon
    daemon.json   who it is and where it answers; written when both servers do
    daemon.lock   locked by the daemon for as long as it lives, so that no process id has to be trusted
    daemon.ended  why the last one ended by itself
    start.lock    locked by whoever starts or stops it
    daemon.log    its own log
    endpoints/    a folder for each running container, and for what waits to become the next one

A living daemon writes daemon.json and daemon.lock again when they are lost or spoilt (`presence`).
The daemon's process is `__main__.py`.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from toolkit import documents
from toolkit.children import BUILDERS, OWN, own_variables, python_command, start_process
from toolkit.errors import PlatformError, UsageError
from toolkit.files import for_owner, make_private_folder
from toolkit.home import OF_ONES_OWN, containers_dir
from toolkit.platforms.local import credentials, folders, keeper

IDLE_HOURS = "TOOLKIT_LOCAL_IDLE_HOURS"
"""After so many hours without a request the daemon ends by itself; 0 is never."""

SPARE_MINUTES = "TOOLKIT_LOCAL_SPARE_MINUTES"
"""For so many minutes after the last endpoint a process waits that has imported what the next one needs; 0 is none."""

_IDLE_HOURS = 12.0
_SPARE_MINUTES = 15.0
_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0  # containers get ten seconds of grace
_MENDED_WITHIN_S = 3.0  # the daemon looks after its files every second
_ROOM_BYTES = 1024**2  # for its state and its log
_LOG_LINES = 15


@dataclass(frozen=True)
class LocalDaemon:
    """A running daemon. `started_at` is seconds since the epoch; `credentials_file` holds the key of its owner."""

    pid: int
    control_url: str
    runtime_url: str
    started_at: float
    credentials_file: str


def credentials_file(home: Path) -> Path:
    return home / "credentials"


def running(home: Path) -> LocalDaemon | None:
    """The daemon of that home, when one is alive.

    Waits a moment for what the daemon is about to write. Raises PlatformError when one lives that cannot be reached.
    """
    deadline = time.monotonic() + _MENDED_WITHIN_S
    try:
        while time.monotonic() < deadline:
            if not _is_alive(home):
                return None
            if daemon := _read_description(home):
                return daemon
            time.sleep(0.05)
        if not folders.is_locked(home / "daemon.lock"):
            return None
    except OSError as exc:
        message = f"whether the local platform runs cannot be seen in {home}: {exc.strerror}"
        raise PlatformError(message, hint=OF_ONES_OWN) from exc
    if (home / "daemon.json").is_file() and credentials_file(home).exists():
        credentials.read(credentials_file(home))
    raise PlatformError(
        f"the local platform runs (process {_holder(home)}), but {home / 'daemon.json'} does not say where it answers",
        hint="Try again in a moment. If it stays so, end it with all its endpoints: toolkit local stop",
    )


def start(home: Path, containers: Path | None = None) -> LocalDaemon:
    """The daemon of that home, started if it was not running; both its servers answer.

    `containers` holds `<image repository>/serve` for each container that it can run, by default those that come with
    the toolkit; a daemon that already runs keeps its own. Raises PlatformError, with the daemon's last lines, when it
    does not come up, and before anything is started when its state cannot be kept.
    """
    home = home.resolve()
    idle_hours()
    spare_minutes()
    # One that is being started, by the command beside this one, is awaited below.
    if not folders.is_locked(home / "start.lock") and (daemon := running(home)):
        return daemon
    try:
        make_private_folder(home)
        home.chmod(0o700)
        _must_be_ours(home)
        with _exclusive(home / "start.lock"):
            if daemon := running(home):
                return daemon
            with tempfile.TemporaryFile(dir=home) as probe:
                os.posix_fallocate(probe.fileno(), 0, _ROOM_BYTES)
            return _launch(home, (containers or containers_dir()).resolve())
    except OSError as exc:
        message = f"The local platform cannot keep its state in {home}: {exc.strerror or exc}."
        hint = "Mend that, or name another folder: TOOLKIT_HOME=/path/to/folder. Nothing was created."
        raise PlatformError(message, hint=hint) from exc


def stop(home: Path) -> bool:
    """End the daemon and all its containers, and wait until nothing is left; False when there was none.

    Also removes what a daemon that was killed left behind. It needs no file of the daemon's but its lock.
    """
    home = home.resolve()
    if not home.is_dir():
        return False
    try:
        with _exclusive(home / "start.lock"):
            was_running = folders.is_locked(home / "daemon.lock")
            if was_running:
                pid = _holder(home)
                os.kill(pid, signal.SIGTERM)
                _wait_until_gone(home, pid)
            _clear(home)
            return was_running
    except OSError as exc:
        message = f"The local platform in {home} could not be stopped: {exc.strerror or exc}."
        raise PlatformError(message, hint="Mend that, and run the same command again.") from exc


def why_gone(home: Path) -> str:
    """Why the daemon of this home ended by itself, told once; empty if it was stopped, or there was none."""
    note, described = home / "daemon.ended", home / "daemon.json"
    try:
        why = note.read_text(errors="replace")
    except OSError:
        why = ""
    if not why and described.is_file():
        why = "The local platform was killed, or this machine was started again. Its endpoints went with it."
    with suppress(OSError):  # then it is said again
        note.unlink(missing_ok=True)
        described.unlink(missing_ok=True)
    return why


def idle_hours() -> float:
    """After how many hours without a request the daemon ends; 0 is never. Raises UsageError."""
    return _number(IDLE_HOURS, "hours", _IDLE_HOURS, "never")


def spare_minutes() -> float:
    """How long a process may wait to become the next container; 0 is none. Raises UsageError."""
    return _number(SPARE_MINUTES, "minutes", _SPARE_MINUTES, "none")


def _number(variable: str, unit: str, usual: float, zero: str) -> float:
    text = os.environ.get(variable) or str(usual)
    try:
        number = float(text)
    except ValueError:
        number = -1
    if 0 <= number < float("inf"):
        return number
    hint = f"Write for example {variable}={usual:g}; 0 is {zero}."
    raise UsageError(f"{variable}={text}: not a number of {unit}", hint=hint)


def _must_be_ours(home: Path) -> None:
    """Whoever owns the folder decides what is in it: for root, `chmod` alone proves nothing."""
    if home.stat().st_uid != os.geteuid():
        raise PlatformError(
            f"The local platform cannot keep its state in {home}: the folder belongs to another user.",
            hint=OF_ONES_OWN,
        )


def _launch(home: Path, containers: Path) -> LocalDaemon:
    _clear(home)
    ready, to_daemon = os.pipe()
    with open(home / "daemon.log", "wb", opener=for_owner) as log:
        program = python_command("-m", "toolkit.platforms.local", str(home), str(containers), str(to_daemon))
        launcher = start_process(program, home, _environment(), stdout=log, pass_fds=[to_daemon], umask=-1)
    os.close(to_daemon)
    launcher.wait()  # it leaves the daemon behind, as nobody's child
    # The daemon closes the pipe when it is ready; so does the kernel when it is dead.
    in_time = bool(select.select([ready], [], [], _START_TIMEOUT_S)[0])
    os.close(ready)
    if (daemon := _read_description(home)) and _is_alive(home):
        return daemon
    keeper.kill_session(launcher.pid)
    lines = (home / "daemon.log").read_text(errors="replace").splitlines()[-_LOG_LINES:]
    why = "\n  ".join(lines) if in_time else f"it was not ready within {_START_TIMEOUT_S:.0f} seconds"
    raise PlatformError(f"The local platform's daemon did not start: {why}", hint=f"Its log: {home / 'daemon.log'}")


def _environment() -> dict[str, str]:
    """What containers are started with; nothing that points to a real account; moto's objects on the disk."""
    inherited = own_variables(*BUILDERS, *OWN)
    return {name: value for name, value in inherited.items() if not name.startswith("AWS_")} | {
        "MOTO_DISABLE_GLOBAL_CORS": "true",  # no web page shall talk to it
        "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(1024**2),  # larger objects go to the disk
    }


def _wait_until_gone(home: Path, pid: int) -> None:
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while folders.is_locked(home / "daemon.lock"):
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _clear(home: Path) -> None:
    credentials_file(home).unlink(missing_ok=True)
    (home / "daemon.json").unlink(missing_ok=True)
    (home / "daemon.ended").unlink(missing_ok=True)
    folders.clear_leftovers(home)


def _read_description(home: Path) -> LocalDaemon | None:
    """What daemon.json says, None when it, or the key that it names, makes no sense."""
    try:
        daemon = documents.parse(LocalDaemon, documents.read_file(home / "daemon.json"))
        credentials.read(Path(daemon.credentials_file))
    except (OSError, ValueError, PlatformError):
        return None
    return daemon


def _is_alive(home: Path) -> bool:
    """Whether a daemon lives, or may: a lock that is missing beside daemon.json was deleted by somebody else."""
    lock = home / "daemon.lock"
    return folders.is_locked(lock) or (not lock.exists() and (home / "daemon.json").exists())


def _holder(home: Path) -> int:
    """The process that locks daemon.lock, by the kernel's own list. Raises PlatformError for one out of sight."""
    inode = str((home / "daemon.lock").stat().st_ino)
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        # 1: FLOCK  ADVISORY  WRITE 10523 fe:00:2146358 0 EOF; where somebody waits for it, `1: -> FLOCK` as well
        fields = line.split()
        if fields[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and fields[5].rpartition(":")[2] == inode:
            return int(fields[4])
    message = f"{home / 'daemon.lock'} is locked by a process that cannot be seen from here"
    raise PlatformError(message, hint="It runs in another container, or on another machine: end it there.")


@contextmanager
def _exclusive(file: Path) -> Iterator[None]:
    lock = os.open(file, os.O_RDONLY | os.O_CREAT, 0o600)  # one that exists can be locked on a read-only disk too
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
