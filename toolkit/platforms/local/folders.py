"""The folder of a container, and how to clear away what a daemon that was killed left in such folders.

    <home>/endpoints/<digest of the name>/<generation>/<variant>/
        opt/ml/     what the container sees as /opt/ml
        root/       its HOME
        tmp         a link to its TMPDIR
        environment the variables of a container that an engine runs
        session     the session of its processes
        removal     the command that removes it, where an engine runs it

`spare/0/spare/` is one, too: of the process that waits to become the next container (`spare`), until the `deadline`, in
seconds of the monotonic clock. Whoever takes it over has its `tmp` from then on, and the rest as `spare` in its own.

Standard library only: whoever starts the daemon clears away first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from toolkit.platforms.local import keeper

# vLLM's sockets are named by 36 characters, our folder by 16.
_LONGEST_TMPDIR = 50


def is_locked(file: Path) -> bool:
    """Whether a living process holds it. A shared lock asks, so that two who ask at once do not see each other."""
    try:
        with file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except BlockingIOError:
        return True
    return False


def endpoints_folder(home: Path) -> Path:
    return home / "endpoints"


def endpoint_folder(endpoints: Path, name: str) -> Path:
    """Where an endpoint's containers are. The name stays out of it: vLLM guesses a draft model's method from a path."""
    return endpoints / hashlib.sha256(name.encode()).hexdigest()[:12]


def temporary_folder(folder: Path) -> Path:
    """The container's TMPDIR. Its path is short: sockets are made in it, and their paths end at 107 characters."""
    link = folder / "tmp"
    if not link.is_symlink():
        usual = tempfile.gettempdir()
        short = usual if len(usual) <= _LONGEST_TMPDIR else "/tmp"  # noqa: S108 - mkdtemp's folders are its user's
        link.symlink_to(tempfile.mkdtemp(prefix="toolkit-", dir=short))
    return link.readlink()


def write_session(folder: Path, session: int) -> None:
    (folder / "session").write_text(str(session))


def remove(folder: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree((folder / "tmp").readlink(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def clear_leftovers(home: Path) -> None:
    """End and delete every container of a daemon that is dead."""
    for folder in endpoints_folder(home).glob("*/*/*/"):
        _kill_leftovers(folder)
        remove(folder)
    shutil.rmtree(endpoints_folder(home), ignore_errors=True)


def _kill_leftovers(folder: Path) -> None:
    """Kill the container's processes: those in the session that was noted, and at work in its folder.

    A number alone proves nothing, it may be somebody else's by now.
    """
    keeper.run_removal(folder)
    with suppress(FileNotFoundError, ValueError):
        session = int((folder / "session").read_text())
        for pid in keeper.session_members(session):
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder):
                    os.kill(pid, signal.SIGKILL)
