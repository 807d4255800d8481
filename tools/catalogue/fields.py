"""engines/vllm/fields.json: what each version of vLLM takes as the value of a flag, and of a key of its JSON flags.

Read from the annotations of vLLM's configuration classes (vllm/config, pydantic dataclasses), without importing them:
any version's source will do. What an annotation cannot say in these terms is left out, and then not checked.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from toolkit.catalog.lookup import FOLDER, version_key
from tools.catalogue.documents import Documents

Spec = dict[str, Any]
"""`types` that a value may have, `choices` of its texts, bounds; `enum` where their case does not matter, `dotted`
where another text has to be the path of a class; what a list is `of`, and what `values` a dictionary has."""

_FILE = FOLDER / "engines" / "vllm" / "fields.json"
# Where the classes are, and the names that their annotations use.
_FILES = ("config/**/*.py", "engine/*.py", "v1/attention/**/*.py", "model_executor/layers/quantization/__init__.py")
_PLAIN = {"int", "float", "str", "bool", "list", "dict", "None"}
_COLLECTIONS = {"list": "list", "set": "list", "tuple": "list", "Sequence": "list", "dict": "dict", "Mapping": "dict"}
# No recipe can hold these; of a class a text can say where it is.
_WITHOUT_VALUE: Mapping[str, Spec] = {
    "Callable": {"types": []},
    "SupportsHash": {"types": []},
    "type": {"types": [], "dotted": True},
}
_BOUNDS = ("ge", "gt", "le", "lt")
_DECORATORS = {"config", "dataclass"}


class _Unreadable(Exception):
    """An annotation says more than a spec can."""


def generate(documents: Documents) -> str:
    """The text of the file, with the installed version added to those that it has."""
    import vllm

    shipped = json.loads(_FILE.read_text(encoding="utf-8"))
    read = {vllm.__version__.partition("+")[0]: read_fields(Path(vllm.__file__).parent)}
    return as_listing(with_versions({**shipped, "date": documents.date}, read))


@cache
def read_fields(package: Path) -> Mapping[str, Spec | str]:
    """By flag the `Class.key` that it sets, and by `Class.key` what it takes, of all that a flag can reach."""
    source = source_of(package)
    fields = {name: _fields(source, name) for name in source.configs}
    found: dict[str, Spec | str] = dict(_flags(package, source.configs))
    pending = [*dict.fromkeys(str(field) for field in found.values())]
    for field in pending:
        name, _, key = field.partition(".")
        found[field] = spec = fields[name][key]
        kinds = (kind for part in (spec, spec.get("of", {}), spec.get("values", {})) for kind in part.get("types", ()))
        inner = (f"{kind}.{other}" for kind in kinds for other in fields.get(kind, ()))
        pending += [other for other in inner if other not in pending]
    return found


def with_versions(
    shipped: Mapping[str, Any], read: Mapping[str, Mapping[str, Spec | str]], kind: str = "fields"
) -> dict[str, Any]:
    """The file with these versions, which take the place of what it has of them under its key `kind`."""
    versions = sorted({*shipped["versions"], *read}, key=version_key)
    by_version = {version: read.get(version) or _at(shipped[kind], version) for version in versions}
    names = sorted({name for specs in by_version.values() for name in specs})
    spans = {name: _spans([(version, by_version[version].get(name)) for version in versions]) for name in names}
    return {**shipped, "versions": versions, kind: spans}


def as_listing(data: Mapping[str, Any], kind: str = "fields") -> str:
    """The text of the file: one line for each name under its key `kind`."""
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(spans)}" for name, spans in data[kind].items())
    head = json.dumps({key: value for key, value in data.items() if key != kind}, indent=2)
    return head.removesuffix("\n}") + f",\n  {json.dumps(kind)}: {{\n{lines}\n  }}\n}}\n"


def _at(fields: Mapping[str, list[list[Any]]], version: str) -> dict[str, Spec | str]:
    key = version_key(version)
    return {
        name: spec
        for name, spans in fields.items()
        for since, until, spec in spans
        if version_key(since) <= key and (until is None or key < version_key(until))
    }


def _spans(specs: list[tuple[str, Spec | str | None]]) -> list[list[Any]]:
    """First version, first one without it again or None, and the spec: for each run of versions with the same."""
    runs = [(spec, [version for version, _ in run]) for spec, run in groupby(specs, key=lambda item: item[1])]
    ends = [*(versions[0] for _, versions in runs[1:]), None]
    return [[versions[0], end, spec] for (spec, versions), end in zip(runs, ends, strict=True) if spec is not None]


@cache
def source_of(package: Path) -> Source:
    """Read once for all files of the catalogue: it takes seconds."""
    return Source(package)


class Source:
    """The classes and type names of a package's source, by name; those of vllm/config come first."""

    def __init__(self, package: Path) -> None:
        self.configs: dict[str, ast.ClassDef] = {}
        self.enums: dict[str, list[str | int]] = {}
        self.aliases: dict[str, ast.expr] = {}
        for file in (file for pattern in _FILES for file in sorted(package.glob(pattern))):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                self._add(node, in_config=file.is_relative_to(package / "config"))

    def _add(self, node: ast.stmt, *, in_config: bool) -> None:
        if isinstance(node, ast.ClassDef):
            if in_config and _DECORATORS & {name_of(decorator) for decorator in node.decorator_list}:
                self.configs.setdefault(node.name, node)
            elif any(name_of(base).endswith("Enum") for base in node.bases):
                self.enums.setdefault(node.name, [*dict.fromkeys(_members(node))])
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self.aliases.setdefault(node.targets[0].id, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            self.aliases.setdefault(node.target.id, node.value)


def _members(enum: ast.ClassDef) -> Iterator[str | int]:
    """Names of an enumeration's members, their numbers, and their texts where it is one of texts."""
    kinds = (str, int) if {"str", "StrEnum"} & {name_of(base) for base in enum.bases} else (int,)
    for node in enum.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, kinds):
                yield node.value.value


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _fields(source: Source, name: str) -> dict[str, Spec]:
    """Every field that a user may set: None where nothing of its value can be said."""
    found: dict[str, Spec] = {}
    for base in source.configs[name].bases:
        if name_of(base) in source.configs:
            found |= _fields(source, name_of(base))
    for node in source.configs[name].body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if node.target.id.startswith("_") or _is_hidden(node):
            continue
        try:
            spec = _spec(source, node.annotation) | _bounds(node.value)
        except _Unreadable:
            spec = {}
        found[node.target.id] = spec
    return found


def _is_hidden(field: ast.AnnAssign) -> bool:
    """Whether a field is not for users: `ClassVar[int]`, or `field(init=False)`."""
    if isinstance(field.annotation, ast.Subscript) and name_of(field.annotation.value) in ("ClassVar", "InitVar"):
        return True
    keywords = field.value.keywords if isinstance(field.value, ast.Call) else []
    return any(
        item.arg == "init" and isinstance(item.value, ast.Constant) and not item.value.value for item in keywords
    )


def _bounds(call: ast.expr | None) -> Spec:
    """The bounds in `Field(ge=1)`."""
    if not isinstance(call, ast.Call) or name_of(call) != "Field":
        return {}
    given = {item.arg: item.value for item in call.keywords if item.arg in _BOUNDS}
    try:
        return {str(name): ast.literal_eval(value) for name, value in given.items()}
    except ValueError:
        return {}


def _spec(source: Source, node: ast.expr) -> Spec:
    """What an annotation allows. Raises _Unreadable."""
    parts = [*_alternatives(source, node)]
    types = sorted({kind for part in parts for kind in part.get("types", ())})
    choices = [text for part in parts for text in part.get("choices", ())]
    kinds = (*_BOUNDS, "enum", *(("dotted",) if choices else ()))  # without choices vLLM takes any text at first
    others = {key: value for part in parts for key, value in part.items() if key in kinds}
    for kind, key in (("list", "of"), ("dict", "values")):
        alike = [part for part in parts if kind in part.get("types", ())]
        others |= {key: alike[0][key]} if len(alike) == 1 and key in alike[0] else {}
    return {"types": types, **({"choices": choices} if choices else {}), **others}


def _alternatives(source: Source, node: ast.expr) -> Iterator[Spec]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _alternatives(source, ast.parse(node.value, mode="eval").body)
    elif isinstance(node, ast.Constant) and node.value is None:
        yield {"types": ["None"]}
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _alternatives(source, node.left)
        yield from _alternatives(source, node.right)
    elif isinstance(node, ast.Subscript):
        yield from _subscript(source, name_of(node.value), _elements(node.slice))
    elif isinstance(node, ast.Name):
        yield from _named(source, node.id)
    elif name_of(node) == "dtype":  # torch's own, which no file can hold
        yield {"types": []}
    else:
        raise _Unreadable


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _subscript(source: Source, name: str, inner: list[ast.expr]) -> Iterator[Spec]:
    if name == "Literal":
        yield {"types": [], "choices": [item.value for item in inner if isinstance(item, ast.Constant)]}
        for item in inner:
            if not isinstance(item, ast.Constant):
                yield from _alternatives(source, item)
    elif name in ("Optional", "Union", "SkipValidation"):  # pydantic skips the last, and the parser does not
        yield from [{"types": ["None"]}] if name == "Optional" else []
        for item in inner:
            yield from _alternatives(source, item)
    elif name == "Annotated":
        yield from _alternatives(source, inner[0])
        for item in inner[1:]:
            yield _bounds(item)
    elif name in _COLLECTIONS:
        yield {"types": [_COLLECTIONS[name]], **_elements_of(source, name, inner)}
    elif name in _WITHOUT_VALUE:
        yield _WITHOUT_VALUE[name]
    else:
        raise _Unreadable


def _elements_of(source: Source, name: str, inner: list[ast.expr]) -> Spec:
    """What a list's elements may be, where all are alike, or a dictionary's values; where that can be said."""
    is_list = _COLLECTIONS[name] == "list"
    alike = len(inner) == 1 if name != "tuple" else len(inner) == 2 and ast.unparse(inner[1]) == "..."
    if is_list and not alike:
        return {}
    try:
        spec = _spec(source, inner[0] if is_list else inner[-1])
    except _Unreadable:
        return {}
    if is_list:
        return {"of": spec}
    # What a class is made of may be written shorter, as one number for images.
    return {} if source.configs.keys() & {*spec["types"]} else {"values": spec}


def _named(source: Source, name: str) -> Iterator[Spec]:
    if name in _PLAIN or name in source.configs:
        yield {"types": [name]}
    elif name in source.enums:
        yield {"types": [], "choices": source.enums[name], "enum": True}
    elif name in _WITHOUT_VALUE:
        yield _WITHOUT_VALUE[name]
    elif name in source.aliases:
        yield from _alternatives(source, source.aliases[name])
    else:
        raise _Unreadable


def _flags(package: Path, configs: Collection[str]) -> dict[str, str]:
    """`Class.key` by the flag that takes it as it is: those with a type of their own are left out."""
    tree = ast.parse((package / "engine" / "arg_utils.py").read_text(encoding="utf-8"))
    groups: dict[str, str] = {}
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and name_of(node.value) == "get_kwargs":
            groups[name_of(node.targets[0])] = name_of(node.value.args[0])
    passed_on = dict(_passed_on(tree, configs))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or name_of(node) != "add_argument":
            continue
        flag = str(node.args[0].value) if node.args and isinstance(node.args[0], ast.Constant) else ""
        if flag in passed_on and any(item.arg == "type" and name_of(item.value) in _PLAIN for item in node.keywords):
            found[flag[2:]] = passed_on[flag]
        taken = [one for item in node.keywords if item.arg is None and (one := _declaration(item.value))]
        if len(taken) != 1 or any(item.arg in ("type", "choices", "action", "nargs") for item in node.keywords):
            continue
        group, key = name_of(taken[0].value), taken[0].slice
        names = [str(item.value) for item in node.args if isinstance(item, ast.Constant)]
        if group in groups and isinstance(key, ast.Constant):
            found |= {name[2:]: f"{groups[group]}.{key.value!s}" for name in names if name.startswith("--")}
    return found


def _declaration(node: ast.expr) -> ast.Subscript | None:
    """What `**group["key"]` gives to a parser, or `**{**group["key"], "default": …}`."""
    if isinstance(node, ast.Dict):
        others = {key.value for key in node.keys if isinstance(key, ast.Constant)}
        whole = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
        return _declaration(whole[0]) if len(whole) == 1 and others <= {"default", "help"} else None
    return node if isinstance(node, ast.Subscript) else None


def _passed_on(tree: ast.AST, configs: Collection[str]) -> Iterator[tuple[str, str]]:
    """`--flag` and `Class.key`, where a class is made with `key=self.key`, or with what `key` has become on the way."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node) in configs:
            for given in (item for item in node.keywords if item.arg and name_of(item.value) == item.arg):
                yield f"--{str(given.arg).replace('_', '-')}", f"{name_of(node)}.{given.arg}"
