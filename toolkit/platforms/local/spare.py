"""A process that has imported what the last container's program did, and waits to become the next container.

There is at most one, and only while there is no endpoint: it takes no time and no memory from any. Nobody waits for it:
a start that finds it dead, or not ready, ends it and goes on without.
"""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolkit.children import python_command, start_process
from toolkit.memory import free_bytes
from toolkit.platforms.local import folders, keeper
from toolkit.platforms.local.command import Command, spare_environment

_BYTES = 600 * 1024**2  # vLLM 0.32 with PyTorch on a CPU: 550 MB
_LEAST_FREE_BYTES = 2 * 1024**3
_LOOK_S = 5.0
_ANSWER_S = 2.0


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

    def __init__(self, endpoints: Path, seconds: float) -> None:
        self.pattern: Pattern | None = None
        self._folder = endpoints / "spare"
        self._seconds = seconds
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._spare: Spare | None = None

    def start(self) -> None:
        """Begin to make one, where there was a container to be like, and there is memory for it."""
        pattern = self.pattern
        if self._seconds and pattern and pattern.command.spare and free_bytes() >= _LEAST_FREE_BYTES + _BYTES:
            with self._lock, suppress(OSError):  # it would only have saved time
                if self._spare and self._spare.waits:
                    return
                self._spare = Spare(pattern, self._folder / str(next(self._numbers)) / "spare", self._seconds)

    def take(self, folder: Path) -> Spare | None:
        """The spare for the container of that folder, if it is ready; if it is not, it ends."""
        with self._lock:
            spare, self._spare = self._spare, None
        return spare if spare and spare.take(folder) else None

    def close(self) -> None:
        """End it and wait for that."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare:
            spare.end()
            spare.wait()


class Spare:
    """One of them, in a folder of its own, until it is taken or something speaks against it."""

    def __init__(self, pattern: Pattern, folder: Path, seconds: float) -> None:
        self._pattern = pattern
        self._folder = folder
        self._seconds = seconds
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._taken = False
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(_ANSWER_S)
        home = folder / "root"
        home.mkdir(parents=True)
        temporary = folders.temporary_folder(folder)
        # Where modules have found the home when they were imported. Whoever takes the spare over has another one.
        self._home = temporary / "home"
        self._home.symlink_to(home)
        self._socket = temporary / "spare.sock"
        environment = {**spare_environment(pattern.command), "HOME": str(self._home), "TMPDIR": str(temporary)}
        self._process = kept([*pattern.command.spare, str(self._socket)], environment, folder, pattern.grace_s)
        folders.write_session(folder, self._process.pid)
        self._keeping = threading.Thread(target=self._keep, name="spare", daemon=True)
        self._keeping.start()

    @property
    def waits(self) -> bool:
        """Whether nothing speaks against it so far."""
        return not self._over.is_set()

    def take(self, folder: Path) -> bool:
        """Whether it is ready; then its TMPDIR is that of the container's folder, and its home leads there."""
        with self._lock, suppress(OSError):
            self._connection.connect(str(self._socket))
            (self._folder / "tmp").rename(folder / "tmp")
            self._home.unlink()
            self._home.symlink_to(folder / "root")
            return True
        self.end()
        return False

    def become(self, command: Command, folder: Path, grace_s: float) -> subprocess.Popen[bytes] | None:
        """The process, which is that container from now on; None where it will not be, and ends."""
        request = {"environment": dict(command.environment), "folder": str(folder)}
        is_alike = (command.spare, grace_s) == (self._pattern.command.spare, self._pattern.grace_s)
        with self._lock, self._connection, suppress(OSError):
            if is_alike and self.waits:
                self._connection.sendall(json.dumps(request).encode() + b"\n")
                if self._connection.recv(1):
                    self._taken = True
                    self._over.set()
                    return self._process
        self.end()
        return None

    def end(self) -> None:
        """Begin to end it."""
        assert self._process.stdin
        self._over.set()
        self._process.stdin.close()

    def wait(self) -> None:
        """Until nothing is left of it."""
        self._keeping.join()

    def _keep(self) -> None:
        deadline = time.monotonic() + self._seconds
        while not self._over.wait(_LOOK_S):
            if time.monotonic() > deadline or free_bytes() < _LEAST_FREE_BYTES or self._process.poll() is not None:
                break
        with self._lock:
            if not self._taken:
                self.end()
        self._process.wait()
        if not self._taken:  # else both are the container's
            assert self._process.stdout
            self._process.stdout.close()
            self._connection.close()
        folders.remove(self._folder)
        with suppress(OSError):
            self._folder.parent.rmdir()
