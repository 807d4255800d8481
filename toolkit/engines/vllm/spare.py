"""A vLLM server whose imports are done before anybody knows what it shall serve: `python spare.py SERVE SOCKET`.

SERVE is the program of vLLM's image. At SOCKET one request is taken, as JSON: the `environment` and the `folder` that
SERVE is to have, which runs in this process from then on. vLLM's server does, too, where its modules have read what
they would read now, and are the ones that would be read; else it is executed, as SERVE does by itself. Until then
nothing is said.

Modules read the home and the folder for temporary files when they are imported. So those must be the ones that are to
come, or lead there.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

# Besides what becomes flags: where things are, which vLLM is not told by variables.
_MAY_DIFFER = ("HOME", "SAGEMAKER_BASE_DIR", "SAGEMAKER_BIND_TO_PORT")


def main(serve: str, place: str) -> int:
    """The exit code, of an image's program."""
    began = time.time_ns()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(1)
    # Where nothing says what the language is, Python chooses, before anything of a program runs.
    by_python = {name: value for name, value in os.environ.items() if name == "LC_CTYPE"}
    program = runpy.run_path(serve)
    entrypoint = import_module("entrypoint")  # which SERVE has made findable
    imported = entrypoint.vllm_environment(os.environ)
    installed = _changed(sys.path)
    _set_environment(imported)
    said = _import(entrypoint.SERVER)
    read = _changed({serve, *_module_files()})
    # One that was changed meanwhile may have been read before that.
    are_of_one_time = all(changed is None or changed < began for changed in read.values())
    del sys.modules[entrypoint.SERVER]
    gc.collect()
    gc.freeze()  # what is here stays: to look at it again and again is half of what is left of a start
    by_imports = {name: value for name, value in os.environ.items() if imported.get(name) != value}

    request = _request(listener)
    os.chdir(request["folder"])
    _set_environment({**by_python, **request["environment"]})
    sys.argv = [serve]

    def run() -> None:
        started = program["start"]()
        arguments = entrypoint.arguments(started.options)
        changed = {name for name, _ in started.env.items() ^ imported.items()}
        differing = {name for name in changed if not name.startswith(entrypoint.PREFIX)}
        is_server = arguments[:2] == ["-m", entrypoint.SERVER]
        is_current = are_of_one_time and installed == _changed(installed) and read == _changed(read)
        if not (is_server and differing.issubset(_MAY_DIFFER) and is_current):
            entrypoint.become_vllm(started)
        sys.stderr.buffer.write(said)
        _set_environment({**started.env, **by_imports})
        sys.argv = arguments[1:]
        runpy.run_module(entrypoint.SERVER, run_name="__main__", alter_sys=True)

    code: int = entrypoint.exit_code(run)
    return code


def _import(module: str) -> bytes:
    """Import it; gives what was said meanwhile, as the first word is SERVE's."""
    outputs = {number: os.dup(number) for number in (1, 2)}
    with tempfile.TemporaryFile() as said:
        for number in outputs:
            os.dup2(said.fileno(), number)
        gc.disable()  # modules stay: to look through them again and again takes a fifth of the time
        try:
            import_module(module)
        finally:
            gc.enable()
            sys.stdout.flush()
            sys.stderr.flush()
            for number, output in outputs.items():
                os.dup2(output, number)
                os.close(output)
        said.seek(0)
        return said.read()


def _module_files() -> set[str]:
    return {file for module in [*sys.modules.values()] if isinstance(file := getattr(module, "__file__", None), str)}


def _changed(paths: Iterable[str]) -> dict[str, int | None]:
    """When each was changed, as Python's folders are with each package that is installed; None where it is not."""
    return {path: _when_changed(path) for path in paths}


def _when_changed(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - of thousands, in half the time
    except OSError:
        return None


def _request(listener: socket.socket) -> dict[str, Any]:
    connection, _ = listener.accept()
    with listener, connection, connection.makefile("rb") as stream:
        request: dict[str, Any] = json.load(stream)
    return request


def _set_environment(variables: Mapping[str, str]) -> None:
    """Touch only what changes: setproctitle, by which vLLM names its processes, finds its place by the first one."""
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in variables.items() if os.environ.get(name) != value})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
