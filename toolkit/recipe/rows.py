"""Rows of data files in JSONL, JSON, CSV or Parquet, each with its location: the file's name and the line.

Texts may be confidential, and a column may hold a secret: errors name files, lines and columns, and never show a value.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, BinaryIO

from toolkit import documents
from toolkit.errors import MissingPackage, UsageError

LIMITS = documents.Limits(size=256 * 1024**2)
"""Of one document: a line of JSONL, or a whole file of JSON or CSV."""

ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")

Row = tuple[str, Any]
"""A location such as `a.jsonl:7`, and what stands there: a UsageError for a line, or a whole file, that is not read."""

_SHAPES = 'A row needs a `prompt`, for example {"prompt": "Name three rivers."}; or `messages`, `turns` or `question`.'
_CAPTURED = b'{"captureData"'  # as SageMaker writes it
_PACKED = (".gz", ".bz2", ".xz", ".zip", ".zst")
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z_ -]{0,29}[0-9]{0,2}")


def rows(stream: BinaryIO, name: str, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a file, read as they are asked for. The ending of its name says what it is; JSONL if it says nothing.

    Of Parquet only `columns` are read, if it has any of them. Raises UsageError with the line that is wrong.
    """
    ending = PurePath(name).suffix.lower()
    if ending in _PACKED:
        return iter([(name, UsageError(f"{name}: it is compressed: unpack it first", hint="Or write it as Parquet."))])
    if ending == ".parquet":
        return _parquet(stream, name, columns)
    return _READERS.get(ending, _json_lines)(stream, name)


def decode(text: str | bytes, location: str) -> Any:
    """The value of a JSON text. Raises UsageError."""
    try:
        return documents.decode(text, LIMITS)
    except documents.Unfit as error:
        raise refusal(location, str(error)) from error


def refusal(location: str, problem: str) -> UsageError:
    """The error for a row that cannot be used."""
    return UsageError(f"{location}: {problem}", hint=_SHAPES)


def kind(value: Any) -> str:
    """What a value is, without showing it."""
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value), "a number")


def columns_of(row: Iterable[Any]) -> str:
    """Names of columns. What does not look like one is hidden: without a head, the first line's values are "names"."""
    names = [str(name) for name in row]
    shown = [f"`{name}`" for name in names if _COLUMN_NAME.fullmatch(name)]
    hidden = [f"{len(names) - len(shown)} unnamed"] if len(shown) < len(names) else []
    return f"the columns {', '.join([*shown, *hidden])}" if names else "no columns"


def _json_lines(stream: BinaryIO, name: str) -> Iterator[Row]:
    # splitlines() would split at U+2028 inside a text too.
    for number, line in enumerate(iter(lambda: stream.readline(LIMITS.size + 1), b""), 1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if text.strip():
            yield f"{name}:{number}", _decode_line(text, f"{name}:{number}")


def _decode_line(text: bytes, location: str) -> Any:
    """The value of a line, or what is wrong with it.

    A captured request beyond all bounds is one without content: whoever asks may send it.
    """
    try:
        return decode(text, location)
    except UsageError as error:
        return {"captureData": None} if text.startswith(_CAPTURED) else error


def _json(stream: BinaryIO, name: str) -> Iterator[Row]:
    """One list of rows; or a row on each line, as many data sets of the hub have it in files with this ending."""
    first = stream.readline(LIMITS.size + 1)
    stream.seek(0)
    if _is_row(first):
        yield from _json_lines(stream, name)
        return
    found = decode(_text(stream, name), name)
    if not isinstance(found, list):
        raise refusal(name, f"should be a list of rows, not {kind(found)}")
    yield from ((f"{name}, row {number}", row) for number, row in enumerate(found, 1))


def _is_row(line: bytes) -> bool:
    """Whether it is a whole object."""
    text = line.removeprefix(b"\xef\xbb\xbf").strip()
    try:
        return text.startswith(b"{") and isinstance(documents.decode(text, LIMITS), dict)
    except documents.Unfit:
        return False


def _csv(stream: BinaryIO, name: str, delimiter: str = ",") -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(_text(stream, name), newline=""), delimiter=delimiter, strict=True)
    while True:
        location = f"{name}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise refusal(location, f"it is not CSV: {error}") from error
        if row is None:
            return
        # The names of the columns stand on line 1; what is beyond them is under None.
        yield (f"{name}:2" if location.endswith(":1") else location), {k: v for k, v in row.items() if k is not None}


def _parquet(stream: BinaryIO, name: str, columns: Sequence[str]) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackage(f"{name}: reading Parquet needs the package pyarrow", extra="bench") from error
    try:
        file = pyarrow.parquet.ParquetFile(stream)
        known = [column for column in columns if column in file.schema_arrow.names]
        batches = file.iter_batches(batch_size=1, columns=known or None)  # a row may be large
        found = (row for batch in batches for row in batch.to_pylist())
        yield from ((f"{name}, row {number}", row) for number, row in enumerate(found, 1))
    except (pyarrow.ArrowException, OSError) as error:
        raise refusal(name, "it is not Parquet, or damaged") from error


def _text(stream: BinaryIO, name: str) -> str:
    content = stream.read(LIMITS.size + 1)
    if len(content) > LIMITS.size:
        raise refusal(name, f"it is larger than {LIMITS.size // 1024**2} MiB; JSONL and Parquet may be larger")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise refusal(f"{name}:{line}", "it is not UTF-8") from error


_READERS: Mapping[str, Callable[[BinaryIO, str], Iterator[Row]]] = {
    ".json": _json,
    ".csv": _csv,
    ".tsv": lambda stream, name: _csv(stream, name, "\t"),
}
