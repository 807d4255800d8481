"""Traces of requests from files, in the formats that public ones have, and requests at a rate."""

from __future__ import annotations

import io
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from toolkit.errors import MissingPackage, UsageError
from toolkit.measure.queue import Request
from toolkit.recipe.captured import Captured, is_captured, read_capture
from toolkit.recipe.prompts import Prompt, prompt_of
from toolkit.recipe.rows import ENDINGS, Row, columns_of, kind, rows
from toolkit.training.sources import Objects
from toolkit.words import suggest

_EXAMPLE = 'Write on each line: {"at": 12.5, "prompt_tokens": 800, "answer_tokens": 200}, with `at` in seconds.'
BLOCK = 512
"""Tokens that one of a request's `blocks` stands for, as in Mooncake's `hash_ids`: of the last there may be fewer."""


@dataclass(frozen=True)
class _Format:
    """The names of columns, and how many seconds a unit of `at` has; with 0 it is a date.

    Each of the `blocks` has `block_tokens`. A column `mark` tells it from another format with the same columns.
    """

    name: str
    at: str
    prompt_tokens: str
    answer_tokens: str
    unit: float = 1.0
    blocks: str = ""
    block_tokens: int = BLOCK
    mark: str = ""

    @property
    def keys(self) -> tuple[str, str, str]:
        return self.at, self.prompt_tokens, self.answer_tokens

    def is_of(self, row: Mapping[str, Any]) -> bool:
        return row.keys() >= {*self.keys, *filter(None, [self.mark])}


_OURS = _Format("", "at", "prompt_tokens", "answer_tokens")
_FORMATS = (
    _OURS,
    # https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon: Mooncake's columns in other units
    _Format("Qwen-Bailian", "timestamp", "input_length", "output_length", 1.0, "hash_ids", 16, "parent_chat_id"),
    # https://github.com/kvcache-ai/Mooncake/tree/main/FAST25-release/traces
    _Format("Mooncake", "timestamp", "input_length", "output_length", 0.001, "hash_ids"),
    # https://github.com/HPMLL/BurstGPT#schema
    _Format("BurstGPT", "Timestamp", "Request tokens", "Response tokens"),
    # https://github.com/Azure/AzurePublicDataset: AzureLLMInferenceDataset2023.md and 2024
    _Format("Azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", 0.0),
)
_FAILED = "requests that failed when they were recorded (no response tokens)"
_NO_TOKENS = {
    "Response tokens": _FAILED,
    "GeneratedTokens": _FAILED,
    "Request tokens": "requests without request tokens",
    "ContextTokens": "requests without request tokens",
}
_COLUMNS = tuple(name for one in _FORMATS for name in (*one.keys, one.blocks, one.mark) if name)
# What other traces call the same.
_OTHERS = {
    **dict.fromkeys(("timestamp", "arrival", "arrived_at"), "at"),
    **dict.fromkeys(("input_length", "contexttokens", "input_tokens"), "prompt_tokens"),
    **dict.fromkeys(("output_length", "generatedtokens", "output_tokens"), "answer_tokens"),
}
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|min|h))?")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_LONGEST, _YEAR = 10_000_000, 366 * 86400.0
_LATEST = 1e11  # seconds since 1970 in the year 5138; as milliseconds, in 1973
# Simulating more takes minutes, and changes the 90th percentile by little.
_MOST_REQUESTS = 20_000
_FEWEST_REQUESTS, _LEAST_RATE = 3_000, 1 / 3600


@dataclass(frozen=True, slots=True)
class Traced:
    """A request of a trace: when it came, in seconds, its tokens, and where it stands.

    `blocks` are names of the blocks of 512 tokens that its prompt is made of: as far as those of two requests are the
    same, their prompts begin alike. Captured traffic has the `prompt` itself, and tokens only where its record does.
    """

    at: float
    prompt_tokens: int | None
    answer_tokens: int | None
    where: str
    blocks: tuple[int | str, ...] = ()
    prompt: Prompt | None = field(default=None, repr=False)

    @property
    def request(self) -> Request:
        """As a queue knows it. Raises UsageError where its tokens are not known."""
        if self.prompt_tokens is None or self.answer_tokens is None:
            hint = f"Capture answers that are not streamed, too. Or: {_EXAMPLE}"
            raise UsageError(f"{self.where}: the record does not tell how many tokens it has", hint=hint)
        return Request(self.at, self.prompt_tokens, self.answer_tokens)


@dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival, the first at 0. `notes` say what was left out."""

    name: str
    requests: tuple[Traced, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Requests per second."""
        return mean_rate(self.requests)


def read_trace(source: str | Path, objects: Objects | None = None) -> Trace:
    """The requests of a file, or of `s3://…`, a prefix of captured traffic that `objects` reads. Raises UsageError.

    A row has the keys of our own, of a public trace's (`_FORMATS`), or is a record of SageMaker's data capture.
    """
    path, left_out = Path(source), Counter[str]()
    if str(source).startswith("s3://"):
        if objects is None:
            hint = "Measure an endpoint on SageMaker, or copy the files into one and give its path."
            raise UsageError(f"{source} can be read only with a platform that has S3", hint=hint)
        lines = (row for name, content in objects(str(source)) for row in rows(io.BytesIO(content), name, ()))
        return _from_the_first(str(source), "captured", _requests(lines, left_out), left_out)
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path} is no trace: its name ends in none of {', '.join(ENDINGS)}", hint=_EXAMPLE)
    try:
        with path.open("rb") as stream:
            found = _requests(rows(stream, str(path), _COLUMNS), left_out)
            return _from_the_first(str(path), path.stem, found, left_out)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="Correct the path of the trace.") from error


def _from_the_first(source: str, name: str, found: Iterable[Traced], left_out: Mapping[str, int]) -> Trace:
    read = _spread(sorted(found, key=lambda one: one.at))
    if not read:
        others = "".join(f"; {number} {what}" for what, number in left_out.items())
        raise UsageError(f"{source} has no requests{others}", hint=_EXAMPLE)
    first = read[0].at
    if first > _LATEST:
        message = f"{read[0].where}: `at` must be in seconds; {first:.0f} are milliseconds since 1970, or less"
        raise UsageError(message, hint=f"Divide milliseconds by 1,000. {_EXAMPLE}")
    if read[-1].at - first > _YEAR:
        raise UsageError(f"{read[-1].where}: `at` must be in seconds; it is a year after the first", hint=_EXAMPLE)
    notes = tuple(f"Left out of the trace: {number:,} {what}" for what, number in left_out.items())
    return Trace(name, tuple(replace(one, at=one.at - first) for one in read), notes)


def _spread(requests: Sequence[Traced]) -> list[Traced]:
    """Captured times are whole seconds: the requests of one come evenly in it, not all at once."""
    found: list[Traced] = []
    for at, together in groupby(requests, key=lambda one: one.at):
        members = list(together)
        for number, one in enumerate(members):
            found.append(replace(one, at=at + number / len(members)) if one.prompt and at.is_integer() else one)
    return found


def busiest(trace: Trace) -> Trace:
    """The part that can be simulated: of very many requests those that came closest together."""
    whole = trace.requests
    if len(whole) <= _MOST_REQUESTS:
        return trace
    starts = range(len(whole) - _MOST_REQUESTS + 1)
    start = min(starts, key=lambda i: whole[i + _MOST_REQUESTS - 1].at - whole[i].at)
    kept = tuple(replace(one, at=one.at - whole[start].at) for one in whole[start : start + _MOST_REQUESTS])
    note = f"Of {len(whole):,} requests the {_MOST_REQUESTS:,} that came closest together were simulated"
    return replace(trace, requests=kept, notes=(*trace.notes, note))


def _requests(found: Iterable[Row], left_out: Counter[str]) -> Iterator[Traced]:
    """The requests of rows. What can be none is counted in `left_out`."""
    for where, row in _readable(found):
        if not isinstance(row, Mapping):
            raise UsageError(f"{where}: a request must be an object, not {kind(row)}", hint=_EXAMPLE)
        if request := _captured(where, row, left_out) if is_captured(row) else _of_row(where, row, left_out):
            yield request


def _readable(found: Iterable[Row]) -> Iterator[Row]:
    """The rows; the error of one that cannot be read says what a row of a trace is: other files have prompts."""
    try:
        for where, row in found:
            if isinstance(row, UsageError):
                raise row
            yield where, row
    except MissingPackage:
        raise
    except UsageError as error:
        raise UsageError(error.message, hint=_EXAMPLE) from error


def _of_row(where: str, row: Mapping[str, Any], left_out: Counter[str]) -> Traced | None:
    form = next((one for one in _FORMATS if one.is_of(row)), _OURS)
    if form is _OURS and (unknown := [str(key) for key in row if key not in form.keys]):
        _refuse(where, unknown[0])
    if missing := [key for key in form.keys if row.get(key) in (None, "")]:
        raise UsageError(f"{where}: `{missing[0]}` is missing; there are {columns_of(row)}", hint=_EXAMPLE)
    at = _number(where, form.at, row[form.at], form.unit) if form.unit else _moment(where, form.at, row[form.at])
    if why := next((why for key, why in _NO_TOKENS.items() if key in form.keys and _is_zero(row[key])), ""):
        left_out[why] += 1
        return None
    tokens = [round(_number(where, key, row[key])) for key in (form.prompt_tokens, form.answer_tokens)]
    blocks = _blocks(where, row[form.blocks], tokens[0], form) if row.get(form.blocks) is not None else ()
    return Traced(at, tokens[0], tokens[1], where, blocks)


def _is_zero(value: object) -> bool:
    """Also where it is text, as in a CSV file, such as `0.00`."""
    try:
        return isinstance(value, str | int | float) and float(value) == 0
    except ValueError:
        return False


def _moment(where: str, key: str, value: object) -> float:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError as error:
        hint = "Write it as Azure's traces have it: 2023-11-16 18:15:46.6805900."
        raise UsageError(f"{where}: `{key}` must be a date and a time", hint=hint) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _blocks(where: str, ids: object, tokens: int, form: _Format) -> tuple[int | str, ...]:
    if not isinstance(ids, list) or any(isinstance(one, bool) or not isinstance(one, int | str) for one in ids):
        raise UsageError(
            f"{where}: `hash_ids` must be a list of numbers", hint=f"Write it as {form.name}'s traces have it."
        )
    each = form.block_tokens
    if len(ids) not in (tokens // each, math.ceil(tokens / each)):
        blocks = f"{tokens:,} tokens are {math.ceil(tokens / each)} blocks of {each}"
        hint = f"Write one id for each {each} tokens, or leave `hash_ids` out: no prompts then begin alike."
        raise UsageError(f"{where}: `hash_ids` has {len(ids)} entries, and {blocks}", hint=hint)
    together = BLOCK // each
    return tuple(ids) if together == 1 else tuple(_joined(ids[i : i + together]) for i in range(0, len(ids), together))


def _joined(ids: Sequence[int | str]) -> str:
    """One name for the blocks together."""
    return blake2b(repr(ids).encode(), digest_size=8).hexdigest()


def _captured(where: str, row: Mapping[str, Any], left_out: Counter[str]) -> Traced | None:
    """A captured request. Its text is never shown: what cannot be used is counted."""
    try:
        found = read_capture(row)
        prompt = prompt_of(found.request, where)
    except (UsageError, ValueError):
        left_out["captured lines that are no requests for text"] += 1
        return None
    if found.is_measurement:
        left_out["captured requests of measurements"] += 1
        return None
    try:
        at = datetime.fromisoformat(found.time).timestamp()
    except ValueError:
        left_out["captured requests whose record has no time"] += 1
        return None
    tokens = [_counted(found, name) for name in ("prompt_tokens", "completion_tokens")]
    return Traced(at, tokens[0], tokens[1], where, prompt=prompt)


def _counted(found: Captured, name: str) -> int | None:
    """What an answer's usage tells, if it is known."""
    usage = found.answer.get("usage") if isinstance(found.answer, dict) else None
    counted = usage.get(name) if isinstance(usage, dict) else None
    return counted if type(counted) is int and 0 < counted <= _LONGEST else None


def _refuse(where: str, key: str) -> NoReturn:
    ours = _OTHERS.get(key.lower()) or next(iter(suggest(key, _OURS.keys)), "")
    hint = f"Rename it to `{ours}`{', in seconds' if ours == 'at' else ''}." if ours else f"Remove it. {_EXAMPLE}"
    raise UsageError(f"{where}: a request has no key {columns_of([key]).removeprefix('the columns ')}", hint=hint)


def _number(where: str, key: str, value: object, unit: float = 0.0) -> float:
    """A moment in seconds, of which the `unit` of `at` is so many; without one a number of tokens."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    if unit:
        if not 0 <= number < math.inf:
            raise UsageError(f"{where}: `{key}` must be {'milli' if unit < 1 else ''}seconds from 0 on", hint=_EXAMPLE)
        return number * unit
    if not 1 <= number <= _LONGEST or number != round(number):
        raise UsageError(f"{where}: `{key}` must be a whole number from 1 to {_LONGEST:,}", hint=_EXAMPLE)
    return number


def per_second(text: str) -> float:
    """Requests per second of `5/s`, `300/min` or `5`. Raises UsageError."""
    rate = _RATE.fullmatch(text)
    value = float(rate[1]) / _SECONDS[rate[2] or "s"] if rate else 0.0
    if not _LEAST_RATE <= value <= _MOST_REQUESTS:
        message = f"{text!r} is no rate between one an hour and {_MOST_REQUESTS:,} a second"
        raise UsageError(message, hint="Write --rate 5/s, 300/min or 1000/h.")
    return value


def at_rate(rate: float, prompt_tokens: int, answer_tokens: int, seconds: float = 60.0) -> tuple[Request, ...]:
    """Requests of so many seconds, at moments by chance (a Poisson process) that are the same each time."""
    pauses = random.Random(0)  # noqa: S311
    found, now = [], 0.0
    for _ in range(max(_FEWEST_REQUESTS, round(min(rate * seconds, _MOST_REQUESTS)))):
        found.append(Request(now, prompt_tokens, answer_tokens))
        now += pauses.expovariate(rate)
    return tuple(found)


def mean_rate(requests: Sequence[Request | Traced]) -> float:
    """Requests per second."""
    return len(requests) / max(requests[-1].at - requests[0].at, 1.0)
