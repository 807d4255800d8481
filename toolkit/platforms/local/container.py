"""One container on this machine: a command that serves, its log in moto's CloudWatch, its health and its end.

The command is an engine's (`engine`), or the program that the image stands for (`command`).
"""

from __future__ import annotations

import errno
import http.client
import os
import random
import re
import select
import socket
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from moto.logs.exceptions import ResourceAlreadyExistsException, ResourceNotFoundException
from moto.logs.models import LogsBackend, logs_backends

from toolkit.platforms.local import folders, keeper
from toolkit.platforms.local.aws import ACCOUNT, HOME, log_group
from toolkit.platforms.local.command import Starter
from toolkit.platforms.local.host import Address
from toolkit.platforms.local.log_store import open_stream
from toolkit.platforms.local.spare import Pattern, Spares, kept

_KEEPER_S = 5.0  # beyond the grace time, for the keeper to end
_PING_TIMEOUT_S = 2.0  # SageMaker's own
# Below Linux's ephemeral ports, so that no outgoing connection takes the port before the container listens on it.
_PORTS = range(20000, 32768)
_LINE_END = re.compile(rb"[\r\n]+")  # progress bars end their lines with \r
_LONGEST_LINE = 256 * 1024  # CloudWatch's limit for one event


class LogStream:
    """A log stream of an endpoint's log group; bytes go in, one event per line comes out. Its files are in `folder`.

    It is made with its first line: made earlier, it would seem to be older than its endpoint, and of another one.
    It writes to moto in this process: through HTTP each write would cost some milliseconds of the CPU that the model
    decodes on.
    """

    def __init__(self, endpoint: str, name: str, folder: Path) -> None:
        self.arn = HOME.log_stream_arn(endpoint, name)
        self._group, self._name = log_group(endpoint), name
        self._backend: LogsBackend = logs_backends[ACCOUNT][HOME.name]
        self._folder = folder
        self._unfinished = b""

    def write(self, text: bytes) -> None:
        """Add the complete lines of `text`; an unfinished last line waits for its end."""
        *lines, self._unfinished = _LINE_END.split(self._unfinished + text)
        if len(self._unfinished) >= _LONGEST_LINE:
            lines.append(self._unfinished)
            self._unfinished = b""
        now_ms = int(time.time() * 1000)
        events = [{"timestamp": now_ms, "message": line.decode(errors="replace")} for line in lines if line]
        if events:
            self._put(events)

    def close(self) -> None:
        """Write the line that was never ended, if there is one."""
        self.write(b"\n")

    def _put(self, events: list[dict[str, Any]]) -> None:
        try:
            self._backend.put_log_events(self._group, self._name, events)
        except ResourceNotFoundException:  # the first line, or the user has deleted it; SageMaker makes it again
            self._create()
            self._backend.put_log_events(self._group, self._name, events)

    def _create(self) -> None:
        with suppress(ResourceAlreadyExistsException):
            self._backend.create_log_group(self._group, {})
        open_stream(self._backend.groups[self._group], self._name, self._folder)


class Container:
    """A container that was started in `folder`, where its /opt/ml already is.

    It runs until `stop()`, until it ends by itself, or until the daemon is gone, whichever comes first.
    """

    def __init__(
        self, starter: Starter, folder: Path, log: LogStream, grace_s: float, spares: Spares | None = None
    ) -> None:
        port = free_port()
        self._folder = folder
        self._log = log
        self._grace_s = grace_s
        self._ended = threading.Event()
        with spares.taken(folder) if spares else nullcontext() as spare:
            command = starter(folder, port)
            if command.removal:
                keeper.write_removal(folder, command.removal)
            process = spare.become(command, folder, grace_s) if spare else None
            self._process = process or kept(command.arguments, command.environment, folder, grace_s)
        self.pattern = Pattern(command, grace_s)
        self.address: Address = command.socket or port
        threading.Thread(target=self._follow, name=f"log of {folder}", daemon=True).start()
        try:
            folders.write_session(folder, self._process.pid)
        except OSError:
            self.stop()
            raise

    def ended(self, timeout_s: float | None = None) -> bool:
        """True once no process is left and the last line is in the log; waits for that up to `timeout_s`."""
        return self._ended.wait(timeout_s)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 + N when signal N ended it."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def answers_ping(self) -> bool:
        """Whether GET /ping says 200, as SageMaker asks it."""
        port = self.address if isinstance(self.address, int) else None
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PING_TIMEOUT_S)
        try:
            if isinstance(self.address, Path):
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(_PING_TIMEOUT_S)
                connection.sock.connect(str(self.address))
            connection.request("GET", "/ping")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """End all its processes and wait for that: SIGTERM, and SIGKILL after the grace time."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if not self._ended.wait(self._grace_s + _KEEPER_S):  # the keeper does not do it: somebody has stopped it
            keeper.kill_session(self._process.pid)
            self._ended.wait()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        keeper_ended = os.pidfd_open(self._process.pid)
        sources, timeout_s = [output, keeper_ended], None
        while ready := select.select(sources, [], [], timeout_s)[0]:
            if keeper_ended in ready:
                # All is over, except when the keeper itself was killed. What the pipe holds is still to be read, but
                # a process that fled to another session may keep it open: one second of silence is enough.
                keeper.kill_session(self._process.pid)
                if self._process.wait() < 0:
                    keeper.run_removal(self._folder)
                sources, timeout_s = [output], 1.0
                continue
            written = os.read(output, 65536)
            if not written:
                break
            self._log.write(written)
        self._log.close()
        os.close(keeper_ended)
        self._process.stdout.close()
        self._process.wait()
        self._ended.set()


def free_port(candidates: range = _PORTS) -> int:
    """A port on loopback that nobody listens on. Raises OSError when there is none."""
    for port in random.sample(candidates, len(candidates)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
    raise OSError(errno.EADDRINUSE, f"no port from {candidates[0]} to {candidates[-1]} is free on 127.0.0.1")
