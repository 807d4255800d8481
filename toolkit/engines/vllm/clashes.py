"""Which settings does this version of vLLM refuse together?

Its validators' own conditions say so (catalog/engines/vllm/clashes.json), as far as they are about settings alone.
"""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from toolkit.catalog.lookup import older, read
from toolkit.engines.vllm.facts import entry
from toolkit.engines.vllm.fields import SWITCHES, as_number, flag_of, settings
from toolkit.engines.vllm.setting_checks import model_runner
from toolkit.engines.vllm.value_checks import has_own_image, unmade_classes
from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe

_FILE = "engines/vllm/clashes.json"
# Not settings: which runner vLLM takes, where that is sure; and whether it is its build for NVIDIA's GPUs, or for CPUs.
_RUNNER, _PLATFORM = "runner V2", "CUDA or CPU"
_UNKNOWN = object()
_Atom = Sequence[Any]
"""A setting, a comparison, and a constant or (`{"of": setting}`) another setting."""

_OF_NUMBERS = ("<", "<=", ">", ">=", "multiple of", "no multiple of")
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
    "multiple of": lambda value, other: other and value % other == 0,
    "no multiple of": lambda value, other: other and value % other != 0,
}


def check_clashes(recipe: Recipe) -> Iterator[Finding]:
    """Findings on settings that are refused together, as they are given or by default."""
    found = [*_found(recipe)]
    # What a runner does not have at all, it does not have with other settings either.
    lacking = {finding.path for finding, of_runner in found if of_runner}
    yield from (finding for finding, of_runner in found if of_runner or finding.path not in lacking)


def _found(recipe: Recipe) -> Iterator[tuple[Finding, bool]]:
    """The findings, each with whether it is about the model runner."""
    version = _known(recipe.engine.version)
    set_by, values = _given(recipe, version)
    for says in read(_FILE)["clashes"]:
        found = entry(_FILE, "clashes", says, version) or {"ways": (), "defaults": {}}
        all_values = {**found["defaults"], **values}
        for way in found["ways"]:
            named = [name for name in dict.fromkeys(name for atom in way for name in _named(atom)) if name != _PLATFORM]
            written = [name for name in named if name in set_by]
            ours = [name for name in written if set_by[name][0].partition(".")[0] in recipe.engine.args]
            if ours and all(_holds(atom, all_values) for atom in way):
                others = [name for name in named if name not in set_by]
                first, *more = (_shown(name, set_by, all_values, version) for name in (*written, *others))
                shown = f"{first} with {' and '.join(more)}" if more else first
                of = version if version == recipe.engine.version else f"{version} (the last known before yours)"
                message = f"vLLM {of} refuses {shown}: {says.removeprefix('Error: ')}"
                # In the order of conditions, what needs something of the others stands behind them.
                changed = [name for name in ours if all_values[name] != found["defaults"].get(name, _UNKNOWN)]
                key = set_by[(changed or ours)[-1]][0]
                unset = (name for name in others if name != _RUNNER)
                absent = next((name for name in unset if all_values[name] is None or all_values[name] is False), "")
                hint = f"Change {' or '.join(f'`{set_by[name][0]}`' for name in ours)}." if ours[1:] else "Remove it."
                if absent:
                    hint = f"Add `{flag_of(absent, version)}`, or remove `{key}`."
                yield Finding("engine.combination", message, f"engine.args.{key}", hint=hint), _RUNNER in named
                break


def _known(version: str) -> str:
    """The version, or the last before it whose conditions were read; itself where there is none."""
    return next((one for one in reversed(read(_FILE)["versions"]) if not older(version, one)), version)


def _given(recipe: Recipe, version: str) -> tuple[Mapping[str, tuple[str, Any]], Mapping[str, Any]]:
    """The recipe's settings, each with the key that sets it; and their values, with what else conditions are about."""
    unmade = unmade_classes(recipe)
    given = [
        (name, f"{flag}{key}", inner)
        for flag, value in recipe.flags.items()
        if value != []  # which is no argument
        for name, key, inner in settings(flag, value, version)
        if name.partition(".")[0] not in unmade
    ]
    times = Counter(name for name, _, _ in given)
    set_by = {name: (key, value) for name, key, value in given}
    # Of one that is set twice, the order of variables decides.
    values = {name: value if times[name] == 1 else _UNKNOWN for name, (_, value) in set_by.items()}
    if runner := model_runner(recipe):
        values[_RUNNER] = runner == "V2"
    values[_PLATFORM] = _UNKNOWN if has_own_image(recipe) else True
    return set_by, values


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
    if any(values.get(one, _UNKNOWN) is _UNKNOWN for one in _named(atom)):
        return False
    value, other = values[name], values[other["of"]] if isinstance(other, Mapping) else other
    if comparison in ("on", "off"):
        value = SWITCHES.get(value.lower(), value) if isinstance(value, str) else value
    elif comparison in _OF_NUMBERS or isinstance(other, int | float):
        value, other = (as_number(one) if isinstance(one, str) else one for one in (value, other))
    try:
        return _HOLDS[comparison](value, other)
    except TypeError:
        return False
