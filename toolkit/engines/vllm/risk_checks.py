"""Does a recipe ask for settings that run code, load files, or let clients do more than generate?

They are errors until `engine.allow` names them: who reads the recipe then sees what it takes upon itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from toolkit.engines.vllm.facts import Risk, risky_flags, takes, variable_risk
from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.unsafe import CODE_VARIABLES

_CODE = "engine.risk"


def check_risks(recipe: Recipe) -> Iterator[Finding]:
    """Findings on flags and variables that are a risk, and on names in `engine.allow` that have no use."""
    risks = dict(_risks(recipe))
    for name, (path, risk) in risks.items():
        if name not in recipe.engine.allow:
            hint = f"Remove it; or, if you trust that, write `allow: [{name}]` in `engine`."
            yield Finding(_CODE, f"`{name}` {risk}", path, hint=hint)
    of_types = {flag.replace("_", "-") for item in recipe.platform.overrides.values() for flag in item.args}
    for index, name in enumerate(recipe.engine.allow):
        if name not in risks and name not in of_types:
            message = f"`{name}` is allowed, and nothing in the recipe needs it"
            yield Finding(_CODE, message, f"engine.allow.{index}", hint="Remove it.", severity="warning")


def _risks(recipe: Recipe) -> Iterator[tuple[str, tuple[str, str]]]:
    """Path and risk, by the name that allows it."""
    for flag, value in recipe.engine.args.items():
        for name in _spelled_out(flag):
            if _is_meant(risky_flags()[name], value):
                yield name, (f"engine.args.{flag}", risky_flags()[name].risk)
    for variable in recipe.engine.env:
        risk = "decides what code the engine's process runs" if variable in CODE_VARIABLES else variable_risk(variable)
        if risk:
            yield variable, (f"engine.env.{variable}", risk)


def risk_of(flag: str, value: Any) -> str:
    """What a flag with that value does that a model does not need; empty if nothing."""
    found = (risky_flags()[name] for name in _spelled_out(flag))
    return next((item.risk for item in found if _is_meant(item, value)), "")


def _spelled_out(flag: str) -> list[str]:
    """The flag itself, or all that it may be short for: the engine's parser takes a beginning for the whole."""
    if takes(flag):
        return [flag] if flag in risky_flags() else []
    return [name for name in risky_flags() if name.startswith(flag)]


def _is_meant(risk: Risk, value: Any) -> bool:
    if value is False:
        return False
    return re.search(risk.only, _plain(value)) is not None


def _plain(value: Any) -> str:
    """The value as text; JSON always in the same spelling, in which no letter is escaped."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
