"""engines/vllm/values.json: how many values and which vLLM's parser gives each flag, asked of the installed vLLM."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.catalogue.documents import Documents, as_text
from tools.catalogue.fields import read_fields
from tools.catalogue.listings import installed_parser


def generate(documents: Documents) -> str:
    """The text of the file."""
    return as_text({"date": documents.date, **installed()})


def values(actions: Iterable[argparse.Action]) -> dict[str, Any]:
    """Flags by what they take; those that are in no list take one value.

    `aliases` are other names of a flag, `short` those with one dash, `choices` the texts that it may have, which for
    those of `any_case` may be in capitals and with dashes. `parsed` is what the parser itself makes of the text,
    which for those of `or_none` may be `None`.
    """
    found: dict[str, Any] = {"on_off": [], "several": [], "optional": [], "json_list": []}
    found |= {"any_case": [], "or_none": []}
    found |= {"aliases": {}, "short": {}, "choices": {}, "parsed": {}}
    for action in actions:
        names = list(_names(action))
        if not names or isinstance(action, argparse._HelpAction):
            continue
        if kind := _kind(action):
            found[kind] += names
        found["short"] |= {name[1:]: names[0] for name in action.option_strings if not name.startswith("--")}
        if not isinstance(action, argparse.BooleanOptionalAction):
            found["aliases"] |= dict.fromkeys(names[1:], names[0])
        if action.choices and all(isinstance(choice, str) for choice in action.choices):
            found["choices"][names[0]] = list(action.choices)
            found["any_case"] += [names[0]] if _any_case(action) else []
        elif not action.choices and (parsed := _parsed(action)):
            found["parsed"][names[0]] = parsed
            found["or_none"] += [names[0]] if _takes(action, "None") else []
    return {kind: sorted(names) if isinstance(names, list) else names for kind, names in found.items()}


def installed() -> dict[str, Any]:
    """The catalogue's document but for its date, as the installed vLLM has it."""
    import vllm

    read = values(installed_parser()._actions)
    declared = read_fields(Path(vllm.__file__).parent)
    choices = {flag: texts for flag, texts in read["choices"].items() if flag not in declared}
    parsed = {
        flag: kind
        for flag, kind in read["parsed"].items()
        if kind == "object" or not declared.get(str(declared.get(flag)))
    }
    return {
        "source": "python -m tools.catalogue engines/vllm/values.json, of vLLM's own parser "
        "(vllm/entrypoints/launchers/cli_args.py)",
        "note": "a flag that is in no list takes one value; other versions are taken to be alike; "
        "choices of flags that fields.json has are there",
        "version": vllm.__version__.partition("+")[0],
        **read,
        "any_case": [flag for flag in read["any_case"] if flag in choices],
        "or_none": [flag for flag in read["or_none"] if flag in parsed],
        "choices": choices,
        "parsed": parsed,
    }


def _names(action: argparse.Action) -> Iterator[str]:
    """Without dashes; those with one dash are no flags of a recipe."""
    return (name.removeprefix("--") for name in action.option_strings if name.startswith("--"))


def _kind(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "on_off"
    if action.nargs in ("+", "*"):
        return "several"
    if action.nargs == "?":
        return "optional"
    return "json_list" if isinstance(action.default, list) and action.type is json.loads else ""


# What is made of a whole number, a fraction, a word and an empty object in JSON.
_SAMPLES = ("3", "1.5", "nonsense", "{}")
_PARSED = {"3": "int", "3 1.5": "float", "3 1.5 {}": "json", "{}": "object"}


def _parsed(action: argparse.Action) -> str:
    """The kind of values that the parser takes, by trying; empty where that is any text, or none of the kinds."""
    return _PARSED.get(" ".join(sample for sample in _SAMPLES if _takes(action, sample)), "")


def _any_case(action: argparse.Action) -> bool:
    return all(_takes(action, choice.swapcase().replace("_", "-")) for choice in action.choices or ())


def _takes(action: argparse.Action, text: str) -> bool:
    try:
        value = action.type(text) if callable(action.type) else text
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        return False
    return not action.choices or value in action.choices
