"""Traffic to advise on: a trace of requests from a file, or requests at a rate."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from toolkit.errors import MissingPackage, UsageError
from toolkit.measure.queue import Request
from toolkit.recipe.rows import ENDINGS, Row, columns_of, kind, rows
from toolkit.words import suggest

KEYS = ("at", "prompt_tokens", "answer_tokens")
_EXAMPLE = 'Write on each line: {"at": 12.5, "prompt_tokens": 800, "answer_tokens": 200}, with `at` in seconds.'
# What public traces call the same.
_OTHERS = {
    **dict.fromkeys(("timestamp", "arrival", "arrived_at"), "at"),
    **dict.fromkeys(("input_length", "contexttokens", "input_tokens"), "prompt_tokens"),
    **dict.fromkeys(("output_length", "generatedtokens", "output_tokens"), "answer_tokens"),
}
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|min|h))?")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_LONGEST, _YEAR = 10_000_000, 366 * 86400.0
# Simulating more takes minutes, and changes the 90th percentile by little.
_MOST_REQUESTS = 20_000
_FEWEST_REQUESTS, _LEAST_RATE = 3_000, 1 / 3600


def read_trace(path: Path) -> tuple[tuple[Request, ...], dict[Request, str], list[str]]:
    """The requests of a file in their order, the first at 0; where each stands; notes. Raises UsageError."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path} is no trace: its name ends in none of {', '.join(ENDINGS)}", hint=_EXAMPLE)
    try:
        with path.open("rb") as stream:
            found = [*rows(stream, str(path), KEYS)]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="Correct the path of --traffic.") from error
    except UsageError as error:
        raise _shown(error) from error
    read = sorted(_requests(found), key=lambda item: item[0].at)
    if not read:
        raise UsageError(f"{path} has no requests", hint=_EXAMPLE)
    if read[-1][0].at - read[0][0].at > _YEAR:
        raise UsageError(f"{read[-1][1]}: `at` must be in seconds; it is a year after the first", hint=_EXAMPLE)
    whole, notes = read, []
    if len(read) > _MOST_REQUESTS:
        starts = range(len(read) - _MOST_REQUESTS + 1)
        busiest = min(starts, key=lambda i: read[i + _MOST_REQUESTS - 1][0].at - read[i][0].at)
        read = read[busiest : busiest + _MOST_REQUESTS]
        notes.append(f"Of {len(whole):,} requests the {_MOST_REQUESTS:,} that came closest together were simulated")
    first = read[0][0].at
    moved = [(Request(one.at - first, one.prompt_tokens, one.answer_tokens), where) for one, where in read]
    return tuple(one for one, _ in moved), dict(moved), notes


def _shown(error: UsageError) -> UsageError:
    """The error with what a trace's row is: other files of rows have prompts."""
    return error if isinstance(error, MissingPackage) else UsageError(error.message, hint=_EXAMPLE)


def _requests(found: Iterable[Row]) -> Iterator[tuple[Request, str]]:
    for where, row in found:
        if isinstance(row, UsageError):
            raise _shown(row)
        if not isinstance(row, Mapping):
            raise UsageError(f"{where}: a request must be an object, not {kind(row)}", hint=_EXAMPLE)
        if unknown := [str(key) for key in row if key not in KEYS]:
            _refuse(where, unknown[0])
        if missing := [key for key in KEYS if row.get(key) in (None, "")]:
            raise UsageError(f"{where}: `{missing[0]}` is missing; there are {columns_of(row)}", hint=_EXAMPLE)
        numbers = [_number(where, key, row[key]) for key in KEYS]
        yield Request(numbers[0], round(numbers[1]), round(numbers[2])), where


def _refuse(where: str, key: str) -> NoReturn:
    ours = _OTHERS.get(key.lower()) or next(iter(suggest(key, KEYS)), "")
    hint = f"Rename it to `{ours}`{', in seconds' if ours == 'at' else ''}." if ours else f"Remove it. {_EXAMPLE}"
    raise UsageError(f"{where}: a request has no key {columns_of([key]).removeprefix('the columns ')}", hint=hint)


def _number(where: str, key: str, value: object) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    least = 0 if key == "at" else 1
    if not least <= number < float("inf") or (least and (number > _LONGEST or number != round(number))):
        what = "seconds from 0 on" if key == "at" else f"a whole number from 1 to {_LONGEST:,}"
        raise UsageError(f"{where}: `{key}` must be {what}", hint=_EXAMPLE)
    return number


def per_second(text: str) -> float:
    """Requests per second of `5/s`, `300/min` or `5`. Raises UsageError."""
    rate = _RATE.fullmatch(text)
    value = float(rate[1]) / _SECONDS[rate[2] or "s"] if rate else 0.0
    if not _LEAST_RATE <= value <= _MOST_REQUESTS:
        raise UsageError(f"{text!r} is no rate of one an hour or more", hint="Write --rate 5/s, 300/min or 1000/h.")
    return value


def at_rate(rate: float, prompt_tokens: int, answer_tokens: int, seconds: float = 60.0) -> tuple[Request, ...]:
    """Requests of so many seconds, at moments by chance (a Poisson process) that are the same each time."""
    pauses = random.Random(0)  # noqa: S311
    found, now = [], 0.0
    for _ in range(max(_FEWEST_REQUESTS, round(min(rate * seconds, _MOST_REQUESTS)))):
        found.append(Request(now, prompt_tokens, answer_tokens))
        now += pauses.expovariate(rate)
    return tuple(found)


def mean_rate(requests: Sequence[Request]) -> float:
    """Requests per second."""
    return len(requests) / max(requests[-1].at - requests[0].at, 1.0)
