"""Requests checked against botocore's own model of the service, as AWS does on its side.

botocore checks required members, types, unknown keys and minima before it sends. Enums, patterns, maximum lengths and
maximum values stand in the same model and only AWS enforces them; here they are enforced too, in AWS's words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "structure": (dict,),
    "list": (list,),
    "map": (dict,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float),
}

# AWS's patterns are Java's, and this is what Python's `re` lacks of them. The Unicode classes stand in the pattern of
# tags, where "_" is allowed as well, so that \w is exactly letters, numbers and "_". What is beyond the first 65536
# characters is a pair of surrogates in Java only.
_ONLY_JAVA = {
    r"\p{L}": r"\w",
    r"\p{N}": r"\w",
    r"\p{Z}": "\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000",
    r"\p{Print}": "[ -~]",
    r"\uD800\uDC00-\uDBFF\uDFFF": "\U00010000-\U0010ffff",
}


def problems(request: Any, shape: Shape, path: str = "") -> Iterator[str]:
    """What AWS would refuse in that request, one sentence per value; `shape` is the operation's input shape."""
    if not _has_type(request, shape):
        yield _failed(request, path, f"Member must be of type {shape.type_name}")
        return
    yield from _limits(request, shape, path)
    if isinstance(shape, StructureShape):
        yield from _structure(request, shape, path)
    elif isinstance(shape, ListShape):
        for index, item in enumerate(request, start=1):
            yield from problems(item, shape.member, f"{path}.{index}.member")
    elif isinstance(shape, MapShape):
        for key, value in request.items():
            yield from problems(key, shape.key, f"{path}.{key}.key")
            yield from problems(value, shape.value, f"{path}.{key}.value")
    elif isinstance(shape, StringShape):
        yield from _string(request, shape, path)


def _has_type(value: Any, shape: Shape) -> bool:
    if isinstance(value, bool):  # which Python takes for an int
        return shape.type_name == "boolean"
    return isinstance(value, _PYTHON_TYPES[shape.type_name])


def _structure(request: dict[str, Any], shape: StructureShape, path: str) -> Iterator[str]:
    for name in shape.required_members:
        if name not in request:
            yield _failed(None, _member(path, name), "Member must not be null")
    for name, value in request.items():
        if name in shape.members:
            yield from problems(value, shape.members[name], _member(path, name))
        else:
            yield f"Unknown parameter '{_member(path, name)}'"


def _string(text: str, shape: StringShape, path: str) -> Iterator[str]:
    if shape.enum and text not in shape.enum:
        yield _failed(text, path, f"Member must satisfy enum value set: [{', '.join(sorted(shape.enum))}]")
    pattern = shape.metadata.get("pattern")
    if pattern and not _compiled(pattern).fullmatch(text):
        yield _failed(text, path, f"Member must satisfy regular expression pattern: {pattern}")


def _limits(value: Any, shape: Shape, path: str) -> Iterator[str]:
    is_number = isinstance(value, (int, float))
    size = value if is_number else len(value)
    noun = "value" if is_number else "length"
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if low is not None and size < low:
        yield _failed(value, path, f"Member must have {noun} greater than or equal to {low}")
    if high is not None and size > high:
        yield _failed(value, path, f"Member must have {noun} less than or equal to {high}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    for java, python in _ONLY_JAVA.items():
        pattern = pattern.replace(java, python)
    return re.compile(pattern)


def _member(path: str, name: str) -> str:
    camel = name[0].lower() + name[1:]
    return f"{path}.{camel}" if path else camel


def _failed(value: Any, path: str, constraint: str) -> str:
    shown = "null" if value is None else str(value)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return f"Value '{shown}' at '{path}' failed to satisfy constraint: {constraint}"
