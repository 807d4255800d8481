"""The command that runs in a container's stead on this machine: the program that the image stands for.

A process has no mounts of its own. So /opt/ml is a folder, its path stands in the environment wherever the request
says /opt/ml, and the entrypoint learns of it by SAGEMAKER_BASE_DIR (a variable of SageMaker's own container toolkits).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.children import python_command
from toolkit.engines import registry as engine_registry
from toolkit.home import cache
from toolkit.memory import free_bytes
from toolkit.platforms.local import folders, machine
from toolkit.platforms.local.aws import ACCOUNT, REGION
from toolkit.recipe.recipe import EngineRules
from toolkit.secret_values import secret_keys

_IMAGE = re.compile(r"(?:[^/]+/)?(?P<repository>[a-z0-9][a-z0-9._-]*):(?P<tag>[\w.-]+)")
_OPT_ML = re.compile(r"(?<![\w.-])/opt/ml(?![\w.-])")
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")


def entrypoint(image: str, containers: Path) -> Path | None:
    named = _IMAGE.fullmatch(image)
    if named is None or not named["tag"].endswith("-cpu") or not _runs_here(named["repository"]):
        return None
    program = containers / named["repository"] / "serve"
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
    return repository not in engine_registry.engines() or engine_registry.engine_rules(repository).cpu is not None


@dataclass(frozen=True)
class Command:
    """Serves in its folder, with exactly this environment. `removal` is a command that ends what it leaves behind.

    `socket` is where it listens; None is the port. `spare` is the program that imports what this one does and waits to
    become it, as far as a socket, which is its last argument; empty where there is none.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    removal: Sequence[str] = ()
    socket: Path | None = None
    spare: Sequence[str] = ()


Starter = Callable[[Path, int], Command]
"""Gives the command for a folder and a port of loopback."""


def process(program: Path, variables: Mapping[str, str], folder: Path, port: int) -> Command:
    """The program that the image stands for, without the image. It listens where only its user gets in."""
    unix_socket = folders.temporary_folder(folder) / "serve.sock"
    unix_socket.unlink(missing_ok=True)  # of the process before it
    environment = _environment(variables, folder, port, unix_socket)
    return Command(python_command(str(program)), environment, (), unix_socket, _spare(program, variables))


def spare_environment(command: Command) -> dict[str, str]:
    """What that command's container has, but for what is its own: its settings, which may hold keys, and its place."""
    return _without_own(command.environment)


def _without_own(variables: Mapping[str, str]) -> dict[str, str]:
    settings = [engine_registry.engine_rules(name).variable_prefix for name in engine_registry.engines()]
    own = (*settings, "SAGEMAKER_BASE_DIR", "SAGEMAKER_BIND_TO_PORT")
    return {name: value for name, value in variables.items() if not name.startswith(own)}


def _spare(program: Path, variables: Mapping[str, str]) -> Sequence[str]:
    """Empty, too, where the process that waits would hold what may be a secret of the container that was."""
    repository = program.parent.name
    known = repository in engine_registry.engines()
    cpu = engine_registry.engine_rules(repository).cpu if known else None
    if not (cpu and cpu.spare):
        return ()
    may_wait, waiting = tuple(cpu.spare_variables), _without_own(variables).items()
    if any(not name.startswith(may_wait) or [*secret_keys(name, value)] for name, value in waiting):
        return ()
    return python_command(str(cpu.spare), str(program))


def _environment(variables: Mapping[str, str], folder: Path, port: int, unix_socket: Path) -> dict[str, str]:
    """The container's whole environment: the image's, CreateModel's, SageMaker's own. Nothing of the user's account.

    The cache of the engine outlives it. What CreateModel leaves open is set for this machine's memory and CPU.
    """
    opt_ml = str(folder / "opt" / "ml")
    engines: list[EngineRules] = [
        engine_registry.engine_rules(name) for name in engine_registry.engines() if _runs_here(name)
    ]
    free, features, cores = free_bytes(), machine.cpu_features(), machine.cores()
    cpus = [engine.cpu for engine in engines if engine.cpu]
    defaults = [item for cpu in cpus for item in cpu.variables(variables, free, features, cores).items()]
    caches = {name: f"{cache()}/{folder}" for engine in engines for name, folder in engine.cache_folders.items()}
    return {
        **{name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
        "HOME": str(folder / "root"),
        "TMPDIR": str(folders.temporary_folder(folder)),
        "PYTHONUNBUFFERED": "1",
        **caches,
        **dict(defaults),
        **{name: _OPT_ML.sub(lambda _: opt_ml, value) for name, value in variables.items()},
        "AWS_REGION": REGION,
        "SAGEMAKER_BASE_DIR": opt_ml,
        "SAGEMAKER_BIND_TO_PORT": str(port),
        **{f"{engine.variable_prefix}UDS": str(unix_socket) for engine in engines},
    }
