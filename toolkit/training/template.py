"""A model's chat template, which may be anybody's: rendered in a process of its own, with bounds."""

from __future__ import annotations

import json
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from toolkit.children import python_command
from toolkit.errors import UnreadableModel
from toolkit.recipe.prompts import Message
from toolkit.training.rendering import MEMORY_EXIT, OUTPUT_EXIT


class Refused(ValueError):
    """The template does not take this conversation."""


@dataclass(frozen=True)
class Bounds:
    """Of one rendering: seconds of computing, bytes of memory, characters of output.

    A conversation has at most 16 MiB of text, and an ordinary one takes less than a millisecond.
    """

    seconds: float = 10.0
    memory: int = 2 * 1024**3
    output: int = 64 * 1024**2


BOUNDS = Bounds()


@dataclass(frozen=True)
class Rendered:
    """A conversation as text, and where in it the template marks an answer: first character, and that after it."""

    text: str
    marks: Sequence[tuple[int, int]]


class Template:
    """A chat template with its variables; `source` names its file.

    Its process starts with the first rendering, and ends when it is used no more, whatever becomes of ours.
    """

    def __init__(self, text: str, variables: Mapping[str, Any], source: str, bounds: Bounds = BOUNDS) -> None:
        self.text, self._source, self._bounds = text, source, bounds
        self._first = _line({"text": text, "variables": variables, **vars(bounds)})
        self._lock = Lock()  # answers of a server come in several threads
        self._child: subprocess.Popen[bytes] | None = None
        self._failure: UnreadableModel | None = None

    def render(self, messages: Sequence[Message], *, ask: bool = False, marks: bool = False) -> Rendered:
        """The conversation; with `ask`, and then the beginning of an answer.

        Raises Refused, and UnreadableModel for a template that is none, or that passes a bound; then it does so always.
        """
        request = _line({"messages": list(messages), "ask": ask, "marks": marks})
        with self._lock:
            if self._failure:
                raise self._failure
            answer = json.loads(self._asked(request))
            if "broken" in answer:
                self._failure = self._unusable(f"is no template: {answer['broken']}")
                raise self._failure
        if "text" not in answer:
            raise Refused
        return Rendered(answer["text"], answer["marks"])

    def _asked(self, request: bytes) -> bytes:
        # Who is interrupted here leaves an answer behind, so the next one starts another process.
        child, self._child = self._child, None
        if child is None:
            child, request = self._start(), self._first + request
        assert child.stdin
        assert child.stdout
        try:
            child.stdin.write(request)
            child.stdin.flush()
            answer = child.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer.endswith(b"\n"):
            self._failure = self._unusable(self._passed(child.wait()))
            raise self._failure
        self._child = child
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        # Nothing that it says is shown: it could be of a text.
        child = subprocess.Popen(
            python_command("-m", "toolkit.training.rendering"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        weakref.finalize(self, _end, child)
        return child

    def _passed(self, code: int) -> str:
        passed = {
            -signal.SIGPROF: f"computes for more than {self._bounds.seconds:g} seconds",
            MEMORY_EXIT: f"takes more than {self._bounds.memory / 1024**2:,.0f} MiB of memory",
            OUTPUT_EXIT: f"makes a text of more than {self._bounds.output:,} characters",
        }
        return f"{passed.get(code, f'ends its process with exit code {code}')} with one conversation"

    def _unusable(self, why: str) -> UnreadableModel:
        hint = "Put the chat template of the model's publisher there, or train for another target."
        return UnreadableModel(f"the chat template in {self._source} {why}", hint=hint)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()
