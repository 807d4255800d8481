"""engines/vllm/clashes.json: settings that each version of vLLM refuses together, read in its source.

They are the conditions of `raise` and `assert` in the validators of its configuration classes, and where it turns flags
into those, as far as they are about settings and constants alone. What something else may decide, such as a value that
vLLM has changed before, is left out.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

from toolkit.catalog.lookup import FOLDER
from tools.catalogue.documents import Documents
from tools.catalogue.fields import as_listing, name_of, read_fields, source_of, with_versions

Atom = list[Any]
"""A setting, a comparison, and a constant or (`{"of": setting}`) another setting."""
Ways = list[list[Atom]]
"""What has to hold: all of the atoms of one of the lists. Empty where nothing is known to be enough."""

_FILE = FOLDER / "engines" / "vllm" / "clashes.json"
_KIND = "clashes"
# What they are about is the toolkit's own keys, or is changed before it is looked at.
_NOT_READ = ("ModelConfig", "SpeculativeConfig")
_VALIDATORS = ("__post_init__", "create_engine_config", "_check_feature_supported", "validate_parsed_serve_args")
# What a module of flags calls to refuse a feature.
_RAISES = "_raise_unsupported_error"
# The class of all settings, which is made last; what some of its methods list is for one model runner alone.
_WHOLE = "VllmConfig"
_RUNNER_OF = re.compile(r"_(v[12])_model_runner")
RUNNER = "runner V2"
"""The setting in place of `use_v2_model_runner`, which vLLM finds out from more than settings."""
PLATFORM = "CUDA or CPU"
"""The setting in place of what platform it is not."""

_ELSEWHERE = ("is_out_of_tree", "is_rocm", "is_tpu", "is_xpu")
_COMPARISONS: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("==", "!="),
    ast.IsNot: ("!=", "=="),
}
# Of a remainder that is compared with 0, by whether it is.
_DIVISION = {"==": "multiple of", "!=": "no multiple of"}
_MOST_WAYS = 16


def generate(documents: Documents) -> str:
    """The text of the file, with the installed version added to those that it has."""
    import vllm

    shipped = json.loads(_FILE.read_text(encoding="utf-8"))
    read = {vllm.__version__.partition("+")[0]: read_clashes(Path(vllm.__file__).parent)}
    return as_listing(with_versions({**shipped, "date": documents.date}, read, _KIND), _KIND)


def read_clashes(package: Path) -> dict[str, dict[str, Any]]:
    """By what vLLM says: the `ways` in which it comes to that, and the `defaults` of the settings in them."""
    settings = _Settings(package)
    found: dict[str, dict[str, Any]] = {}
    for owner, function in settings.validators():
        for says, ways in _Reader(settings, owner, function).refusals():
            if ways:
                entry = found.setdefault(says, {"ways": [], "defaults": {}})
                entry["ways"] += [way for way in ways if way not in entry["ways"]]
    for entry in found.values():
        named = sorted({name for way in entry["ways"] for atom in way for name in _settings_in(atom)})
        entry["defaults"] = {name: settings.defaults[name] for name in named if name in settings.defaults}
    return found


def _settings_in(atom: Atom) -> Iterator[str]:
    yield atom[0]
    if isinstance(atom[2], dict):
        yield atom[2]["of"]


class _Settings:
    """The settings of a version: their names in the catalogue, their defaults, and which reach their class as given."""

    def __init__(self, package: Path) -> None:
        self.source = source_of(package)
        self._fields = read_fields(package)
        self._classes = {
            f"{name}.{item.target.id}": [
                part.id
                for part in ast.walk(item.annotation)
                if isinstance(part, ast.Name) and part.id in self.source.configs
            ]
            for name, node in self.source.configs.items()
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        self._engine_args = ast.parse((package / "engine" / "arg_utils.py").read_text(encoding="utf-8"))
        parsers = sorted(package.glob("entrypoints/*/cli_args.py"))  # where it is depends on the version
        self._serving = ast.Module([node for file in parsers for node in ast.parse(file.read_text("utf-8")).body], [])
        self.defaults = dict(self._defaults())
        self._computed = set(self._changed_on_the_way())
        self.overwritten = {
            target.attr
            for file in (
                package / "config" / "vllm.py",
                *package.glob("platforms/*.py"),
                *package.glob("model_executor/models/config.py"),
            )
            if file.is_file()
            for target in _overwritten(ast.parse(file.read_text(encoding="utf-8")))
        }

    def validators(self) -> Iterator[tuple[str, ast.FunctionDef]]:
        """The class, or nothing for flags, and the function that refuses."""
        for name, node in self.source.configs.items():
            if name not in _NOT_READ:
                calls = {name_of(call) for call in _always_called(node)}
                for item in (one for one in node.body if isinstance(one, ast.FunctionDef)):
                    of_whole = name == _WHOLE and (item.name in calls or _RUNNER_OF.search(item.name))
                    if of_whole or _refuses(item):
                        yield name, item
        for found in self._of_flags():
            if isinstance(found, ast.FunctionDef) and found.name in _VALIDATORS[1:]:
                yield "", found

    def _of_flags(self) -> Iterator[ast.AST]:
        yield from ast.walk(self._engine_args)
        yield from ast.walk(self._serving)

    def name(self, owner: str, keys: list[str]) -> str:
        """The setting that an attribute is, `self.eplb_config.use_async` of a class's own; empty where it is none."""
        if not owner:
            flag = keys[0].replace("_", "-")
            found = str(self._fields.get(flag, f"--{flag}"))
            return found if len(keys) == 1 and found not in self._computed else ""
        found = f"{self.owner(owner, keys[:-1])}.{keys[-1]}"
        return found if found in self._fields and found not in self._computed else ""

    def owner(self, owner: str, path: list[str]) -> str:
        """The class that is reached from another one by these keys; empty where that is not known."""
        for key in path:
            declared = self._classes.get(f"{owner}.{key}", [])
            owner = declared[0] if len(declared) == 1 else ""
        return owner

    def _defaults(self) -> Iterator[tuple[str, Any]]:
        for owner, node in self.source.configs.items():
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    yield from ((f"{owner}.{item.target.id}", value) for value in _constant(item.value))
        for found in self._of_flags():
            if isinstance(found, ast.AnnAssign) and isinstance(found.target, ast.Name):
                flag = found.target.id.replace("_", "-")
                if flag not in self._fields:
                    yield from ((f"--{flag}", value) for value in _constant(found.value))

    def _changed_on_the_way(self) -> Iterator[str]:
        """Settings that are not in their class what the flag says."""
        owners = {name.lower(): name for name in self.source.configs}
        for item in ast.walk(self._engine_args):
            for target in _targets(item):
                flag, value = target.attr.replace("_", "-"), getattr(item, "value", None)
                if _is_own(target):
                    yield str(self._fields.get(flag, f"--{flag}"))
                elif not (isinstance(value, ast.Constant) and value.value is True):  # where the flag is
                    yield f"{owners.get(name_of(target.value).replace('_', ''))}.{target.attr}"
            if isinstance(item, ast.Call) and (owner := name_of(item)) in self.source.configs:
                for given in item.keywords:
                    flag = given.value.attr.replace("_", "-") if _is_own(given.value) else ""
                    if self._fields.get(flag) != f"{owner}.{given.arg}":
                        yield f"{owner}.{given.arg}"


def _is_own(node: ast.expr) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and name_of(node.value) == "self"


def _targets(node: ast.AST) -> list[ast.Attribute]:
    """The attributes that a statement sets."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [one for one in targets if isinstance(one, ast.Attribute)]


def _overwritten(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that are set to something else: `if not x.on: x.on = False` leaves off what is off."""
    for node in ast.walk(tree):
        off = ast.unparse(node.test.operand) if isinstance(node, ast.If) and _is_not(node.test) else ""
        for inner in ast.iter_child_nodes(node):
            value = getattr(inner, "value", None)
            stays = isinstance(value, ast.Constant) and not value.value
            yield from (one for one in _targets(inner) if not (stays and off == ast.unparse(one)))


def _is_not(node: ast.expr) -> TypeGuard[ast.UnaryOp]:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    """Those of a product; nothing of what is none."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for side in (node.left, node.right):
            yield from [*_factors(side)] or [side]


def _always_called(node: ast.ClassDef) -> Iterator[ast.Call]:
    """Methods that a class calls whenever it is made."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__post_init__":
            yield from (one.value for one in item.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call))


def _refuses(function: ast.FunctionDef) -> bool:
    after = any(
        isinstance(one, ast.Call) and name_of(one) == "model_validator" and ast.unparse(one).endswith("mode='after')")
        for one in function.decorator_list
    )
    return after or function.name in _VALIDATORS


def _constant(node: ast.expr | None) -> Iterator[Any]:
    """The default that is written: a constant, or that of a call of `Field` or `field`."""
    if isinstance(node, ast.Call) and name_of(node) in ("Field", "field"):
        node = next(
            (item.value for item in node.keywords if item.arg == "default"), node.args[0] if node.args else None
        )
    if node is not None:
        try:
            value = ast.literal_eval(node)
        except ValueError:
            return
        if value is None or isinstance(value, bool | int | float | str):
            yield value


@dataclass
class _Reader:
    """Reads the refusals of one function, in order.

    `changed` are the attributes that it has set up to there, `short` the names that it has given to others.
    """

    settings: _Settings
    owner: str
    function: ast.FunctionDef
    changed: set[str] = field(default_factory=set)
    short: dict[str, list[str]] = field(default_factory=dict)

    def refusals(self) -> Iterator[tuple[str, Ways]]:
        ways: Ways = [[]]
        if self.owner == _WHOLE:
            self.changed |= self.settings.overwritten
            if found := _RUNNER_OF.search(self.function.name):
                ways = [[[RUNNER, "on" if found[1] == "v2" else "off", None]]]
        yield from self._block(self.function.body, ways)

    def _block(self, body: list[ast.stmt], ways: Ways) -> Iterator[tuple[str, Ways]]:
        """What is refused in these statements, which are reached if one of the ways holds."""
        for node in body:
            if isinstance(node, ast.If):
                yes, no = self._true(node.test), self._false(node.test)
                other = replace(self, changed={*self.changed})
                yield from self._block(node.body, _both(ways, yes))
                yield from other._block(node.orelse, _both(ways, no))
                self.changed |= other.changed
                # After a refusal nothing is learnt: what refuses here is refused as well.
                ways = _both(ways, no) if _returns(node.body) else ways
                ways = _both(ways, yes) if _returns(node.orelse) else ways
            elif isinstance(node, ast.Raise):
                yield _said(node.exc), ways
            elif isinstance(node, ast.Assert):
                yield _said(node.msg), _both(ways, self._false(node.test))
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and self._adds_refusal(node.value):
                yield _said(node.value), ways
            else:
                if any(isinstance(item, ast.Return) for item in ast.walk(node)):
                    ways = []
                self._note(node)

    def _adds_refusal(self, call: ast.Call) -> bool:
        """Whether it refuses, or adds to a list of what cannot be, which is raised if there is anything in it."""
        if name_of(call) == _RAISES or not isinstance(call.func, ast.Attribute) or call.func.attr != "append":
            return name_of(call) == _RAISES
        raised = [
            name_of(item.test)
            for item in ast.walk(self.function)
            if isinstance(item, ast.If) and any(isinstance(one, ast.Raise) for one in item.body)
        ]
        return bool(_RUNNER_OF.search(self.function.name)) or name_of(call.func.value) in filter(None, raised)

    def _note(self, node: ast.stmt) -> None:
        for item in ast.walk(node):
            self.changed |= {one.attr for one in _targets(item)}
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self.short[node.targets[0].id] = self._keys(node.value)

    def _true(self, node: ast.expr) -> Ways:
        if isinstance(node, ast.BoolOp):
            parts = [self._true(item) for item in node.values]
            return _all(parts) if isinstance(node.op, ast.And) else [*chain.from_iterable(parts)]
        if _is_not(node):
            return self._false(node.operand)
        return self._atoms(node, negated=False)

    def _false(self, node: ast.expr) -> Ways:
        if isinstance(node, ast.BoolOp):
            parts = [self._false(item) for item in node.values]
            return [*chain.from_iterable(parts)] if isinstance(node.op, ast.And) else _all(parts)
        if _is_not(node):
            return self._true(node.operand)
        return self._atoms(node, negated=True)

    def _atoms(self, node: ast.expr, *, negated: bool) -> Ways:
        always: Ways = [[]]
        if isinstance(node, ast.Call) and name_of(node) in _ELSEWHERE:
            return [[[PLATFORM, "on", None]]] if negated else []
        if isinstance(node, ast.Attribute):
            name = self._setting(node)
            if not name and (inner := self._property(node)):
                return inner._false(inner.returned) if negated else inner._true(inner.returned)
            return [[[name, "off" if negated else "on", None]]] if name else []
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in _COMPARISONS:
            return []
        comparison = _COMPARISONS[type(node.ops[0])][negated]
        if isinstance(node.left, ast.BinOp):
            return self._reckoned(node.left, comparison, self._other(node.comparators[0]))
        name, other = self._setting(node.left), self._other(node.comparators[0])
        if self._keys(node.left) == ["model_config"] and other == [None]:  # which there always is
            return always if comparison == "!=" else []
        if name == "--subparser" and other:  # the command: `vllm serve`
            is_meant = "serve" in (other[0] if isinstance(other[0], list) else other)
            return always if is_meant == (comparison in ("==", "in")) else []
        return [[[name, comparison, other[0]]]] if name and other else []

    def _reckoned(self, node: ast.BinOp, comparison: str, other: list[Any]) -> Ways:
        """Of `a % b != 0`, and of `a * b <= 1`, where each is a number of 1 or more."""
        if isinstance(node.op, ast.Mod) and other == [0] and comparison in _DIVISION:
            name, by = self._setting(node.left), self._setting(node.right)
            return [[[name, _DIVISION[comparison], {"of": by}]]] if name and by else []
        atoms: list[Atom] = [[self._setting(one), comparison, 1] for one in _factors(node)]
        if other != [1] or not atoms or not all(name for name, _, _ in atoms):
            return []
        return [atoms] if comparison == "<=" else [[one] for one in atoms] if comparison == ">" else []

    def _property(self, node: ast.expr) -> _Reader | None:
        """The reader of a property that returns what it makes of settings; None where it is no such one."""
        *path, last = self._keys(node) or [""]
        owner = self.settings.owner(self.owner, path)
        for item in self.settings.source.configs[owner].body if owner else ():
            if isinstance(item, ast.FunctionDef) and item.name == last and isinstance(item.body[-1], ast.Return):
                return replace(self, owner=owner, function=item, short={})
        return None

    @property
    def returned(self) -> ast.expr:
        """What the function returns, if that is all that it does."""
        statements = [item for item in self.function.body if not isinstance(item, ast.Expr)]
        only = statements[0] if len(statements) == 1 else None
        return only.value if isinstance(only, ast.Return) and only.value else ast.Constant(None)

    def _other(self, node: ast.expr) -> list[Any]:
        """The constant or the other setting, in a list; empty where it is neither."""
        if name := self._setting(node):
            return [{"of": name}]
        if isinstance(node, ast.Attribute) and name_of(node.value) in self.settings.source.configs:
            default = f"{name_of(node.value)}.{node.attr}"
            return [self.settings.defaults[default]] if default in self.settings.defaults else []
        try:
            value = ast.literal_eval(node)
        except ValueError:
            return []
        return [list(value) if isinstance(value, tuple | set) else value]

    def _setting(self, node: ast.expr) -> str:
        keys = self._keys(node)
        if keys == ["use_v2_model_runner"]:
            return RUNNER
        return self.settings.name(self.owner, keys) if keys and not self.changed.intersection(keys) else ""

    def _keys(self, node: ast.expr) -> list[str]:
        """`["parallel_config", "nnodes"]` of `self.parallel_config.nnodes`, or of a name for that; else empty."""
        keys: list[str] = []
        while isinstance(node, ast.Attribute):
            keys.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return []
        first = self.function.args.args[0].arg if self.function.args.args else ""
        above = self.short.get(node.id, [])
        return keys if node.id == first else [*above, *keys] if above else []


def _all(parts: list[Ways]) -> Ways:
    ways: Ways = [[]]
    for part in parts:
        ways = _both(ways, part)
    return ways


def _both(ways: Ways, more: Ways) -> Ways:
    """Ways in which both hold; none where they are too many to be of use."""
    found = [[*one, *(atom for atom in other if atom not in one)] for one in ways for other in more]
    return found if len(found) <= _MOST_WAYS else []


def _returns(body: list[ast.stmt]) -> bool:
    return any(isinstance(item, ast.Return) for node in body for item in ast.walk(node))


def _said(node: ast.expr | None) -> str:
    """The text of a message; what stands in it at run time is `…`."""
    parts = []
    for item in ast.walk(node) if node else ():
        if isinstance(item, ast.JoinedStr):
            parts = [str(one.value) if isinstance(one, ast.Constant) else "…" for one in item.values]
            break
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            parts = [item.value]
            break
    return " ".join("".join(parts).split())
