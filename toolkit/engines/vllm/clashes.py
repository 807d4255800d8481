"""Which settings does this version of vLLM refuse together?

Its validators' own conditions say so (catalog/engines/vllm/clashes.json), as far as they are about settings alone.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from toolkit.catalog.lookup import read
from toolkit.engines.vllm.facts import entry
from toolkit.engines.vllm.fields import as_number, flag_of, settings
from toolkit.engines.vllm.setting_checks import model_runner
from toolkit.engines.vllm.value_checks import unmade_classes
from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe

_FILE = "engines/vllm/clashes.json"
# Not a setting: which of them vLLM takes, where that is sure.
_RUNNER = "runner V2"
_Atom = Sequence[Any]
"""A setting, a comparison, and a constant or (`{"of": setting}`) another setting."""

_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "on": lambda value, _: bool(value),
    "off": lambda value, _: not value,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, several: value in several,
    "not in": lambda value, several: value not in several,
}


def check_clashes(recipe: Recipe) -> Iterator[Finding]:
    """Findings on settings that are refused together, as they are given or by default."""
    version, unmade = recipe.engine.version, unmade_classes(recipe)
    set_by = {
        name: (f"{flag}{key}", inner)
        for flag, value in recipe.flags.items()
        for name, key, inner in settings(flag, value, version)
        if name.partition(".")[0] not in unmade
    }
    values = {name: value for name, (_, value) in set_by.items()}
    if runner := model_runner(recipe):
        values[_RUNNER] = runner == "V2"
    for says in read(_FILE)["clashes"]:
        found = entry(_FILE, "clashes", says, version) or {"ways": (), "defaults": {}}
        all_values = {**found["defaults"], **values}
        for way in found["ways"]:
            named = dict.fromkeys(name for atom in way for name in _named(atom))
            written = [set_by[name][0] for name in named if name in set_by]
            ours = [key for key in written if key.partition(".")[0] in recipe.engine.args]
            if ours and all(_holds(atom, all_values) for atom in way):
                shown = [_shown(name, set_by, all_values, version) for name in named]
                message = f"vLLM {version} refuses {' with '.join(shown)}: {says}"
                yield Finding("engine.combination", message, f"engine.args.{ours[0]}", hint="Change one of them.")
                break


def _shown(name: str, set_by: Mapping[str, tuple[str, Any]], values: Mapping[str, Any], version: str) -> str:
    if name == _RUNNER:
        return f"the model runner {'V2' if values[name] else 'V1'}"
    key = set_by[name][0].removeprefix("no-") if name in set_by else flag_of(name, version)
    return f"`{key}: {json.dumps(values[name])}`"


def _named(atom: _Atom) -> Iterator[str]:
    yield atom[0]
    if isinstance(atom[2], Mapping):
        yield atom[2]["of"]


def _holds(atom: _Atom, values: Mapping[str, Any]) -> bool:
    """Whether it does; not where a value is not known, or is of another kind than what it is compared with."""
    name, comparison, other = atom
    if not all(one in values for one in _named(atom)):
        return False
    value, other = values[name], values[other["of"]] if isinstance(other, Mapping) else other
    if isinstance(value, str) and isinstance(other, int | float):
        value = as_number(value)
    try:
        return _HOLDS[comparison](value, other)
    except TypeError:
        return False
