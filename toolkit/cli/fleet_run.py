"""One command for each recipe of a fleet, so many at a time: each is a process of its own, as if typed by itself.

So a fleet has no second road: each holds its own lease, writes its own record, and ends by Ctrl-C as it does alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolkit.children import python_command, start_process
from toolkit.cli.output import say

State = Literal["done", "failed", "interrupted", "not started"]
_INTERRUPTED = 130


@dataclass(frozen=True)
class Task:
    """A command for the recipe or endpoint `called`. Of those with one `host` one runs after the other.

    Lines that the user was `told` before are not shown again.
    """

    called: str
    name: str
    host: str
    arguments: tuple[str, ...]
    told: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Result:
    """How a task ended: `answer` is its JSON document, `last` the last step that it told of."""

    task: Task
    state: State = "not started"
    code: int | None = None
    seconds: float = 0.0
    answer: dict[str, Any] = field(default_factory=dict)
    last: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the JSON document of a fleet."""
        return {
            "called": self.task.called,
            "name": self.task.name,
            "state": self.state,
            "exit_code": self.code,
            "seconds": round(self.seconds, 1),
            "answer": self.answer or None,
        }


class Crew:
    """Runs tasks, `parallel` at a time. After a result that `stops` no more are begun; those that run are awaited."""

    def __init__(self, parallel: int, stops: Callable[[Result], bool]) -> None:
        self._parallel = parallel
        self._stops = stops
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._results: dict[str, Result] = {}
        self._is_over = False
        self.is_interrupted = False

    def run(self, tasks: Sequence[Task]) -> list[Result]:
        """The result of each task, in order. Ctrl-C ends all that run as it would each; once more kills them."""
        from concurrent.futures import ThreadPoolExecutor, wait

        hosts: dict[str, list[Task]] = {}
        for task in tasks:
            hosts.setdefault(task.host, []).append(task)
        with ThreadPoolExecutor(self._parallel) as threads:
            working = [threads.submit(self._work, one) for one in hosts.values()]
            while True:
                try:
                    wait(working)
                    break
                except KeyboardInterrupt:
                    self._interrupt()
        for one in working:
            one.result()
        return [self._results.get(task.called, Result(task)) for task in tasks]

    def _work(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            began = time.monotonic()
            with tempfile.TemporaryFile() as answer:
                with self._lock:
                    if self._is_over:
                        return
                    process = _start(task, answer.fileno())
                    self._running[task.called] = process
                last = self._follow(task, process)
                code = process.wait()
                answer.seek(0)
                document = _document(answer.read())
            with self._lock:
                del self._running[task.called]
                seconds = time.monotonic() - began
                result = Result(task, self._state(code), _as_exit_code(code), seconds, document, last)
                self._results[task.called] = result
                self._is_over = self._is_over or self._stops(result)

    def _state(self, code: int) -> State:
        if code == 0:
            return "done"
        return "interrupted" if self.is_interrupted and (code == _INTERRUPTED or code < 0) else "failed"

    def _follow(self, task: Task, process: subprocess.Popen[bytes]) -> str:
        """Show what it says with its name before each line; the last step of it."""
        last = ""
        assert process.stderr is not None
        with process.stderr:
            for raw in process.stderr:
                line = raw.decode(errors="replace").rstrip()
                if line.startswith("["):
                    last = line.partition("] ")[2]
                if line in task.told:
                    continue
                with self._lock:
                    say(f"{task.name}: {line}")
        return last

    def _interrupt(self) -> None:
        with self._lock:
            names = sorted(self._running)
            again, self.is_interrupted, self._is_over = self.is_interrupted, True, True
            if names and not again:
                say(f"interrupted: {len(names)} leave their leases; Ctrl-C again kills them")
            for process in self._running.values():
                if again:
                    process.kill()
                elif os.name == "posix":  # elsewhere Ctrl-C reaches them too
                    process.terminate()


def _start(task: Task, stdout: int) -> subprocess.Popen[bytes]:
    """Of the command that it is: with all of our variables, and in the folder that its paths begin in."""
    command = python_command("-m", "toolkit", *task.arguments)
    return start_process(command, Path.cwd(), os.environ, stdout=stdout, stderr=subprocess.PIPE, umask=-1)


def _document(text: bytes) -> dict[str, Any]:
    """Its answer; empty where it ended without one."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _as_exit_code(code: int) -> int:
    """As a shell counts one that a signal ended."""
    return code if code >= 0 else 128 - code
