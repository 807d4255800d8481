"""The process of `answering`: started when it is first asked, and ended with ours, or where it passes a bound."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from toolkit.children import own_variables, python_command, start_process
from toolkit.home import cache

_KEPT_VARIABLES = ("PATH", "LANG", "LC_", "LD_LIBRARY_PATH", "PYTHON")


class NoAnswer(Exception):
    """The process that was asked did not say anything of the question. The text says why."""


@dataclass(frozen=True)
class Bounds:
    """Seconds until vLLM is imported; of an answer, seconds, and bytes of memory beyond what it then has."""

    start: float = 300.0
    seconds: float = 120.0
    memory: int = 4 * 1024**3


class Vllm:
    """The installed vLLM, or that in the folder `code`.

    If it `pretends`, on NVIDIA's GPUs, which need not be there; else on this machine's CPU.
    """

    def __init__(self, pretends: bool, bounds: Bounds = Bounds(), code: Path | None = None) -> None:
        self._pretends, self._bounds, self._code, self._lock = pretends, bounds, code, Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, question: Mapping[str, Any]) -> dict[str, str]:
        """Empty where vLLM takes it; else its words under `refused`, or under `failed`. Raises NoAnswer."""
        with self._lock:
            # Who is interrupted here leaves an answer behind, so the next one starts another process.
            child, self._child = self._child, None
            child = child or self._start()
            answer = _answer(child, question, self._bounds.seconds)
            self._child = child
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        folder = tempfile.TemporaryDirectory(prefix="toolkit-asks-")
        child = start_process(
            python_command("-m", "toolkit.engines.vllm.answering"),
            Path(folder.name),
            _environment(folder.name, self._code),
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        weakref.finalize(self, _end, child, folder)
        bounds = {"pretends": self._pretends, "seconds": self._bounds.seconds, "memory": self._bounds.memory}
        if failed := _answer(child, bounds, self._bounds.start):
            raise NoAnswer(failed["failed"])
        return child


def _environment(folder: str, code: Path | None) -> dict[str, str]:
    kept = {name: value for name, value in own_variables().items() if name.startswith(_KEPT_VARIABLES)}
    if code:
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(code), kept.get("PYTHONPATH"))))
    return {
        **kept,
        "HOME": folder,
        "TMPDIR": folder,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(cache() / "vllm"),  # what vLLM has found out of its classes of models
        "OMP_NUM_THREADS": "1",
    }


def _answer(child: subprocess.Popen[bytes], request: Mapping[str, Any], seconds: float) -> dict[str, str]:
    """The line that the process answers. Ends it, and raises NoAnswer, where there is none in time."""
    assert child.stdin
    assert child.stdout
    line, ends = b"", time.monotonic() + seconds
    with suppress(BrokenPipeError):
        child.stdin.write(json.dumps(request).encode() + b"\n")
        child.stdin.flush()
    while not line.endswith(b"\n"):
        left = ends - time.monotonic()
        if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
            _kill(child)
            raise NoAnswer(f"it took more than {seconds:.0f} s")
        part = os.read(child.stdout.fileno(), 65536)
        if not part:
            child.wait()
            child.communicate()  # which closes its pipes
            raise NoAnswer(f"its process ended with exit code {child.returncode}")
        line += part
    found: dict[str, str] = json.loads(line)
    return found


def _end(child: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
    _kill(child)
    folder.cleanup()


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End it and its forks."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
