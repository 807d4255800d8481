"""Instance types with their own settings: run all other checks with these settings too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from toolkit.checks.container import check_container
from toolkit.checks.pair import check_pair
from toolkit.checks.quality import check_quality
from toolkit.checks.target import check_target
from toolkit.findings import Finding
from toolkit.recipe.lock import Lock
from toolkit.recipe.recipe import Recipe

_K = "num_speculative_tokens"


def check_overrides(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    """Findings caused by an instance type's own flags or K. Memory is checked elsewhere, for every type."""
    if not recipe.platform.overrides:
        return
    everywhere = set(_findings(recipe, models))
    for index, name in enumerate(recipe.platform.types):
        if name in recipe.platform.overrides:
            for finding in _findings(recipe.on(name), models):
                if finding not in everywhere:
                    path = _path(finding.path, recipe, name, f"platform.instance_types.{index}")
                    yield replace(finding, message=f"on {name}: {finding.message}", path=path)


def _findings(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    yield from check_container(recipe)
    yield from recipe.engine_rules.check(recipe, models)
    if models:
        yield from check_target(recipe, models.target)
        yield from check_pair(recipe, models)
        yield from check_quality(recipe)


def _path(path: str, recipe: Recipe, name: str, here: str) -> str:
    """The key in the instance type's own settings that causes the finding, or else the type itself."""
    own = recipe.platform.overrides[name]
    for flag in (flag.replace("_", "-") for flag in own.args):
        if path == f"engine.args.{flag}":
            return f"{here}.args.{flag}"
    return f"{here}.{_K}" if path == f"speculation.{_K}" and own.num_speculative_tokens else here
