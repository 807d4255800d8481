"""What differs between two requests, and where."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NOTHING = object()
"""What stands where one of them has no value."""

_LONGEST = 120


@dataclass(frozen=True)
class Changes:
    """What an update changes: each value as `path`, `from` and `to`, None where there is none; and in words."""

    items: tuple[Mapping[str, Any], ...] = ()
    words: str = ""


def differing(path: tuple[str, ...], before: Any, after: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Each value that differs, with its path."""
    before, after = _parse(before), _parse(after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*after, *before)):
            yield from differing((*path, str(key)), before.get(key, NOTHING), after.get(key, NOTHING))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differing((*path, str(number)), one, other)
    elif before != after:
        yield path, before, after


def item(path: tuple[str, ...], before: Any, after: Any) -> dict[str, Any]:
    """A change as JSON."""
    start, end = (None if value is NOTHING else value for value in (before, after))
    return {"path": ".".join(path), "from": start, "to": end}


def shown(value: Any) -> str:
    """A value on one line."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _parse(value: Any) -> Any:
    """Policies, dashboards and settings are JSON in a string: what they say is compared."""
    if not (isinstance(value, str) and value.startswith(("{", "["))):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
