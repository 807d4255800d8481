"""Read a recipe file: YAML with every key's line kept, and all problems reported at once."""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from toolkit import documents
from toolkit.errors import RecipeError, RecipeNotFound
from toolkit.findings import Finding
from toolkit.recipe.schema import RecipeFile

# Far beyond any recipe, and read in seconds. What an alias stands for counts at each of its places.
_LIMITS = documents.Limits(size=64 * 1024, items=10_000, depth=50)

Lines = Mapping[str, int]


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe file that says nothing wrong, and the line of each of its keys (by dotted path)."""

    file: RecipeFile
    path: Path
    lines: Lines


@dataclass
class _Document:
    """A YAML document as plain data, while it is being walked."""

    yaml: YAML = field(default_factory=lambda: YAML(typ="safe", pure=True))
    lines: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    values: int = 0

    def count(self, node: Node, path: str) -> None:
        """Raises MarkedYAMLError when there are too many values: aliases of aliases soon stand for billions."""
        self.values += 1
        if self.values > _LIMITS.items:
            problem = f"more than {_LIMITS.items} values, aliases included"
            raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark, note="Write fewer of them.")
        if path.count(".") >= _LIMITS.depth:
            raise RecursionError

    def check_text(self, node: ScalarNode, path: str) -> None:
        """A null byte ends a path, an argument or a variable before its end."""
        if "\0" in node.value:
            line = node.start_mark.line + 1
            self.findings.append(Finding("recipe.bad-value", "a null byte is not text", path, line, "Remove it."))


def catalogue_dir() -> Path:
    """The folder of the recipes that come with the toolkit."""
    packaged = Path(__file__).parents[1] / "_data" / "recipes"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "recipes"


def catalogue() -> list[str]:
    """Names of the recipes that come with the toolkit, such as `tiny/p-eagle`."""
    root = catalogue_dir()
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.glob("*/*.yaml"))


def find(recipe: str | os.PathLike[str]) -> Path:
    """The file of a path or of a catalogue name. Raises RecipeNotFound with the nearest names."""
    path = Path(recipe).expanduser()
    if path.is_file():
        return path
    in_catalogue = catalogue_dir() / f"{recipe}.yaml"
    if in_catalogue.is_file():
        return in_catalogue
    if path.is_dir():
        raise RecipeNotFound(f"{recipe} is a folder", hint="Name a recipe file in it.")
    near = difflib.get_close_matches(str(recipe), catalogue(), n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`toolkit recipes` lists those that come with the toolkit."
    raise RecipeNotFound(f"{recipe}: no such recipe file, and no recipe of that name", hint=hint)


def load_file(recipe: str | os.PathLike[str]) -> LoadedRecipe:
    """Read and validate one recipe.

    Raises RecipeNotFound when there is nothing to read (missing file, text that is not YAML), RecipeError with every
    finding when the text is YAML but not a recipe.
    """
    path = find(recipe)
    document = _Document()
    data = _read(path, document)
    if not isinstance(data, dict):
        raise RecipeNotFound(f"{path}: not a recipe: a mapping is expected at the top, with `name:`, `target:`, …")
    findings = [*document.findings]
    try:
        file = RecipeFile.model_validate(data)
    except ValidationError as error:
        findings += _findings(error, document.lines)
        file = None
    if file is None or findings:
        raise RecipeError(str(path), sorted(findings, key=lambda finding: finding.line or 0))
    return LoadedRecipe(file, path, document.lines)


def _read(path: Path, document: _Document) -> Any:
    try:
        text = documents.read_file(path, _LIMITS).decode()
        _check_brackets(text)
        return _plain(document.yaml.compose(text), "", document)
    except documents.Unfit as error:
        raise RecipeNotFound(f"{path}: not a recipe: {error}") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        hint = error.note or "Mend the indentation or quotes."
        raise RecipeNotFound(f"{path}:{line} not YAML: {error.problem}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise RecipeNotFound(f"{path}: not UTF-8 at byte {error.start}", hint="Save it as UTF-8.") from error
    except (YAMLError, ValueError) as error:
        raise RecipeNotFound(f"{path}: not YAML: {error}") from error
    except RecursionError as error:
        raise RecipeNotFound(f"{path}: nested too deeply, or an alias within itself") from error
    except OSError as error:
        raise RecipeNotFound(f"{path}: cannot be read: {error.strerror}") from error


def _check_brackets(text: str) -> None:
    """Raises RecursionError for brackets within brackets that would take the parser long. Counts those in text too."""
    steps = (1 if bracket in "[{" else -1 for bracket in re.findall(r"[][{}]", text))
    if max(itertools.accumulate(steps), default=0) > _LIMITS.depth:
        raise RecursionError


def _plain(node: Node | None, path: str, document: _Document) -> Any:
    """`node` as dicts, lists and scalars; lines and findings go to `document`."""
    if node is not None:
        document.count(node, path)
    if isinstance(node, MappingNode):
        return _plain_mapping(node, path, document)
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            document.lines[_join(path, index)] = item.start_mark.line + 1
        return [_plain(item, _join(path, index), document) for index, item in enumerate(node.value)]
    if isinstance(node, ScalarNode):
        _join_surrogates(node)
        document.check_text(node, path)
    return None if node is None else document.yaml.constructor.construct_object(node)


def _plain_mapping(node: MappingNode, path: str, document: _Document) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, ScalarNode):
            raise MarkedYAMLError(problem="a key is plain text", problem_mark=key_node.start_mark)
        _join_surrogates(key_node)
        key, line = str(key_node.value), key_node.start_mark.line + 1
        here = _join(path, key)
        document.check_text(key_node, here)
        if key in mapping:
            message = f"`{key}` is written twice, first in line {document.lines[here]}"
            document.findings.append(Finding("recipe.duplicate-key", message, here, line, "Keep one of the two."))
            continue
        document.lines[here] = line
        mapping[key] = _plain(value_node, here, document)
    return mapping


def _join_surrogates(node: ScalarNode) -> None:
    """Make one character of `"\\ud83d\\ude00"`, as JSON escapes it. Raises MarkedYAMLError for half of such a pair."""
    if node.value.isascii():
        return
    try:
        node.value = node.value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        half = int.from_bytes(error.object[error.start : error.start + 2], "little")
        problem = f"\\u{half:04x} is half of a surrogate pair, which is no character"
        note = "Write the character itself, or both halves of the pair."
        raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark, note=note) from error


def _join(path: str, key: str | int) -> str:
    return f"{path}.{key}" if path else str(key)


def _findings(error: ValidationError, lines: Lines) -> Iterator[Finding]:
    """One finding per key: pydantic reports each branch of a union, the user has written one value."""
    seen: set[tuple[str, ...]] = set()
    for problem in error.errors(include_url=False):
        keys = tuple(str(key) for key in problem["loc"] if not _is_union_branch(key))
        if keys not in seen:
            seen.add(keys)
            path = ".".join(keys)
            code, message, hint = _explain(problem["type"], problem["msg"], problem["input"], keys)
            yield Finding(code, message, path, nearest_line(path, lines), hint)


def _is_union_branch(key: str | int) -> bool:
    """Whether pydantic put this part of a location there, not the user: `bool`, `list[...]`, `[key]`."""
    return isinstance(key, str) and bool(re.fullmatch(r"(bool|int|float|str|dict|list)(\[.*\])?|\[key\]", key))


def nearest_line(path: str, lines: Lines) -> int | None:
    """The line of the key `path` (in dots), or of the nearest key above it that is written in the file."""
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return lines.get(path)


def _explain(kind: str, message: str, value: object, keys: Sequence[str]) -> tuple[str, str, str]:
    """Code, message and hint for one of pydantic's errors."""
    key = keys[-1]
    if kind == "extra_forbidden":
        return "recipe.unknown-key", f"there is no key `{key}` here", _did_you_mean(key, list(_fields_beside(keys)))
    if kind == "missing":
        return "recipe.missing-key", f"`{key}` is missing", f"Add `{key}: …`."
    if kind == "literal_error":
        known = re.findall(r"'([^']+)'", message)
        return "recipe.bad-value", f"`{value}` is not allowed", _did_you_mean(str(value), known)
    if kind in _EXPECTED:
        return "recipe.bad-value", f"{_EXPECTED[kind]} is expected, not {_shown(value)}", _type_hint(kind, value, keys)
    if kind == "string_pattern_mismatch":
        return "recipe.bad-value", f"`{value}` is not allowed", _description(keys)
    text = message.removeprefix("Value error, ")
    shown = f"`{value}`: " if _is_scalar(value) else ""
    return "recipe.bad-value", f"{shown}{text[0].lower()}{text[1:]}", _description(keys)


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


def _type_hint(kind: str, value: object, keys: Sequence[str]) -> str:
    if kind == "model_type":
        return f"Its keys: {', '.join(_fields_beside((*keys, '')))}."
    in_quotes = f'Put it in quotes: "{_shown(value)}". ' if kind == "string_type" and _is_scalar(value) else ""
    return f"{in_quotes}{_description(keys)}".strip()


def _is_scalar(value: object) -> bool:
    return value is not None and not isinstance(value, dict | list)


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return f'"{value}"'
    return "empty" if value is None else str(value).lower()


def _did_you_mean(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    choices = f"Allowed: {', '.join(known)}."
    return f"Did you mean `{near[0]}`? {choices}" if near else choices


def _description(keys: Sequence[str]) -> str:
    """What the schema says of the nearest key that it describes, as a sentence."""
    for end in range(len(keys), 0, -1):
        field = _fields_beside(keys[:end]).get(keys[end - 1])
        if field and field.description:
            return f"{field.description[0].upper()}{field.description[1:]}."
    return ""


def _fields_beside(keys: Sequence[str]) -> Mapping[str, FieldInfo]:
    """The schema's fields in the section of the last key; none where any key may stand."""
    fields: Mapping[str, FieldInfo] = RecipeFile.model_fields
    for key in keys[:-1]:
        if not key.isdigit():
            fields = getattr(_section(fields[key].annotation), "model_fields", {}) if key in fields else {}
    return fields


def _section(annotation: Any) -> Any:
    """`Evidence` of `list[Evidence]`, and any other annotation itself."""
    return getattr(annotation, "__args__", [annotation])[0]
