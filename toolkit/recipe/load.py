"""Read a recipe file: YAML with every key's line kept, and all problems reported at once."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from toolkit import documents
from toolkit.errors import RecipeError, RecipeNotFound, UnreadableRecipe
from toolkit.findings import Finding
from toolkit.recipe.hints import Problem, explain, without_repeats
from toolkit.recipe.known import catalogue, catalogue_dir, known_model
from toolkit.recipe.schema import RecipeFile
from toolkit.recipe.yaml_hints import yaml_hint

# Far beyond any recipe, and read in seconds. What an alias stands for counts at each of its places.
_LIMITS = documents.Limits(size=64 * 1024, items=10_000, depth=50)
_SECTIONS = ("ContainerSection", "InstanceType", "SharedSource")
"""Classes of sections for which one word may be written instead."""
_UNION_BRANCH = re.compile(
    rf"(bool|int|float|str|constrained-str|dict|list|literal)(\[.*\])?|\[key\]|{'|'.join(_SECTIONS)}"
)

_SHOWN = 60  # characters of a name that cannot be one

Lines = Mapping[str, int]


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe file that says nothing wrong, and the line of each of its keys (by dotted path)."""

    file: RecipeFile
    path: Path
    lines: Lines


@dataclass
class _Document:
    """A YAML document as plain data, while it is being walked. `texts` are its scalars as they are written."""

    yaml: YAML = field(default_factory=lambda: YAML(typ="safe", pure=True))
    lines: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
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
            self.findings.append(Finding("recipe.bad-value", "a null byte is not text", path, line, hint="Remove it."))


def find(recipe: str | os.PathLike[str]) -> Path:
    """The file of a path or of a catalogue name. Raises RecipeNotFound with the nearest names."""
    path = Path(recipe).expanduser()
    try:
        if path.is_file():
            return path
    except OSError as error:  # a name that is too long
        hint = "Give the path of a recipe's file, or the name of one that `toolkit recipes` lists."
        raise RecipeNotFound(f"{str(recipe)[:_SHOWN]}: no such recipe file: {error.strerror}", hint=hint) from error
    in_catalogue = catalogue_dir() / f"{recipe}.yaml"
    if in_catalogue.is_file():
        return in_catalogue
    if path.is_dir():
        raise RecipeNotFound(f"{recipe} is a folder, not a recipe's file", hint=_in_folder(path))
    raise RecipeNotFound(f"{recipe}: no such recipe file, and no recipe of that name", hint=_suggest(str(recipe), path))


def _in_folder(folder: Path) -> str:
    if (folder / "config.json").is_file():
        return f"For the model in it: toolkit new {shlex.quote(str(folder))}"
    files = sorted(str(path) for path in folder.glob("*.y*ml"))
    return f"Did you mean {' or '.join(files[:3])}?" if files else "Write one: toolkit new MODEL"


def _suggest(written: str, path: Path) -> str:
    """The file beside it or the name that was probably meant, or what to do for a model."""
    beside = {file.stem: str(file) for file in path.parent.glob("*.y*ml")}
    if files := difflib.get_close_matches(path.stem, beside, n=1):
        return f"Did you mean {beside[files[0]]}?"
    if known_model(written):
        return f"It is a model; for a recipe of it: toolkit new {written}"
    near = difflib.get_close_matches(written, catalogue(), n=3, cutoff=0.4)
    return f"Did you mean {' or '.join(near)}?" if near else "`toolkit recipes` lists those that come with the toolkit."


def load_file(recipe: str | os.PathLike[str], schema: type[RecipeFile]) -> LoadedRecipe:
    """Read and validate one recipe.

    Raises RecipeNotFound for a missing file, UnreadableRecipe for text that is not YAML, and RecipeError with every
    finding for YAML that is not a recipe.
    """
    path = find(recipe)
    document = _Document()
    data = _read(path, document, schema)
    if not isinstance(data, dict):
        message = f"{path}: not a recipe: a mapping is expected at the top, with `name:`, `target:`, …"
        raise UnreadableRecipe(message, hint="`toolkit recipes` lists recipes to begin from.")
    findings = [*document.findings]
    try:
        file = schema.model_validate(data)
    except ValidationError as error:
        findings += without_repeats(list(_findings(error, data, path.stem, document, schema)))
        file = None
    if file is None or findings:
        raise RecipeError(str(path), sorted(findings, key=lambda finding: finding.line or 0))
    return LoadedRecipe(file, path, document.lines)


def plain_yaml(text: str) -> Any:
    """A YAML document as dicts, lists and scalars, within the limits of a recipe. Raises ValueError if it is none."""
    try:
        _check_brackets(text)
        document = _Document()
        return _plain(document.yaml.compose(text), "", document)
    except (YAMLError, RecursionError) as error:
        raise ValueError(f"not YAML, or nested too deeply: {error}") from error


def nearest_line(path: str, lines: Lines) -> int | None:
    """The line of the key `path` (in dots), or of the nearest key above it that is written in the file."""
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return lines.get(path)


def _read(path: Path, document: _Document, schema: type[RecipeFile]) -> Any:
    text = _text(path)
    try:
        _check_brackets(text)
        return _plain(document.yaml.compose(text), "", document)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        hint = error.note or yaml_hint(text, error, schema)
        raise UnreadableRecipe(f"{path}:{line} not YAML: {error.problem}", hint=hint) from error
    except (YAMLError, ValueError) as error:
        hint = "Write it as UTF-8 text without control characters."
        raise UnreadableRecipe(f"{path}: not YAML: {error}", hint=hint) from error
    except RecursionError as error:
        hint = "Write it without anchors (`&`) and aliases (`*`), and with fewer brackets."
        raise UnreadableRecipe(f"{path}: nested too deeply, or an alias within itself", hint=hint) from error


def _text(path: Path) -> str:
    try:
        return documents.read_file(path, _LIMITS).decode()
    except documents.Unfit as error:
        hint = "Give a recipe, a YAML file such as those of: toolkit recipes"
        raise UnreadableRecipe(f"{path}: not a recipe: {error}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise UnreadableRecipe(f"{path}: not UTF-8 at byte {error.start}", hint="Save it as UTF-8.") from error
    except OSError as error:
        raise UnreadableRecipe(
            f"{path}: cannot be read: {error.strerror}", hint="Give a file that you may read."
        ) from error


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
        document.texts[path] = node.value
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
            document.findings.append(Finding("recipe.duplicate-key", message, here, line, hint="Keep one of the two."))
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


def _findings(
    error: ValidationError, recipe: Mapping[str, Any], stem: str, document: _Document, schema: type[RecipeFile]
) -> Iterator[Finding]:
    """One finding per key: pydantic reports each branch of a union, the user has written one value."""
    seen: set[tuple[str, ...]] = set()
    errors = error.errors(include_url=False)
    sections = {found["loc"][:end] for found in errors for end, key in enumerate(found["loc"]) if key in _SECTIONS}
    for found in errors:
        *above, branch = found["loc"]
        if isinstance(found["input"], dict) and tuple(above) in sections and branch not in _SECTIONS:
            continue  # a mapping is meant as the section, not as the word that may stand there instead
        keys = tuple(str(key) for key in found["loc"] if not _is_union_branch(key))
        if keys not in seen:
            seen.add(keys)
            path = ".".join(keys)
            written = document.texts.get(path, "")
            problem = Problem(found["type"], found["msg"], found["input"], keys, recipe, written, stem, schema)
            yield explain(problem, nearest_line(path, document.lines))


def _is_union_branch(key: str | int) -> bool:
    """Whether pydantic put this part of a location there, not the user: `bool`, `list[...]`, `[key]`, a class."""
    return isinstance(key, str) and bool(_UNION_BRANCH.fullmatch(key))
