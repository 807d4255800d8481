"""engines/vllm/values.json: how many values and which each version's parser gives a flag, asked of the vLLM found here.

That is the installed one, or another's Python code where `PYTHONPATH` has it first (`toolkit check --deep` fetches it).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from toolkit.catalog.lookup import FOLDER
from tools.catalogue.documents import Documents
from tools.catalogue.fields import Spec, as_listing, read_fields, with_versions
from tools.catalogue.listings import installed_parser

FILE = FOLDER / "engines" / "vllm" / "values.json"
KIND = "flags"


def generate(documents: Documents) -> str:
    """The text of the file, with the installed version added to those that it has."""
    import vllm

    shipped = json.loads(FILE.read_text(encoding="utf-8"))
    read = {vllm.__version__.partition("+")[0]: installed()}
    return as_listing(with_versions({**shipped, "date": documents.date}, read, KIND), KIND)


def installed() -> dict[str, Spec]:
    """What the installed vLLM's parser makes of each flag."""
    import vllm

    return undeclared(values(installed_parser()._actions), read_fields(Path(vllm.__file__).parent))


def values(actions: Iterable[argparse.Action]) -> dict[str, Spec]:
    """By flag: an empty one takes any one value; `takes` says of another that it is a switch, or takes several.

    `alias_of` is the flag that it is another name of, `short` its names with one dash, `choices` the texts that it may
    have, with `any_case` in capitals and with dashes, too. `parsed` is what the parser itself makes of the text, with
    `or_none` where that may be `None`.
    """
    found: dict[str, Spec] = {}
    for action in actions:
        names = list(_names(action))
        if names and not isinstance(action, argparse._HelpAction):
            taken = {"takes": kind} if (kind := _kind(action)) else {}
            is_pair = isinstance(action, argparse.BooleanOptionalAction)
            found |= {name: taken if is_pair else {**taken, "alias_of": names[0]} for name in names[1:]}
            found[names[0]] = {**taken, **_short(action), **_texts(action)}
    return found


def undeclared(specs: Mapping[str, Spec], declared: Mapping[str, Any]) -> dict[str, Spec]:
    """Without the choices and numbers that configuration classes declare (fields.json)."""
    found = {}
    for flag, spec in specs.items():
        field = declared.get(str(declared.get(flag))) or {}
        known = {"choices", "any_case"} if "choices" in field else set()
        if spec.get("parsed") in field.get("types", ()):
            known = {"parsed", "or_none"}
        found[flag] = {key: value for key, value in spec.items() if key not in known}
    return found


def _short(action: argparse.Action) -> Spec:
    short = [name[1:] for name in action.option_strings if not name.startswith("--")]
    return {"short": short} if short else {}


def _texts(action: argparse.Action) -> Spec:
    if action.choices:
        choices = [choice for choice in action.choices if isinstance(choice, str)]
        only_texts = choices and all(choice is None or isinstance(choice, str) for choice in action.choices)
        if "cpu" in choices:  # which other devices there are depends on the platform that asks
            return {}
        return {"choices": choices, **({"any_case": True} if _any_case(action) else {})} if only_texts else {}
    parsed = _parsed(action)
    return {"parsed": parsed, **({"or_none": True} if _takes(action, "None") else {})} if parsed else {}


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
    return all(_takes(action, choice.swapcase().replace("_", "-")) for choice in action.choices or () if choice)


def _takes(action: argparse.Action, text: str) -> bool:
    try:
        value = action.type(text) if callable(action.type) else text
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        return False
    return not action.choices or value in action.choices
