"""The table of drafting methods: methods.json has what is true of a method, an engine's file how the engine does it.

Everything that differs between methods is a field here, so that no other code compares a method's name. `register`
adds a method at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from toolkit.catalog.lookup import engine_files, older, read
from toolkit.errors import UsageError

Drafter = Literal["required", "optional", "none"]
Kind = Literal["head", "model", "target", "text"]
Slots = Literal["none", "one", "k-1", "k"]

BASELINE = "none"
"""The recipe's value for no speculation. It is not in the table."""


@dataclass(frozen=True)
class Key:
    """An optional key of `speculation`: the first engine version that accepts it, and the first for certain values.

    `runner` is the only model runner on which it works, `V1` or `V2`; empty for both.
    """

    since: str
    values: Mapping[str, str] = field(default_factory=dict)
    runner: str = ""


@dataclass(frozen=True)
class EngineMethod:
    """How one engine is configured for a method.

    Fields:
        method: the engine's own name; empty if the engine detects the method from the drafter's files.
        since: first engine version that supports it.
        fixed: settings that its configuration always has.
        keys: optional keys of a recipe's `speculation` that it accepts.
        runner: the only model runner that it runs on, `V1` or `V2`; empty for both.
        not_with: flags of the engine that cannot be combined with the method.
        draft_slots_formula: slots of the engine's token budget that drafting takes for each request.
        packages: Python packages that it needs and the engine does not bring.
        targets: model types and architectures (config.json) that contain layers for this method.
        target_keys: keys of config.json without which a target of such a type has no such layers.
    """

    method: str
    since: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Key] = field(default_factory=dict)
    runner: str = ""
    draft_slots_formula: Slots = "none"
    not_with: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    target_keys: tuple[str, ...] = ()

    def missing(self, config: Mapping[str, Any]) -> str:
        """The key that a target's config.json lacks for layers of its own; empty if it has all."""
        return next((key for key in self.target_keys if config.get(key) is None), "")

    def draft_slots(self, k: int) -> int:
        """Slots of the engine's token budget that drafting K tokens takes for each request."""
        return {"none": 0, "one": 1, "k-1": k - 1, "k": k}[self.draft_slots_formula]

    def takes(self, key: str, version: str) -> bool:
        """Whether that version of the engine accepts an optional key of `speculation` with this method."""
        return key in self.keys and not older(version, self.keys[key].since)

    def runner_for(self, settings: Mapping[str, Any]) -> str:
        """The only model runner for the method with these keys of `speculation`; empty if both can run it."""
        wanted = (self.keys[key].runner for key, value in settings.items() if value and key in self.keys)
        return self.runner or next(filter(None, wanted), "")


@dataclass(frozen=True)
class Method:
    """A drafting method, as a recipe's `speculation.method` names it.

    Fields:
        drafter: whether the recipe names a drafter; `optional` if the target can draft with layers of its own.
        kind: what drafts: a `head` that reads one target's hidden states, a separate `model`, layers of the `target`
            itself, or the `text` so far, without any model.
        reads_layers: whether it reads hidden states of layers inside the target, not only of the last layer.
        parallel: whether all K tokens are drafted in one pass, not one by one.
        mask_token: whether the drafter's config.json has to name a mask token.
        full_drafts: whether every draft has K tokens; if not, drafts have 0 to K.
        format: format of the drafter's files, if the checks can read it: `eagle3`.
        spelling_of: the method that this is another name for; else empty.
    """

    name: str
    drafter: Drafter
    kind: Kind
    default_num_speculative_tokens: int
    reads_layers: bool = False
    parallel: bool = False
    mask_token: bool = False
    full_drafts: bool = True
    format: str = ""
    engines: Mapping[str, EngineMethod] = field(default_factory=dict)
    spelling_of: str = ""


def methods() -> tuple[Method, ...]:
    """Every method in the order of the table, without other spellings."""
    return tuple(item for item in _table().values() if not item.spelling_of)


def names() -> tuple[str, ...]:
    """All values that a recipe may have, including other spellings and the baseline's name."""
    return (*_table(), BASELINE)


def method(name: str) -> Method:
    """The method of that name or spelling. Raises UsageError for an unknown one."""
    if name not in _table():
        known = ", ".join(item.name for item in methods())
        raise UsageError(f"unknown drafting method `{name}`", hint=f"Use one of: {known}.")
    return _table()[name]


def configured(engine: str, config: Mapping[str, Any]) -> str:
    """Name of the method that an engine's own configuration selects; empty if the table does not have it."""
    supported = {item.name: item.engines[engine] for item in methods() if engine in item.engines}
    fixed = {key: config[key] for one in supported.values() for key in one.fixed if config.get(key)}
    wanted = ((name, one) for name, one in supported.items() if one.method and one.method == config.get("method"))
    return next((name for name, one in wanted if one.fixed == fixed), "")


def register(added: Method) -> None:
    """Add a method, or replace the one of that name."""
    _table()[added.name] = added


def unregister(name: str) -> None:
    """Remove a method added by `register`."""
    del _table()[name]


@cache
def _table() -> dict[str, Method]:
    table: dict[str, Method] = {}
    drafting = [(engine, file) for file in engine_files() if "methods" in file for engine in file["engines"]]
    for name, facts in read("methods.json")["methods"].items():
        rows = {engine: (row, file) for engine, file in drafting if (row := file["methods"].get(name))}
        engines = {engine: _engine_method(row, file) for engine, (row, file) in rows.items()}
        table[name] = Method(name=name, engines=engines, **facts)
        for engine, (row, _) in rows.items():
            table |= {item.name: item for item in _spellings(table[name], engine, row.get("spellings", {}))}
    return table


def _engine_method(row: Mapping[str, Any], file: Mapping[str, Any]) -> EngineMethod:
    fields = {name: value for name, value in row.items() if name not in ("spellings", "keys", "draft_slots")}
    names = ("not_with", "packages", "targets", "target_keys")
    lists: dict[str, Any] = {name: tuple(fields.pop(name, ())) for name in names}
    keys = {key: Key(**file["keys"][key]) for group in row["keys"] for key in file["key_groups"][group]}
    return EngineMethod(**fields, **lists, keys=keys, draft_slots_formula=row.get("draft_slots", "none"))


def _spellings(named: Method, engine: str, since: Mapping[str, str]) -> list[Method]:
    return [
        replace(
            named,
            name=spelling,
            spelling_of=named.name,
            engines={engine: replace(named.engines[engine], method=spelling, since=first)},
        )
        for spelling, first in since.items()
    ]
