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
from toolkit.secret_values import secret_keys

_BYTES = 600 * 1024**2  # vLLM 0.32 with PyTorch on a CPU: 0.5 GB, measured
_LEAST_FREE_BYTES = 2 * 1024**3
_REQUEST_S = 2.0


def kept(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, grace_s: float
) -> subprocess.Popen[bytes]:
    """Start it under a keeper."""
    program = python_command("-I", keeper.__file__, str(grace_s), *command)
    return start_process(program, folder, environment, stdin=subprocess.PIPE)


@dataclass(frozen=True)
class Pattern:
    """How a container was started: the next one will be alike."""

    command: Command
    grace_s: float


class Spares:
    """The spare of a daemon. It waits for `seconds`; 0 is never."""

    def __init__(self, endpoints: Path, seconds: float, free: Callable[[], int] = free_bytes) -> None:
        self.pattern: Pattern | None = None
        self._folder = endpoints / "spare" / "0" / "spare"
        self._seconds = seconds
        self._free = free
        self._deadline = 0.0
        self._lock = threading.Lock()
        self._spare: Spare | None = None

    def look(self, *, is_idle: bool) -> None:
        """End a spare whose time is over; make one after the last endpoint, `is_idle`, if it may be."""
        with self._lock:
            if self._spare:
                is_over = time.monotonic() > self._deadline or self._free() < _LEAST_FREE_BYTES
                if is_over or not self._spare.is_kept():
                    self._end()
            elif is_idle and (pattern := self.pattern):
                self.pattern = None  # one for each time that an endpoint was there
                if self._may_be_like(pattern.command):
                    self._deadline = time.monotonic() + self._seconds
                    with suppress(OSError):  # it would only have saved time
                        self._spare = Spare(pattern, self._folder)

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

    def _may_be_like(self, command: Command) -> bool:
        """Whether such a spare may wait: it would hold a secret of the container that was, as long as it does."""
        secret = [key for variable in spare_environment(command).items() for key in secret_keys(*variable)]
        has_room = self._free() >= _LEAST_FREE_BYTES + _BYTES
        return bool(self._seconds and command.spare and has_room and not secret)

    def _end(self) -> None:
        if self._spare:
            self._spare.end()
            self._spare = None


class Spare:
    """One of them, started in a folder of its own, which it takes along into that of its container. Raises OSError."""

    def __init__(self, pattern: Pattern, folder: Path) -> None:
        self.is_container = False
        self._pattern = pattern
        self._folder = folder
        try:
            (folder / "root").mkdir(parents=True)
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
        with suppress(OSError):
            (self._folder / "tmp").rename(folder / "tmp")
            self._folder = self._folder.rename(folder / "spare")
            self._home.unlink()
            self._home.symlink_to(folder / "root")
            return True
        return False

    def become(self, command: Command, folder: Path, grace_s: float) -> subprocess.Popen[bytes] | None:
        """The process, which is the container of that folder from now on; None where it cannot be."""
        is_alike = (command.spare, grace_s) == (self._pattern.command.spare, self._pattern.grace_s)
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
        keeper.kill_session(self._process.pid)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()
        folders.remove(self._folder)
