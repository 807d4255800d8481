"""Documents as a hostile or broken writer makes them of good ones. The same seed gives the same documents."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

# Stands in for text that `json.dumps` would not write.
_RAW = {
    "@deep@": "[" * 2000 + "]" * 2000,
    "@deeper@": '{"a":' * 100_000,
    "@infinity@": "Infinity",
    "@nan@": "NaN",
    "@huge@": "1e999",
    "@digits@": "9" * 5000,
    "@half@": '"\\ud83d"',
    "@null byte@": '"a\\u0000b"',
    "@wide@": "[" + "[]," * 5000 + "[]]",
}
_ODD: tuple[Any, ...] = (
    *_RAW, None, True, False, 0, -1, 1.5, 2**63, -(2**63), 10**19, 1e300, "", "x", "../../etc", "2026-13-45T99:99:99Z",
    "\x1b[31m", "\u202e", "é" * 300, [], [None], [[]], {}, {"": {}}, {"a": [1]}, ["x"] * 50,
)  # fmt: skip


def mangled(good: bytes, seed: int) -> bytes:
    """A document made of a good one."""
    chance = random.Random(seed)
    if chance.random() < 0.3:
        return chance.choice(_ON_BYTES)(good, chance)
    try:
        value = json.loads(good)
    except ValueError:
        return chance.choice((*_ON_BYTES, _swapped_text, _lines, _lines, _lines))(good, chance)
    for _ in range(chance.choice((1, 1, 2, 3))):
        value = _changed(value, chance)
    text = json.dumps(value)
    for placeholder, raw in _RAW.items():
        text = text.replace(f'"{placeholder}"', raw)
    if chance.random() < 0.1:
        text = text.replace(": ", ": null, ", 1) if chance.random() < 0.5 else _twice(text)
    return text.encode()


def _twice(text: str) -> str:
    """With its first key once more."""
    key, colon, rest = text.partition(": ")
    return f"{key}{colon}0, {key.rpartition('{')[2]}{colon}{rest}"


def _truncated(good: bytes, chance: random.Random) -> bytes:
    return good[: chance.randrange(len(good) + 1)]


def _garbled(good: bytes, chance: random.Random) -> bytes:
    content = bytearray(good)
    for _ in range(chance.randrange(1, 8)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    return bytes(content)


def _inserted(good: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(good) + 1)
    noise = chance.choice((b"\0", b"\xff\xfe", b"[" * 3000, b'"', b"\xed\xa0\xbd", b"<html>", b"\n\n", b"{" * 3000))
    return good[:at] + noise + good[at:]


def _swapped_text(good: bytes, chance: random.Random) -> bytes:
    words = good.split(b">")
    if len(words) < 3:
        return _lines(good, chance)
    first, second = sorted(chance.sample(range(len(words)), 2))
    words[first], words[second] = words[second], words[first]
    return b">".join(words)


def _lines(good: bytes, chance: random.Random) -> bytes:
    lines = good.split(b"\n")
    at, to = chance.randrange(len(lines)), chance.randrange(len(lines))
    odd = (
        b" " * chance.randrange(9) + lines[to],
        b"- " + lines[at],
        lines[at] * 2,
        b"",
        b"&a [*a]",
        b"x: *y",
        b"? {a: 1}",
    )
    lines[at] = chance.choice(odd)
    return b"\n".join(lines)


def _replaced(_good: bytes, chance: random.Random) -> bytes:
    return chance.choice((b"", b"null", b"[]", b"{}", b"5", b'"x"', b"<html>Log in</html>", b"\xff" * 20, b"[{}]"))


_ON_BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_truncated, _garbled, _inserted, _replaced)


def _changed(value: Any, chance: random.Random) -> Any:
    """With one of its parts changed, left out or moved."""
    spots = list(_spots(value))
    if not spots:
        return copy.deepcopy(chance.choice(_ODD))
    holder, key = chance.choice(spots)
    match chance.randrange(5):
        case 0:
            del holder[key]
        case 1:
            holder[key] = [holder[key]]
        case 2 if isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case _:
            holder[key] = copy.deepcopy(chance.choice(_ODD))
    return value


def _spots(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _spots(value[key])
