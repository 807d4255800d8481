"""How long an endpoint takes to its first answer, by stage: what is expected, and what its last start took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from toolkit.display import minutes
from toolkit.recipe.lock import download_seconds, load_seconds
from toolkit.recipe.recipe import Recipe

PROVISIONING = "waiting for an instance, weights and image"
"""The stage before the container's first line. Not every platform says which of the three it is."""

LOADING = "loading the target"
COMPILING = "compiling and capturing graphs"

# From published logs: instance and image take three to six minutes, compiling and graphs one to three.
_INSTANCE_SECONDS, _COMPILE_SECONDS = 270.0, 120.0
_SHORTEST_SHOWN = 5.0


@dataclass(frozen=True)
class MeasuredStart:
    """What started, as `what_starts` has it, on which day, and how many seconds each stage took."""

    of: str
    seconds: Mapping[str, float]
    day: str = ""


def what_starts(recipe: Recipe) -> str:
    """What decides how long a start takes: another one's figures say nothing of it."""
    engine, where = recipe.engine, recipe.platform
    types = ", ".join(where.types) if recipe.platform_rules.facts.has_instance_types else ""
    return f"{engine.name} {engine.version}, {recipe.target}, {recipe.method}, {where.name} {types}".rstrip()


def expected_seconds(recipe: Recipe) -> dict[str, float]:
    """By stage; nothing on this machine, or where the size of the weights is not known."""
    size = recipe.weight_bytes if recipe.platform_rules.facts.has_instance_types else None
    if not size:
        return {}
    stages = {PROVISIONING: _INSTANCE_SECONDS + download_seconds(size), LOADING: load_seconds(recipe, size)}
    whole = recipe.engine_rules.compilation
    if whole is None:
        return {**stages, COMPILING: _COMPILE_SECONDS}
    return stages if recipe.engine.compile_ahead else {**stages, COMPILING: whole.seconds(recipe)}


def start_notes(recipe: Recipe, last: MeasuredStart | None) -> Iterator[str]:
    """For a plan that starts containers; `last` is the last start of the same that was waited for."""
    seconds = last.seconds if last else expected_seconds(recipe)
    if not seconds:
        return
    source = f"as at its last start, {last.day}" if last else "an estimate"
    parts = ", ".join(f"{stage} {minutes(took)}" for stage, took in seconds.items() if took >= _SHORTEST_SHOWN)
    waits = recipe.scaling.max_instances > recipe.scaling.min_instances
    burst = ". A burst that needs another instance waits as long" if waits else ""
    total = minutes(sum(seconds.values()))
    yield f"Its containers answer after about {total} ({source}){f': {parts}' if parts else ''}{burst}"
