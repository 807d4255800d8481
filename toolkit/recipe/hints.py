"""What is wrong with a recipe's keys and values, and the edit that mends it: the new line, wherever it is known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from toolkit.catalog import lookup
from toolkit.findings import Finding
from toolkit.recipe.assemble import names
from toolkit.recipe.schema import RecipeFile
from toolkit.recipe.section import LONGEST_NAME
from toolkit.words import our_word, suggest

# What pydantic's type errors mean to someone who writes YAML. A `bool` is only expected as one of several scalars.
_EXPECTED = {
    "bool_type": "a value",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_type": "text",
}
_OFF = ("false", "no", "off")
_MISSING, _MEANT = "recipe.missing-key", re.compile(r"Did you mean `([^`]+)`")
_NO_EXAMPLE = "…"
_WHOLE_NUMBER = ("greater_than", "greater_than_equal", "int_type")
_HUB_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+?)/?(?:tree/.*)?")
_NUMBER = re.compile(r"(\d{1,3}(?:[,_ ]?\d{3})*|\d+)\s*([kK]?)")
_VERSION = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True)
class Problem:
    """One of pydantic's errors.

    `keys` lead to the value in the `recipe`, `kind` and `message` are pydantic's. `written` is the text of the value in
    the file, which YAML may have made a number of: 0.30 is 0.3. `stem` is the file's name without its ending. `schema`
    is what a recipe may say.
    """

    kind: str
    message: str
    value: object
    keys: tuple[str, ...]
    recipe: Mapping[str, Any]
    written: str
    stem: str
    schema: type[RecipeFile]

    @property
    def key(self) -> str:
        """The last of the keys."""
        return self.keys[-1]

    def setting(self, *keys: str, default: str = "") -> str:
        """A text elsewhere in the recipe; the default where there is none."""
        found: Any = self.recipe
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, str) else default


def explain(problem: Problem, line: int | None) -> Finding:
    """The finding on a problem, with the edit as its hint."""
    key, kind, path = problem.key, problem.kind, ".".join(problem.keys)
    if kind == "extra_forbidden":
        known = list(_fields_beside(problem.schema, problem.keys))
        hint = _elsewhere(problem, known) or _did_you_mean(key, known)
        return Finding("recipe.unknown-key", f"there is no key `{key}` here", path, line, hint=hint)
    if kind == "missing":
        hint = f"Add `{key}: {_example(problem)}`."
        return Finding(_MISSING, f"`{key}` is missing", path, line, hint=hint)
    if kind == "literal_error":
        known = re.findall(r"'([^']+)'", problem.message)
        is_section = _fields_beside(problem.schema, (*problem.keys, ""))
        if is_section and not suggest(str(problem.value), known, cutoff=0.5):
            hint = f"{_as_mapping(problem)} Or write one of: {', '.join(known)}."
        else:
            hint = _did_you_mean(str(problem.value), known)
        return Finding("recipe.bad-value", f"`{problem.value}` is not allowed", path, line, hint=hint)
    hint = f"{_edit(problem)} {_description(problem.schema, problem.keys)}".strip()
    return Finding("recipe.bad-value", _message(problem), path, line, hint=hint)


def without_repeats(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out missing keys that were only misspelt: the finding on the misspelt key says it."""
    meant = {(_above(item.path), found[1]) for item in findings if (found := _MEANT.match(item.hint))}
    return [item for item in findings if not (item.code == _MISSING and (_above(item.path), _last(item.path)) in meant)]


def _above(path: str) -> str:
    return path.rpartition(".")[0]


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _elsewhere(problem: Problem, known: Sequence[str]) -> str:
    """The section that has this key, as a sentence; empty if none has, or if a key of this section may be meant."""
    key = problem.key
    if our_word(key, "recipe") in known:
        return ""
    sections = [name for name in problem.recipe if key in _fields_beside(problem.schema, (name, ""))]
    if sections:  # what speculation has too is seldom meant for it
        return f"It belongs to `{min(sections, key=lambda name: name == 'speculation')}`: write it below that."
    if problem.keys[:-1] == ("engine",) and not suggest(key, known, cutoff=0.5):
        return f"If it is a flag of the engine, write `{key}: {problem.written}` below `args`."
    return ""


def _message(problem: Problem) -> str:
    if problem.kind in _EXPECTED:
        return f"{_EXPECTED[problem.kind]} is expected, not {_show(problem)}"
    if problem.kind == "string_pattern_mismatch":
        return f"`{problem.value}` is not allowed"
    text = problem.message.removeprefix("Value error, ")
    shown = f"`{problem.value}`: " if _is_scalar(problem.value) else ""
    return f"{shown}{text[0].lower()}{text[1:]}"


def _edit(problem: Problem) -> str:
    """The new line as a sentence; empty where nobody but the user can know it."""
    if problem.kind == "model_type":
        return _as_mapping(problem)
    if problem.kind == "drafter_missing":
        drafter = _drafter(problem)
        return f"Add `model: {drafter}` to `{problem.key}`." if drafter else ""
    if problem.keys == ("engine", "version") and _is_scalar(problem.value):
        return _write("version", _version(problem))
    if problem.keys[:-1] == ("engine", "args") and problem.key.startswith("-"):
        return f"Write `{problem.key.lstrip('-')}` without the dashes."
    if problem.keys == ("engine", "args"):
        return _write("args", _flags(problem.value))
    meant = _write(problem.key, _value(problem))
    field = _fields_beside(problem.schema, problem.keys).get(problem.key)
    if not meant and problem.kind in _WHOLE_NUMBER and field and not field.is_required():
        return "Remove it, or write a whole number above 0."
    return meant


def _flags(value: object) -> str:
    """Flags as on a command line, or a list of such, as a mapping; empty for anything else."""
    words = str(value).split() if _is_scalar(value) else list(map(str, value)) if isinstance(value, list) else []
    parts = [part for word in words for part in str(word).replace("=", " ", 1).split()]
    found: dict[str, str] = {}
    for part in parts:
        if part.startswith("--"):
            found[part[2:]] = "true"
        elif found:
            found[[*found][-1]] = part
    return f"{{{', '.join(f'{name}: {value}' for name, value in found.items())}}}" if found else ""


def _write(key: str, value: str) -> str:
    return f"Write `{key}: {value}`." if value and not key.isdigit() else ""


def _value(problem: Problem) -> str:
    """The value that was most probably meant, as YAML; empty where that is not clear."""
    text = str(problem.value)
    if problem.keys == ("name",):
        meant = "-".join(re.findall(r"[a-zA-Z0-9]+", problem.written or text)).removesuffix("-baseline")
        meant = meant[:LONGEST_NAME].strip("-")
        return json.dumps(meant) if meant.isdigit() else meant
    if not _is_scalar(problem.value):
        return ""
    if problem.kind == "list_type":
        return f"[{problem.written}]"
    if problem.keys == ("platform", "region"):
        return lookup.nearest_region(text)
    if problem.kind == "int_type" and (number := _NUMBER.fullmatch(text.strip())):
        return str(int(re.sub(r"\D", "", number[1])) * (1024 if number[2] else 1))
    if problem.kind == "string_type":
        return json.dumps(problem.written, ensure_ascii=False)
    if problem.key == "model" and (hub := _HUB_ADDRESS.fullmatch(text)):
        return hub[1]
    return ""


def _as_mapping(problem: Problem) -> str:
    """A section that was written as one value: `target: ./x` for `target: {model: ./x}`."""
    known = list(_fields_beside(problem.schema, (*problem.keys, "")))
    names = f"Its keys: {', '.join(known)}."
    if not _is_scalar(problem.value):
        example = _example(problem) if problem.value is None else _NO_EXAMPLE
        return names if example == _NO_EXAMPLE else f"{_write(problem.key, example)} {names}"
    text, key = "none" if problem.written.lower() in _OFF else problem.written, known[0]
    if problem.key == "engine" and _VERSION.fullmatch(text.removeprefix("v")):
        key, text = "version", _version(problem)
    elif problem.key == "engine" and (version := _version(problem, "")):
        text = f"{text}, version: {version}"
    return f"{_write(problem.key, f'{{{key}: {text}}}')} {names}"


def _example(problem: Problem) -> str:
    """A value for a missing key that works."""
    if problem.keys == ("name",):
        return "-".join(re.findall(r"[a-zA-Z0-9]+", problem.stem))[:LONGEST_NAME].strip("-") or "my-endpoint"
    version = _version(problem, "")
    examples = {
        "speculation": "{method: ngram}",
        "speculation.method": _method(problem),
        "engine": f"{{version: {version}}}" if version else "{}",
        "platform": f"{{name: {_free(problem)}}}",
        "platform.name": _free(problem),
    }
    return examples.get(".".join(problem.keys), _NO_EXAMPLE)


def _free(problem: Problem) -> str:
    """The platform of an example: it costs nothing."""
    return names(problem.schema, "platform")[0]


def _method(problem: Problem) -> str:
    """The catalogue's method of the drafter, or one that needs none."""
    model = problem.setting("speculation", "model")
    head = lookup.head(model)
    return head.method if head else "draft-model" if model else "ngram"


def _drafter(problem: Problem) -> str:
    """The catalogue's drafter of the target for the method, one whose card was read if there is one."""
    target, method = problem.setting("target", "model").lower(), problem.setting("speculation", "method")
    theirs = [head for head in lookup.heads() if (head.target.lower(), head.method) == (target, method)]
    return min(theirs, key=lambda head: head.unverified).repo if theirs else ""


def _version(problem: Problem, written: str | None = None) -> str:
    """The full version nearest to what is written that has an image there: of its series, or the newest before it."""
    platform = problem.setting("platform", "name") or problem.setting("platform", default=_free(problem))
    engine = problem.setting("engine", "name")
    versions = lookup.released(platform, engine or names(problem.schema, "engine")[0])
    number = _VERSION.search(problem.written if written is None else written)
    if not number or not versions:
        return next(iter(versions), "")
    same = [version for version in versions if f"{version}.".startswith(f"{number[0]}.")]
    before = [version for version in versions if lookup.older(version, number[0])]
    return next(iter([*same, *before]), versions[-1])


def _is_scalar(value: object) -> bool:
    return value is not None and not isinstance(value, dict | list)


def _show(problem: Problem) -> str:
    value = problem.value
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return f'"{value}"'
    return "empty" if value is None else problem.written or str(value).lower()


def _did_you_mean(word: str, known: list[str]) -> str:
    near = suggest(word, known, "recipe", "platform", cutoff=0.5)
    choices = f"Allowed: {', '.join(known)}."
    return f"Did you mean `{near[0]}`? {choices}" if near else choices


def _description(schema: type[RecipeFile], keys: Sequence[str]) -> str:
    """What the schema says of the nearest key that it describes, as a sentence."""
    for end in range(len(keys), 0, -1):
        field = _fields_beside(schema, keys[:end]).get(keys[end - 1])
        if field and field.description:
            return f"{field.description[0].upper()}{field.description[1:]}."
    return ""


def _fields_beside(schema: type[RecipeFile], keys: Sequence[str]) -> Mapping[str, FieldInfo]:
    """The schema's fields in the section of the last key; none where any key may stand."""
    fields: Mapping[str, FieldInfo] = schema.model_fields
    for key in keys[:-1]:
        if not key.isdigit():
            inner = getattr(_section(fields[key].annotation), "model_fields", {}) if key in fields else {}
            fields = {field.alias or name: field for name, field in inner.items()}
    return fields


def _section(annotation: Any) -> Any:
    """The section in an annotation, such as `Evidence` of `list[Evidence] | None`; else the annotation itself."""
    inner = map(_section, getattr(annotation, "__args__", ()))
    return next((part for part in inner if hasattr(part, "model_fields")), annotation)
