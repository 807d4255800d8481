"""`python -m tools.vllm_values` writes catalog/engines/vllm/values.json: how many values vLLM's parser gives each flag.

It asks the parser of the vLLM that is installed, which takes some seconds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import toolkit.catalog

FILE = Path(toolkit.catalog.__file__).parent / "engines" / "vllm" / "values.json"


def values(actions: Iterable[argparse.Action]) -> dict[str, Any]:
    """Flags by what they take; those that are in no list take one value. `aliases` are other names of a flag."""
    found: dict[str, Any] = {"on_off": [], "several": [], "optional": [], "json_list": [], "aliases": {}}
    for action in actions:
        names = list(_names(action))
        if not names or isinstance(action, argparse._HelpAction):
            continue
        if kind := _kind(action):
            found[kind] += names
        if not isinstance(action, argparse.BooleanOptionalAction):
            found["aliases"] |= dict.fromkeys(names[1:], names[0])
    return {kind: names if kind == "aliases" else sorted(names) for kind, names in found.items()}


def installed() -> dict[str, Any]:
    """The catalogue's document but for its date, as the installed vLLM has it."""
    import vllm
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())  # type: ignore[no-untyped-call]
    return {
        "source": "python -m tools.vllm_values, of vLLM's own parser (vllm/entrypoints/launchers/cli_args.py)",
        "note": "a flag that is in no list takes one value; other versions are taken to be alike",
        "version": vllm.__version__.partition("+")[0],
        **values(parser._actions),
    }


def _names(action: argparse.Action) -> Iterator[str]:
    """Without dashes; names of one letter are no flags of a recipe."""
    return (name.removeprefix("--") for name in action.option_strings if name.startswith("--"))


def _kind(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "on_off"
    if action.nargs in ("+", "*"):
        return "several"
    if action.nargs == "?":
        return "optional"
    return "json_list" if isinstance(action.default, list) and action.type is json.loads else ""


if __name__ == "__main__":
    FILE.write_text(json.dumps({"date": date.today().isoformat(), **installed()}, indent=2) + "\n", encoding="utf-8")
