"""The results of a measurement in a file, for who carries it on: written as they come, read as a stream.

The first line says of which measurement they are. Then each line is a result, or the token ids of a prompt, which
stand there once: results name them by their number, from 0.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from toolkit import documents
from toolkit.endpoint.generation import Acceptance
from toolkit.errors import UsageError, reason
from toolkit.files import set_mode
from toolkit.measure.result import RequestResult
from toolkit.recipe.content import digest

_T = TypeVar("_T", bound=Hashable)
_LONGEST_LINE = documents.LIMITS.size
_IDS, _NUMBER = "prompt_token_ids", "prompt_ids"
_REPEATED = ("arm", "workload", "finish_reason", "outcome", "acceptance", "error", "prompt", "round", "prompt_tokens")


@dataclass(frozen=True)
class _Prompt:
    """A line with the token ids of a prompt."""

    prompt_token_ids: tuple[int, ...]


class Same:
    """Makes results share what they have in common, so that it takes memory once."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._last: dict[tuple[str, int], RequestResult] = {}

    def tokens(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Token ids, of which each number is one object."""
        return tuple(map(self._known.setdefault, ids, ids))

    def prompt(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The token ids of a prompt, which is asked many times."""
        whole = tuple(ids)
        return self._known.get(whole) or self._one(self.tokens(whole))

    def share(self, result: RequestResult) -> RequestResult:
        """The result itself; its answer is often that of the last request with its prompt."""
        for name in _REPEATED:
            object.__setattr__(result, name, self._one(getattr(result, name)))
        object.__setattr__(result, _IDS, self.prompt(result.prompt_token_ids))
        last = self._last.get(key := (result.workload, result.prompt))
        for name in ("text", "reasoning", "token_ids"):
            mine, before = getattr(result, name), getattr(last, name, None)
            if mine == before:
                object.__setattr__(result, name, before)
            elif name == "token_ids":
                object.__setattr__(result, name, self.tokens(mine))
        self._last[key] = result
        return result

    def _one(self, value: _T) -> _T:
        """The first value that was equal to it."""
        known: _T = self._known.setdefault(value, value)
        return known


class _Reader:
    """Makes results of a journal's lines, which share what they have in common."""

    def __init__(self) -> None:
        self.prompts: list[tuple[int, ...]] = []
        self._same = Same()

    def read(self, line: bytes) -> RequestResult | None:
        """None for the line of a prompt. Raises Unfit."""
        fields_of = documents.decode(line)
        if isinstance(fields_of, dict) and set(fields_of) == {_IDS}:
            self.prompts.append(self._same.prompt(documents.fit(_Prompt, fields_of).prompt_token_ids))
            return None
        if isinstance(fields_of, dict) and _NUMBER in fields_of:
            number = fields_of.pop(_NUMBER)
            if not isinstance(number, int) or not 0 <= number < len(self.prompts):
                raise documents.Unfit(f"`{_NUMBER}`: no prompt before has that number")
            result = replace(documents.fit(RequestResult, fields_of), prompt_token_ids=self.prompts[number])
        else:
            result = documents.fit(RequestResult, fields_of)
        return self._same.share(result)


def saved_results(path: Path) -> Iterator[RequestResult]:
    """The results in a journal, of whatever measurement, which may be going on. Raises UsageError."""
    try:
        with path.open("rb") as stream:
            documents.parse(dict[Literal["setting"], str], stream.readline(_LONGEST_LINE))
            reader = _Reader()
            yield from filter(None, map(reader.read, _whole_lines(stream)))
    except (OSError, documents.Unfit) as error:
        hint = "Give a file that `toolkit bench … --resume FILE` wrote."
        raise UsageError(f"{path} holds no results of a measurement: {reason(error)}", hint=hint) from error


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines but for a last one that was cut short."""
    while line := stream.readline(_LONGEST_LINE):
        if not line.endswith(b"\n"):
            if len(line) == _LONGEST_LINE:
                raise documents.Unfit(f"a line is longer than {_LONGEST_LINE} bytes")
            return
        yield line


class Journal:
    """The results of one measurement, readable by its owner only: they contain the answers' texts.

    `setting` is all that decides what is measured; a file with results of another setting is refused. Where the file
    cannot be written, or another process changes it meanwhile, the measurement goes on without, and `notes` says so.
    """

    def __init__(self, path: Path, setting: Mapping[str, Any]) -> None:
        self.path = path
        self.notes: tuple[str, ...] = ()
        self._head = {"setting": digest(setting)}
        self._prompts: dict[tuple[int, ...], int] = {}
        self._end = 0

    def results(self) -> Iterator[RequestResult]:
        """What was measured before, as a stream. A last line that was cut short is removed. Raises UsageError."""
        try:
            if hasattr(os, "geteuid") and self.path.is_file() and self.path.stat().st_uid != os.geteuid():
                # Somebody else has made it, and would read the answers.
                raise UsageError(f"{self.path} belongs to another user", hint="Write to a file of your own.")
            with self.path.open("rb") as stream:
                yield from self._read(stream)
        except FileNotFoundError:
            return
        except (OSError, documents.Unfit) as error:
            hint = "Write to another file to measure from the start."
            raise UsageError(f"{self.path} cannot be continued: {reason(error)}", hint=hint) from error

    def _read(self, stream: BinaryIO) -> Iterator[RequestResult]:
        head = stream.readline(_LONGEST_LINE)
        if head and documents.parse(dict[str, str], head) != self._head:
            hint = "Repeat the command that began it, or write to another file."
            raise UsageError(f"{self.path} holds the results of a measurement with another setting", hint=hint)
        reader, end = _Reader(), len(head) * head.endswith(b"\n")
        for line in _whole_lines(stream):
            end += len(line)
            if result := reader.read(line):
                yield result
        self._prompts = {ids: number for number, ids in enumerate(reader.prompts)}
        if end < os.fstat(stream.fileno()).st_size:
            os.truncate(self.path, end)
        self._end = end

    def add(self, results: Sequence[RequestResult]) -> None:
        """Save them."""
        if self.notes:
            return
        lines = [line for result in results for line in self._lines(result)]
        try:
            self.path.touch(mode=0o600)
            with self.path.open("ab") as stream:
                if stream.tell() != self._end:  # its results would name our prompts by its numbers
                    self.notes = (f"results were not saved to {self.path}: another process has changed it",)
                    return
                if stream.tell() == 0:
                    set_mode(stream, self.path, 0o600)
                    lines = [self._head, *lines]
                stream.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
                self._end = stream.tell()
        except OSError as error:
            self.notes = (f"results were not saved to {self.path}: {error.strerror}",)

    def _lines(self, result: RequestResult) -> Iterator[dict[str, Any]]:
        """A result's line, after that of its prompt if that is new. Keys with their default are left out."""
        line = {item.name: value for item in fields(result) if (value := getattr(result, item.name)) != item.default}
        line["arrivals"] = [{"seconds": item.seconds, "tokens": item.tokens} for item in result.arrivals[:]]
        if isinstance(result.acceptance, Acceptance):
            line["acceptance"] = {"histogram": result.acceptance.histogram}
        if ids := line.pop(_IDS, ()):
            if ids not in self._prompts:
                self._prompts[ids] = len(self._prompts)
                yield {_IDS: ids}
            line[_NUMBER] = self._prompts[ids]
        yield line
