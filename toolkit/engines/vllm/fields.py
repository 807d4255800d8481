"""Does a flag's value fit the type, choices and bounds that this version of vLLM declares for it?

The declarations are those of its configuration classes (catalog/engines/vllm/fields.json), keys of JSON flags included.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite
from typing import Any

from toolkit import documents
from toolkit.catalog.lookup import read
from toolkit.engines.vllm.facts import entry, names, parsed_flag

# For the whole numbers of a few flags vLLM's parser takes `32k` and `1M`, too, and `1.5k` (human_readable_int).
_SUFFIXED_NUMBER = re.compile(r"\d+(\.\d+)?[kmgt]|\d+[KMGT]")
SWITCHES = {
    **dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True),
    **dict.fromkeys(("false", "0", "no", "off", "f", "n"), False),
}
"""Texts that pydantic takes for what is on or off."""

_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text", "list": "a list"}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_MOST_SHOWN = 12
# Of these vLLM itself brings what names a kernel into small letters, without dashes (config/kernel.py).
_ANY_CASE = ("KernelConfig",)


@dataclass(frozen=True)
class Declared:
    """A field: of one of `types`, which may be classes, or one of `choices`; numbers within bounds.

    Of one without types and choices nothing is known. Upper and lower case are alike in the choices of an `enum`.
    Another text than the choices of a `dotted` one is where a class is: `module.Class`. A list is `of` such a field,
    a dictionary's `values` are such ones.
    """

    types: tuple[str, ...] = ()
    choices: tuple[bool | int | float | str, ...] = ()
    enum: bool = False
    dotted: bool = False
    of: Mapping[str, Any] | None = None
    values: Mapping[str, Any] | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    @property
    def classes(self) -> Sequence[str]:
        """Those of the types that are classes of vLLM's."""
        return [kind for kind in self.types if kind not in _KINDS and kind not in ("None", "dict")]

    def __str__(self) -> str:
        bounds = [f"{word} {bound:g}" for key, word in _BOUNDS.items() if (bound := getattr(self, key)) is not None]
        kinds = dict.fromkeys(_KINDS.get(kind, "a mapping") for kind in self.types if kind != "None")
        listed = [f"one of {_listed(self.choices)}"] if self.choices else []
        return " ".join(filter(None, (" or ".join((*kinds, *listed)), " and ".join(bounds))))


@dataclass(frozen=True)
class Misfit:
    """A value that its version does not take. `key` is the path below the flag, empty for the flag itself."""

    key: str
    what: str
    hint: str


def misfits(flag: str, value: Any, version: str, unmade: Collection[str] = ()) -> Iterator[Misfit]:
    """What does not fit; nothing for a version or a flag of which no declaration is known.

    Of classes that vLLM does not make (`unmade`) only its parser knows the fields, without bounds and enumerations.
    """
    field = _at(flag, version)
    suffixed = isinstance(value, str) and _SUFFIXED_NUMBER.fullmatch(value) and flag in names("suffixed", version)
    if isinstance(field, str) and not suffixed:
        declared = _declared(_at(field, version))
        if field.partition(".")[0] in unmade:
            # Those for images pass through ModelConfig, which looks at their types.
            unread = declared.enum or (
                "dict" in declared.types and (value == "null" or field.startswith("LoRAConfig."))
            )
            declared = Declared() if unread else replace(declared, ge=None, gt=None, le=None, lt=None)
        wrong = [*_misfits(declared, value, version, "")]
        yield from wrong or _pointed(declared, value)


def _pointed(declared: Declared, value: Any) -> Iterator[Misfit]:
    """A number with a point, `1.0`, of which a parser makes no whole one; in JSON it is one."""
    several = isinstance(value, list) and declared.of is not None
    declared, values = (_declared(declared.of), value) if several else (declared, [value])
    if "int" in declared.types and {*declared.types} <= {"int", "None"}:
        pointed = (one for one in values if isinstance(as_number(one) if isinstance(one, str) else one, float))
        yield from (unlike(one, (), str(declared)) for one in islice(pointed, 1))


def class_of(flag: str, version: str) -> str:
    """The configuration class that a flag sets a field of; empty where that is not known."""
    return str(_at(flag, version) or "").partition(".")[0]


def settings(flag: str, value: Any, version: str) -> Iterator[tuple[str, str, Any]]:
    """What a flag sets: the `Class.key`, else the flag itself; where in the flag it stands, such as `.mode`; the value.

    Of a flag in JSON that is what stands in it; `no-` before one that is on or off is its opposite.
    """
    if flag.startswith("no-") and value is True:
        flag, value = flag.removeprefix("no-"), False
    field = _at(flag, version)
    yield from _settings(field, value, version, "") if isinstance(field, str) else [(f"--{flag}", "", value)]


def _settings(field: str, value: Any, version: str, key: str) -> Iterator[tuple[str, str, Any]]:
    yield field, key, None if value == "None" else value
    declared = _declared(_at(field, version))
    inner = _json(value) if isinstance(value, str) else value
    if declared.classes and isinstance(inner, Mapping):
        for name, one in inner.items():
            yield from _settings(f"{declared.classes[0]}.{name}", one, version, f"{key}.{name}")


def flag_of(setting: str, version: str) -> str:
    """The flag that sets a `Class.key`, with the key if it sets others, too; the key where there is none."""
    fields = read("engines/vllm/fields.json")["fields"]
    if flag := next((name for name in fields if "." not in name and _at(name, version) == setting), ""):
        return flag
    owner, _, key = setting.removeprefix("--").rpartition(".")
    declared = ((name, _declared(_at(name, version))) for name in fields if "." in name)
    holder = next((name for name, one in declared if owner in one.classes), "")
    return f"{flag_of(holder, version)}.{key}" if holder else key


def listed(flag: str, version: str) -> tuple[Any, ...]:
    """The choices that are declared for a flag, also where any text passes for its type; empty if none is known."""
    field = _at(flag, version)
    declared = _at(field, version) if isinstance(field, str) else None
    return _declared(declared).choices


def reads_as(flag: str, value: Any, version: str) -> bool:
    """Whether that version's parser can make what it has to of the text that the container gets."""
    known = parsed_flag(flag, version)
    kind = known.parsed
    if isinstance(value, list | bool) or value is None:
        return True  # its form is another check's
    if value == "None":
        return known.or_none
    made = value if not isinstance(value, str) else as_number(value) if kind in ("int", "float") else _json(value)
    if kind == "object":
        return isinstance(made, Mapping)
    if kind == "json":
        return not isinstance(value, str) or made != value or value.startswith('"')
    if isinstance(value, str) and _SUFFIXED_NUMBER.fullmatch(value):
        return flag in names("suffixed", version)
    return isinstance(made, int if kind == "int" else int | float)


def unlike(value: Any, choices: Sequence[Any], takes: str = "", key: str = "") -> Misfit:
    """The misfit of a value that is none of these choices."""
    near = difflib.get_close_matches(str(value), [str(choice) for choice in choices], n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return Misfit(key, f"has the value {value!r}", f"{hint}It takes {takes or f'one of {_listed(choices)}'}.")


def _listed(choices: Sequence[Any]) -> str:
    more = ", …" if len(choices) > _MOST_SHOWN else ""
    return ", ".join(map(str, choices[:_MOST_SHOWN])) + more


def _misfits(declared: Declared, value: Any, version: str, key: str, *, element: bool = False) -> Iterator[Misfit]:
    """What does not fit at the path `key`, which is empty for what the command line has; or in an element of it."""
    classes = declared.classes
    if isinstance(value, str) and (classes or declared.values) and isinstance(parsed := _json(value), dict):
        value = parsed
    # Of a class or a dictionary the parser makes the class, and pydantic takes both.
    if isinstance(value, Mapping) and classes and not (key and "dict" in declared.types):
        for name, inner in value.items():
            yield from _inner(classes[0], str(name), inner, version, f"{key}.{name}".lstrip("."))
    elif isinstance(value, Mapping) and declared.values is not None:
        for name, inner in value.items():
            at = f"{key}.{name}".lstrip(".") or '""'
            yield from _misfits(_declared(declared.values), inner, version, at, element=True)
    elif isinstance(value, list) and declared.of is not None and "list" in declared.types:
        wrong = (found for one in value for found in _misfits(_declared(declared.of), one, version, key, element=True))
        yield from islice(wrong, 1)
    # Many keys of a class may be null until vLLM fills them in (_skip_none_validation).
    elif not (key and value is None and not element) and not _fits(value, declared, in_json=bool(key)):
        yield unlike(value, declared.choices, str(declared), key)


def _inner(class_name: str, name: str, value: Any, version: str, key: str) -> Iterator[Misfit]:
    """Of a key of a JSON flag. vLLM's configuration classes forbid keys that they do not declare."""
    field = f"{class_name}.{name}"
    if class_name in _ANY_CASE and isinstance(value, str):
        value = value.lower().replace("-", "_")
    if (declared := _at(field, version)) is not None:
        yield from _misfits(_declared(declared), value, version, key)
        return
    fields = [other for other in read("engines/vllm/fields.json")["fields"] if other.startswith(f"{class_name}.")]
    known = [other.partition(".")[2] for other in fields if _at(other, version) is not None]
    near = difflib.get_close_matches(name, known, n=1)
    yield Misfit(key, f"has no key `{name}`", f"Did you mean `{near[0]}`?" if near else "Remove it.")


def _declared(spec: Mapping[str, Any] | None) -> Declared:
    return documents.fit(Declared, spec or {})


def _at(name: str, version: str) -> Any:
    return entry("engines/vllm/fields.json", "fields", name, version)


def _fits(value: Any, declared: Declared, *, in_json: bool = False) -> bool:
    """Whether the value is one that pydantic takes, which makes numbers of texts, and texts of nothing else.

    The command line has everything as a text, but not what stands in its JSON.
    """
    texts = () if in_json else ("str",)
    if not declared.types and not declared.choices:
        return True
    if isinstance(value, str):
        return _text_fits(value, declared)
    if value in declared.choices:
        return True
    if value is None:
        return "None" in declared.types
    if isinstance(value, bool):
        return not {"bool", "int", "float"}.isdisjoint(declared.types)
    if isinstance(value, int | float):
        if declared.dotted:
            return False
        whole = isinstance(value, int) or value.is_integer()
        kinds = {"float", "bool", *texts, *(("int",) if whole else ())}
        return not kinds.isdisjoint(declared.types) and _in_bounds(value, declared)
    if isinstance(value, Mapping):
        return not {"dict", *texts}.isdisjoint(declared.types)
    return "list" in declared.types


def _text_fits(text: str, declared: Declared) -> bool:
    same = str.lower if declared.enum else str
    if same(text) in {same(str(choice)) for choice in declared.choices}:
        return True
    if (text in ("None", "") and "None" in declared.types) or (text.lower() in SWITCHES and "bool" in declared.types):
        return True
    if "str" in declared.types:
        return "." in text or not declared.dotted
    if declared.enum and "None" in declared.types and text.lower() == "auto":  # as in config/attention.py
        return True
    parsed = as_number(text) if {"int", "float"} & {*declared.types} else _json(text)
    if not isinstance(parsed, str):
        return _fits(parsed, declared)
    # A class may read a text in a way of its own, and one word is a list for the parser.
    return any(kind not in ("int", "float", "bool", "None") for kind in declared.types)


def _in_bounds(value: float, declared: Declared) -> bool:
    """Whether it is; what is no number (`.nan`) is within none."""
    above = (declared.ge is None or value >= declared.ge) and (declared.gt is None or value > declared.gt)
    return above and (declared.le is None or value <= declared.le) and (declared.lt is None or value < declared.lt)


def whole_number(value: Any) -> int | None:
    """The value, or what its text says, if that is a whole number."""
    said = as_number(value) if isinstance(value, str) else value
    return said if isinstance(said, int) and not isinstance(said, bool) else None


def as_number(text: str) -> Any:
    """What a text says as JSON, or as a number in Python's way (`.9`, `4_096`, `+5`), or the text."""
    if not isinstance(said := _json(text), str):
        return said
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        return number if isfinite(number := float(text)) else text
    return text


def _json(text: str) -> Any:
    """What a text says as JSON, or the text."""
    try:
        return documents.decode(text)
    except documents.Unfit:
        return text
