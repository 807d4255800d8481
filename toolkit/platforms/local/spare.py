"""A process that has imported what the last container's program did, and waits to become the next container.

There is at most one, and it is made only while there is no endpoint, whose time and memory it would take. A container
that starts meanwhile takes it over, also while it still imports, or ends it. It then has the folder for temporary files
that its modules know already, and their home leads to its own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from toolkit.children import python_command, start_process
from toolkit.memory import free_bytes
from toolkit.platforms.local import folders, keeper
from toolkit.platforms.local.command import Command, spare_environment

_BYTES = 600 * 1024**2  # vLLM 0.32 with PyTorch on a CPU: 0.5 GB, measured
_LEAST_FREE_BYTES = 2 * 1024**3
_REQUEST_S = 2.0
_DEADLINE = "deadline"


def kept(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, grace_s: float
) -> subprocess.Popen[bytes]:
    """Start it under a keeper."""
    program = python_command("-I", keeper.__file__, str(grace_s), *command)
    return start_process(program, folder, environment, stdin=subprocess.PIPE)


@dataclass(frozen=True)
class Waiting:
    """A spare, for who asks from outside: the memory that it holds, and until when, in seconds since the epoch."""

    bytes: int
    until: float


def waiting(endpoints: Path) -> Waiting | None:
    """The spare of the daemon whose folder that is, if there is one."""
    folder = _folder(endpoints)
    with suppress(OSError, ValueError):  # it begins, or ends, or becomes a container at this moment
        left_s = float((folder / _DEADLINE).read_text()) - time.monotonic()
        members = keeper.session_members(int((folder / "session").read_text()))
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in members)
        return Waiting(pages * os.sysconf("SC_PAGE_SIZE"), time.time() + left_s)
    return None


def _folder(endpoints: Path) -> Path:
    return endpoints / "spare" / "0" / "spare"


@dataclass(frozen=True)
class Pattern:
    """How a container was started: the next one will be alike."""

    command: Command
    grace_s: float

    def is_like(self, other: Pattern) -> bool:
        """Whether what was imported for one is what the other imports.

        The program that waits compares, too, what it makes of the settings. What differs here already it is not asked:
        its imports may take long still, or fail by what the other one has corrected.
        """
        return self._of_imports() == other._of_imports()

    def _of_imports(self) -> tuple[object, ...]:
        variables = spare_environment(self.command)
        places = {"HOME", "TMPDIR"}  # which a spare takes over
        return self.command.spare, self.grace_s, {name: variables[name] for name in variables.keys() - places}


class Spares:
    """The spare of a daemon. It waits for `seconds`; 0 is never."""

    def __init__(self, endpoints: Path, seconds: float, free: Callable[[], int] = free_bytes) -> None:
        self.pattern: Pattern | None = None
        self._folder = _folder(endpoints)
        self._seconds = seconds
        self._free = free
        self._lock = threading.Lock()
        self._spare: Spare | None = None

    def look(self, *, is_idle: bool) -> None:
        """End a spare whose time is over; make one after the last endpoint, `is_idle`, if it may be."""
        with self._lock:
            if self._spare:
                is_over = time.monotonic() > self._spare.deadline or not self._are_free(_LEAST_FREE_BYTES)
                if is_over or not self._spare.is_kept():
                    self._end()
            elif is_idle and (pattern := self.pattern):
                self.pattern = None  # one for each time that an endpoint was there
                if self._seconds and pattern.command.spare and self._are_free(_LEAST_FREE_BYTES + _BYTES):
                    with suppress(OSError):  # it would only have saved time
                        self._spare = Spare(pattern, self._folder, time.monotonic() + self._seconds)

    @contextmanager
    def taken(self, folder: Path) -> Iterator[Spare | None]:
        """The spare in the folder of a container. It ends if it does not become that container."""
        with self._lock:
            spare, self._spare = self._spare, None
        try:
            yield spare if spare and spare.move(folder) else None
        finally:
            if spare and not spare.is_container:
                spare.end()

    def close(self) -> None:
        """End it; there will be no other."""
        with self._lock:
            self._seconds = 0
            self._end()
        shutil.rmtree(self._folder.parents[1], ignore_errors=True)

    def _are_free(self, wanted: int) -> bool:
        """Whether so many bytes are; not where that cannot be known, as with too many open files."""
        try:
            return self._free() >= wanted
        except OSError:
            return False

    def _end(self) -> None:
        if self._spare:
            self._spare.end()
            self._spare = None


class Spare:
    """One of them, started in a folder of its own, which it takes along into that of its container. Raises OSError."""

    def __init__(self, pattern: Pattern, folder: Path, deadline: float) -> None:
        self.is_container = False
        self.deadline = deadline
        self._pattern = pattern
        self._folder = folder
        try:
            (folder / "root").mkdir(parents=True)
            (folder / _DEADLINE).write_text(str(deadline))
            temporary = folders.temporary_folder(folder)
            self._home = temporary / "home"
            self._home.symlink_to(folder / "root")
            self._socket = temporary / "spare.sock"
            environment = {**spare_environment(pattern.command), "HOME": str(self._home), "TMPDIR": str(temporary)}
            command = [*pattern.command.spare, str(self._socket)]
            self._process = kept(command, environment, folder, pattern.grace_s)
        except OSError:
            folders.remove(folder)
            raise
        try:
            folders.write_session(folder, self._process.pid)
        except OSError:
            self.end()
            raise

    def is_kept(self) -> bool:
        """Whether its keeper lives; if not, that stays to be waited for, so that its number is nobody else's yet."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def move(self, folder: Path) -> bool:
        """Into the folder of a container, which gets its TMPDIR; False where that cannot be."""
        with suppress(OSError):  # as where somebody has cleaned /tmp
            self._home.unlink()
            self._home.symlink_to(folder / "root")
            self._folder = self._folder.rename(folder / "spare")
            (self._folder / "tmp").rename(folder / "tmp")  # last: the container keeps it
            return True
        return False

    def become(self, command: Command, folder: Path, grace_s: float) -> subprocess.Popen[bytes] | None:
        """The process, which is the container of that folder from now on; None where it cannot be."""
        is_alike = Pattern(command, grace_s).is_like(self._pattern)
        request = {"environment": dict(command.environment), "folder": str(folder)}
        with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
            if is_alike and self.is_kept():
                connection.settimeout(_REQUEST_S)
                connection.connect(str(self._socket))
                connection.sendall(json.dumps(request).encode())
                self.is_container = True
                return self._process
        return None

    def end(self) -> None:
        """End it at once, it holds nothing, and wait for that."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()
        with suppress(OSError):  # too many open files: then its keeper does it, whose input has ended
            keeper.kill_session(self._process.pid)
        self._process.wait()
        with suppress(OSError):
            folders.remove(self._folder)
