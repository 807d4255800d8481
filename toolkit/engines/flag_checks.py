"""Does the recipe set engine flags that the toolkit sets itself?"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe


def check_flags(recipe: Recipe, unknown: Callable[[str], Iterator[Finding]]) -> Iterator[Finding]:
    """Findings on flags that the toolkit sets; `unknown` gives the findings on all other flags."""
    prefix, own = recipe.engine_rules.variable_prefix, recipe.engine_rules.own_flags
    for variable in recipe.engine.env:
        if variable.startswith(prefix):
            flag = variable.removeprefix(prefix).lower().replace("_", "-")
            message, hint = f"`{variable}` sets the engine's flag `{flag}`", f"Write `{flag}` in engine.args."
            yield Finding("engine.own-flag", message, f"engine.env.{variable}", hint=hint)
    for flag in recipe.engine.args:
        path = f"engine.args.{flag}"
        if flag in own:
            hint = f"Remove it, and set {own[flag]}."
            yield Finding("engine.own-flag", f"`{flag}` is set by the toolkit", path, hint=hint)
        elif whole := next((name for name in own if name.startswith(flag)), None):
            message = f"the engine reads `{flag}` as the beginning of `{whole}`, which the toolkit sets"
            yield Finding("engine.own-flag", message, path, hint=f"Remove it, and set {own[whole]}.")
        elif near := difflib.get_close_matches(flag, own, n=1, cutoff=0.9):
            message = f"`{flag}` looks like `{near[0]}`, which the toolkit sets"
            hint = f"If you meant that flag, remove it and set {own[near[0]]}."
            yield Finding("engine.own-flag", message, path, hint=hint, severity="warning")
        else:
            yield from unknown(flag)
