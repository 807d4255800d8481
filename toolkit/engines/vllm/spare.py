"""A vLLM server whose imports are done before anybody knows what it shall serve: `python spare.py SERVE SOCKET`.

SERVE is the program of vLLM's image. At SOCKET one request is taken, as JSON: the `environment` and the `folder` that
SERVE is to have, which runs in this process from then on. vLLM's server does, too, where its modules have read what
they would read now; else it is executed, as SERVE does by itself. Until then nothing is said.

Modules read the home and the folder for temporary files when they are imported. So those must be the ones that are to
come, or lead there.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

_OUTPUTS = (1, 2)
# Besides what becomes flags: where things are, which vLLM is not told by variables.
_MAY_DIFFER = ("HOME", "SAGEMAKER_BASE_DIR", "SAGEMAKER_BIND_TO_PORT")


def main(serve: str, place: str) -> int:
    """The exit code, of an image's program."""
    outputs = {number: os.dup(number) for number in _OUTPUTS}
    null = os.open(os.devnull, os.O_WRONLY)
    for number in outputs:
        os.dup2(null, number)
    os.close(null)

    # Where nothing says what the language is, Python chooses, before anything of a program runs.
    by_python = {name: value for name, value in os.environ.items() if name == "LC_CTYPE"}
    program = runpy.run_path(serve)
    entrypoint = import_module("entrypoint")  # which SERVE has made findable
    imported = entrypoint.vllm_environment(os.environ)
    _set_environment(imported)
    folders = [Path(folder) for folder in sys.path if Path(folder).is_dir()]
    installed = _changed(folders)
    _import(entrypoint.SERVER)
    found = {name: value for name, value in os.environ.items() if imported.get(name) != value}
    request = _wait(Path(place))

    for number, output in outputs.items():
        os.dup2(output, number)
        os.close(output)
    os.chdir(request["folder"])
    _set_environment({**by_python, **request["environment"]})
    sys.argv = [serve]

    def run() -> None:
        started = program["start"]()
        arguments = entrypoint.arguments(started.options)
        changed = {name for name, _ in started.env.items() ^ imported.items()}
        differing = {name for name in changed if not name.startswith(entrypoint.PREFIX)}
        is_server = arguments[:2] == ["-m", entrypoint.SERVER]
        if is_server and differing.issubset(_MAY_DIFFER) and installed == _changed(folders):
            _set_environment({**started.env, **found})
            sys.argv = arguments[1:]
            runpy.run_module(entrypoint.SERVER, run_name="__main__", alter_sys=True)
        else:
            entrypoint.become_vllm(started)

    code: int = entrypoint.exit_code(run)
    return code


def _import(module: str) -> None:
    """Import it in a thread that gives way to all others, as a priority that is lowered cannot be raised again."""

    def with_low_priority() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        import_module(module)
        del sys.modules[module]  # it will be the main module

    importing = threading.Thread(target=with_low_priority)
    importing.start()
    importing.join()
    ours = {str(os.getpid()), str(importing.native_id)}  # the kernel may still have the one that ended
    if others := {task.name for task in Path("/proc/self/task").iterdir()} - ours:
        sys.exit(f"{module} has begun {len(others)} threads, whose priority would stay low")


def _changed(folders: Sequence[Path]) -> list[int]:
    """When entries of Python's folders were made or removed, as they are with each package that is installed."""
    return [folder.stat().st_mtime_ns for folder in folders]


def _wait(place: Path) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(1)
        connection, _ = listener.accept()
    with connection, connection.makefile("rb") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
        connection.sendall(b"taken\n")
    return request


def _set_environment(variables: Mapping[str, str]) -> None:
    """Touch only what changes: setproctitle, by which vLLM names its processes, finds its place by the first one."""
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in variables.items() if os.environ.get(name) != value})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
