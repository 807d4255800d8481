"""One container on this machine: a command that serves, its log, its health and its end.

The command is an engine's (`engine`), or the program that the image stands for, as a process with its own environment.
A process has no mounts of its own. So /opt/ml is a folder, its path stands in the environment wherever the request
says /opt/ml, and the entrypoint learns of it by SAGEMAKER_BASE_DIR (a variable of SageMaker's own container toolkits).
"""

from __future__ import annotations

import errno
import http.client
import os
import random
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.catalog import registry
from toolkit.home import cache
from toolkit.platforms.local import folders, keeper, machine
from toolkit.platforms.local.aws import ACCOUNT, REGION
from toolkit.platforms.local.host import Address
from toolkit.platforms.local.logs import LogStream

_KEEPER_S = 5.0  # beyond the grace time, for the keeper to end
_PING_TIMEOUT_S = 2.0  # SageMaker's own
_IMAGE = re.compile(r"(?:[^/]+/)?(?P<repository>[a-z0-9][a-z0-9._-]*):(?P<tag>[\w.-]+)")
_OPT_ML = re.compile(r"(?<![\w.-])/opt/ml(?![\w.-])")
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
# Below Linux's ephemeral ports, so that no outgoing connection takes the port before the container listens on it.
_PORTS = range(20000, 32768)


def entrypoint(image: str, containers: Path) -> Path | None:
    """The program that runs in that image, or None when this machine cannot run it."""
    found = _IMAGE.fullmatch(image)
    if found is None or not found["tag"].endswith("-cpu") or not _runs_here(found["repository"]):
        return None
    program = containers / found["repository"] / "serve"
    return program if program.is_file() else None


def runnable_images(containers: Path) -> list[str]:
    """The images that this machine can run, as patterns for a reader."""
    return sorted(
        f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/{program.parent.name}:<version>-cpu"
        for program in containers.glob("*/serve")
        if _runs_here(program.parent.name)
    )


def _runs_here(repository: str) -> bool:
    """Whether this machine can run images of that repository: all but those of engines that are not built for CPUs."""
    return repository not in registry.engines() or bool(registry.engine_rules(repository).cpu_package)


@dataclass(frozen=True)
class Command:
    """Serves in its folder, with exactly this environment. `removal` is a command that ends what it leaves behind.

    `socket` is where it listens; None is the port.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    removal: Sequence[str] = ()
    socket: Path | None = None


Starter = Callable[[Path, int], Command]
"""Gives the command for a folder and a port of loopback."""


def process(program: Path, variables: Mapping[str, str], folder: Path, port: int) -> Command:
    """The program that the image stands for, without the image. It listens where only its user gets in."""
    unix_socket = folders.temporary_folder(folder) / "serve.sock"
    unix_socket.unlink(missing_ok=True)  # of the process before it
    return Command([sys.executable, str(program)], _environment(variables, folder, port, unix_socket), (), unix_socket)


class Container:
    """A container that was started in `folder`, where its /opt/ml already is.

    It runs until `stop()`, until it ends by itself, or until the daemon is gone, whichever comes first.
    """

    def __init__(self, starter: Starter, folder: Path, log: LogStream, grace_s: float) -> None:
        port = free_port()
        self._folder = folder
        self._log = log
        self._grace_s = grace_s
        self._ended = threading.Event()
        command = starter(folder, port)
        self.address: Address = command.socket or port
        if command.removal:
            keeper.write_removal(folder, command.removal)
        self._process = subprocess.Popen(
            [sys.executable, "-I", keeper.__file__, str(grace_s), *command.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=command.environment,
            start_new_session=True,
        )
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
        connection = _Connection(self.address)
        try:
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
        """Copy its output to the log until it has ended."""
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


class _Connection(http.client.HTTPConnection):
    """To a port of this machine, or to a socket in a folder."""

    def __init__(self, address: Address) -> None:
        super().__init__("127.0.0.1", address if isinstance(address, int) else None, timeout=_PING_TIMEOUT_S)
        self._address = address

    def connect(self) -> None:
        if isinstance(self._address, int):
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_PING_TIMEOUT_S)
        self.sock.connect(str(self._address))


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


def _environment(variables: Mapping[str, str], folder: Path, port: int, unix_socket: Path) -> dict[str, str]:
    """The container's whole environment: the image's, CreateModel's, SageMaker's own. Nothing of the user's account.

    The cache of the engine outlives it. What CreateModel leaves open is set for this machine's memory and CPU.
    """
    opt_ml = str(folder / "opt" / "ml")
    engines = [registry.engine_rules(name) for name in registry.engines() if _runs_here(name)]
    free, features, cores = machine.free_bytes(), machine.cpu_features(), machine.cores()
    defaults = [item for engine in engines for item in engine.cpu_variables(variables, free, features, cores).items()]
    caches = [variable for engine in engines for variable in engine.cache_variables(str(cache())).items()]
    return {
        **{name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
        "HOME": str(folder / "root"),
        "TMPDIR": str(folders.temporary_folder(folder)),
        "PYTHONUNBUFFERED": "1",
        **dict(caches),
        **dict(defaults),
        **{name: _OPT_ML.sub(lambda _: opt_ml, value) for name, value in variables.items()},
        "AWS_REGION": REGION,
        "SAGEMAKER_BASE_DIR": opt_ml,
        "SAGEMAKER_BIND_TO_PORT": str(port),
        **{f"{engine.variable_prefix}UDS": str(unix_socket) for engine in engines},
    }
