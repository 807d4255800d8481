"""A model's chat template, which may be anybody's: rendered in a process of its own, with bounds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from toolkit import documents
from toolkit.children import own_variables, python_command, start_process
from toolkit.errors import UnreadableModel
from toolkit.recipe.prompts import Message
from toolkit.training.rendering import MEMORY_EXIT, OUTPUT_EXIT


class Refused(ValueError):
    """The template does not take this conversation."""


class BoundPassed(Exception):
    """What a template did that no template may do."""


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


class Renderer:
    """The process that renders: it starts when it is first asked, and ends when this goes, whatever becomes of ours."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self._bounds, self._lock = bounds, Lock()  # answers of a server come in several threads
        self._child: subprocess.Popen[bytes] | None = None
        self._template, self._started_by = b"", 0

    def ask(self, template: bytes, request: bytes) -> Any:
        """Its answer to a request about that template. Raises BoundPassed."""
        with self._lock:
            child, self._child = self._child, None
            if child is None or self._started_by != os.getpid():  # a fork leaves its parent's to that
                child, self._template = self._start(), b""
                request = _line(vars(self._bounds)) + template + request
            elif template != self._template:
                request = template + request
            answer = None
            try:
                answer = _answer(child, request)
            finally:
                if answer is None:  # we are interrupted: nobody waits for it, and it would be no answer to the next
                    _end(child, os.getpid())
            if not answer.endswith(b"\n"):
                raise BoundPassed(self._passed(child.wait()))
            self._child, self._template = child, template
        return json.loads(answer)

    def _start(self) -> subprocess.Popen[bytes]:
        # Nothing that it says is shown: it could be of a text.
        command = python_command("-m", "toolkit.training.rendering")
        silent = subprocess.DEVNULL
        child = start_process(command, Path(__file__).parent, own_variables(), stdin=subprocess.PIPE, stderr=silent)
        weakref.finalize(self, _end, child, os.getpid())
        self._started_by = os.getpid()
        return child

    def _passed(self, code: int) -> str:
        passed = {
            -signal.SIGPROF: f"computes for more than {self._bounds.seconds:g} seconds",
            MEMORY_EXIT: f"takes more than {self._bounds.memory / 1024**2:,.0f} MiB of memory",
            OUTPUT_EXIT: f"makes a text of more than {self._bounds.output:,} characters",
        }
        return passed.get(code, f"ends its process with exit code {code}")


@cache
def shared_renderer() -> Renderer:
    """One for all models of this process: it takes a second to start."""
    return Renderer()


class Template:
    """A chat template with its variables; `source` names its file."""

    def __init__(self, text: str, variables: Mapping[str, Any], source: str, renderer: Renderer) -> None:
        self._source, self._renderer = source, renderer
        self._line = _line({"text": text, "variables": variables})
        self._failure = ""

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        ask: bool = False,
        marks: bool = False,
    ) -> Rendered:
        """The conversation; with `ask`, and then the beginning of an answer.

        Raises Refused, and UnreadableModel for a template that is none, or that passes a bound; then it does so always.
        """
        if not self._failure:
            shown = [_with_objects(message) for message in messages]
            answer = self._answer(_line({"messages": shown, "tools": list(tools), "ask": ask, "marks": marks}))
        if self._failure:
            hint = "Put the chat template of the model's publisher there, or train for another target."
            raise UnreadableModel(f"the chat template in {self._source} {self._failure}", hint=hint)
        if "text" not in answer:
            raise Refused
        return Rendered(answer["text"], answer["marks"])

    def _answer(self, request: bytes) -> Any:
        try:
            answer = self._renderer.ask(self._line, request)
        except BoundPassed as passed:
            self._failure = f"{passed} with one conversation"
            return {}
        if "broken" in answer:
            self._failure = f"is no template: {answer['broken']}"
        return answer


def _with_objects(message: Message) -> Message:
    """Arguments of calls, which are text in a request, as the objects that templates take. vLLM does the same."""
    if "tool_calls" not in message:
        return message
    calls = [{**call, "function": _with_object(call["function"])} for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}


def _with_object(function: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        found = documents.decode(function["arguments"]) if isinstance(function["arguments"], str) else None
    except ValueError:  # as it is, for the template to take or not
        return function
    return {**function, "arguments": found} if isinstance(found, dict) else function


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _answer(child: subprocess.Popen[bytes], request: bytes) -> bytes:
    """A line; less than one if the process ended."""
    assert child.stdin
    assert child.stdout
    try:
        child.stdin.write(request)
        child.stdin.flush()
        return child.stdout.readline()
    except BrokenPipeError:
        return b""


def _end(child: subprocess.Popen[bytes], started_by: int) -> None:
    if started_by == os.getpid():
        child.kill()
        child.communicate()
