"""Prompts to measure with, from files: JSONL, JSON, CSV or Parquet, in the shapes that public prompt sets have.

Texts may be confidential, and a column may hold a secret: errors name files, lines and columns, and never show a value.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from toolkit import documents
from toolkit.errors import MissingPackage, UsageError

_LIMITS = documents.Limits(size=256 * 1024**2)
_SHAPES = 'A row needs a `prompt`, for example {"prompt": "Name three rivers."}; or `messages`, `turns` or `question`.'
# The first of these columns that a row has is its prompt. A request that was captured has it in `body`.
_PROMPT_COLUMNS = ("messages", "conversations", "turns", "prompt", "question")
_LENGTH_COLUMNS = ("max_tokens", "max_completion_tokens", "output_tokens")
# The roles of chat templates, and those of ShareGPT's data.
_ROLES = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool")},
    "human": "user",
    "gpt": "assistant",
}
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z_ -]{0,29}[0-9]{0,2}")


@dataclass(frozen=True)
class Prompt:
    """The messages of one chat. `max_tokens` limits its answer; None: the measurement's limit."""

    messages: tuple[Mapping[str, str], ...]
    max_tokens: int | None = None

    @property
    def text(self) -> str:
        """The last message: what the model answers."""
        return self.messages[-1]["content"]


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts in a file, in order. Raises UsageError with the line that is wrong."""
    try:
        content = documents.read_file(path, _LIMITS)
    except FileNotFoundError as error:
        hint = "Correct the path; in a recipe it is relative to the recipe's folder."
        raise UsageError(f"file {path} does not exist", hint=hint) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return parse_prompts(content, str(path))


def parse_prompts(content: bytes, name: str) -> tuple[Prompt, ...]:
    """The prompts in a file's content. The ending of its name says what it is; JSONL if it says nothing."""
    prompts, characters = [], 0
    for location, row in _READERS.get(PurePath(name).suffix.lower(), _json_lines)(content, name):
        prompts.append(prompt_of(row, location))
        characters += len(prompts[-1].text)
        if characters > _LIMITS.size:  # a packed file may be a few kilobytes
            raise _refusal(location, f"the file holds more than {_LIMITS.size // 1024**2} MiB of text")
    return tuple(prompts)


def prompt_of(row: Any, location: str) -> Prompt:
    """A row as a prompt: the first of several turns, without answers at the end."""
    if not isinstance(row, Mapping):
        raise _refusal(location, f"a row must be an object, not {_kind(row)}")
    if isinstance(row.get("body"), Mapping):
        row = row["body"]
    column = next((name for name in _PROMPT_COLUMNS if row.get(name) is not None), None)
    if column is None:
        raise _refusal(location, f"no prompt: the row has {_columns(row)}")
    messages = list(_messages(row[column], f"{location}: `{column}`"))
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    if not messages or not messages[-1]["content"].strip():
        raise _refusal(location, f"`{column}` is empty")
    return Prompt(tuple(messages), _max_tokens(row, location))


def _messages(value: Any, location: str) -> Iterator[Mapping[str, str]]:
    if isinstance(value, str) and value.startswith("[{"):  # a cell of a CSV file
        value = _decode(value, location)
    if isinstance(value, str):
        yield {"role": "user", "content": value}
    elif isinstance(value, list) and value and isinstance(value[0], str):
        yield {"role": "user", "content": value[0]}
    elif isinstance(value, list) and value:
        yield from (_message(item, location) for item in value)
    else:
        raise _refusal(location, f"should be text, turns or messages, not {_kind(value)}")


def _message(item: Any, location: str) -> Mapping[str, str]:
    if not isinstance(item, Mapping):
        raise _refusal(location, f"a message must be an object, not {_kind(item)}")
    role = _ROLES.get(str(item.get("role", item.get("from"))))
    if role is None:
        raise _refusal(location, f"a message's role must be one of {', '.join(_ROLES)}")
    return {"role": role, "content": _content(item.get("content", item.get("value")), location)}


def _content(value: Any, location: str) -> str:
    """A message's text; the parts of one that comes in parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in value]
        if all(isinstance(part, str) for part in parts):
            return "".join(map(str, parts))
    raise _refusal(location, "a message's content must be text; images and the like cannot be measured")


def _max_tokens(row: Mapping[str, Any], location: str) -> int | None:
    column = next((name for name in _LENGTH_COLUMNS if row.get(name) not in (None, "")), None)
    if column is None:
        return None
    value = row[column]
    number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise _refusal(location, f"`{column}` must be a whole number of at least 1")
    return number


def _json_lines(content: bytes, name: str) -> Iterator[tuple[str, Any]]:
    # splitlines() would split at U+2028 inside a prompt too.
    for number, line in enumerate(_text(content, name).split("\n"), 1):
        if line.strip():
            yield f"{name}:{number}", _decode(line, f"{name}:{number}")


def _json(content: bytes, name: str) -> Iterator[tuple[str, Any]]:
    rows = _decode(_text(content, name), name)
    if not isinstance(rows, list):
        raise _refusal(name, f"should be a list of rows, not {_kind(rows)}")
    yield from ((f"{name}, row {number}", row) for number, row in enumerate(rows, 1))


def _csv(content: bytes, name: str, delimiter: str = ",") -> Iterator[tuple[str, Any]]:
    reader = csv.DictReader(io.StringIO(_text(content, name), newline=""), delimiter=delimiter, strict=True)
    while True:
        location = f"{name}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise _refusal(location, f"it is not CSV: {error}") from error
        if row is None:
            return
        # The names of the columns stand on line 1; what is beyond them is under None.
        yield (f"{name}:2" if location.endswith(":1") else location), {k: v for k, v in row.items() if k is not None}


def _parquet(content: bytes, name: str) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackage(f"{name}: reading Parquet needs the package pyarrow", extra="bench") from error
    try:
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
        known = [column for column in (*_PROMPT_COLUMNS, *_LENGTH_COLUMNS) if column in file.schema_arrow.names]
        batches = file.iter_batches(batch_size=1, columns=known or None)  # a row may be large
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from ((f"{name}, row {number}", row) for number, row in enumerate(rows, 1))
    except (pyarrow.ArrowException, OSError) as error:
        raise _refusal(name, "it is not Parquet, or damaged") from error


_READERS: Mapping[str, Callable[[bytes, str], Iterator[tuple[str, Any]]]] = {
    ".json": _json,
    ".csv": _csv,
    ".tsv": lambda content, name: _csv(content, name, "\t"),
    ".parquet": _parquet,
}


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refusal(f"{name}:{line}", "it is not UTF-8") from error


def _decode(text: str, location: str) -> Any:
    try:
        return documents.decode(text, _LIMITS)
    except documents.Unfit as error:
        raise _refusal(location, str(error)) from error


def _columns(row: Iterable[Any]) -> str:
    """Names of columns. What does not look like one is hidden: without a head, the first line's values are "names"."""
    names = [str(name) for name in row]
    shown = [f"`{name}`" for name in names if _COLUMN_NAME.fullmatch(name)]
    hidden = [f"{len(names) - len(shown)} unnamed"] if len(shown) < len(names) else []
    return f"the columns {', '.join([*shown, *hidden])}" if names else "no columns"


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value), "a number")


def _refusal(location: str, problem: str) -> UsageError:
    return UsageError(f"{location}: {problem}", hint=_SHAPES)
