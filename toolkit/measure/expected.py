"""The acceptance that a recipe's evidence lets expect of its endpoint, and whether a live one still has it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from toolkit.endpoint.metrics import Metrics
from toolkit.recipe.recipe import Recipe
from toolkit.text import inert


@dataclass(frozen=True)
class Watch:
    """Acceptance of an endpoint over the last `minutes`; `notes` say where it is over another time.

    `holds` is None if it is unknown, of too few requests, or nothing is expected.
    """

    endpoint: str
    minutes: int
    acceptance_length: float | None
    floor: float | None
    holds: bool | None
    detail: str
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """False only if acceptance is known to be too low."""
        return self.holds is not False

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit watch --json`."""
        return {"ok": self.ok, **asdict(self)}

    def __repr__(self) -> str:
        word = {True: "yes", False: "NO ", None: "?  "}[self.holds]
        return inert("\n".join([f"{word} acceptance of {self.endpoint}: {self.detail}", *self.notes]))


def watch(metrics: Metrics, recipe: Recipe | None) -> Watch:
    """Compare an endpoint's metrics with its recipe's evidence; without a recipe nothing is expected."""
    length, floor = _acceptance_length(metrics, recipe), acceptance_floor(recipe) if recipe else None
    few = 0 < metrics.invocations < _FEWEST_REQUESTS  # 0 is not known: then drafts were counted, and requests not
    detail = f"{length:.2f} tokens per target step" if length else "no draft tokens were counted"
    if length and floor:
        detail += f"; {floor:g} or more is expected, {MARGIN_PERCENT} % of the lowest in the recipe's evidence"
        if few:
            detail += f"; {metrics.invocations} requests tell little, {_FEWEST_REQUESTS} are needed"
    elif length:
        why = "its evidence has no acceptance length for this K" if recipe else "give its recipe instead of its name"
        detail += f"; what to expect is unknown: {why}"
    holds = length >= floor if length and floor and not few else None
    return Watch(metrics.endpoint, metrics.minutes, length, floor, holds, detail, metrics.notes)


def _acceptance_length(metrics: Metrics, recipe: Recipe | None) -> float | None:
    """The engine's own figure; else from the share of accepted draft tokens, if every draft has K of them."""
    engine, k = metrics.engine, draft_length(recipe) if recipe else None
    if engine.acceptance_length or k is None or engine.acceptance_rate is None:
        return engine.acceptance_length
    return 1 + k * engine.acceptance_rate


# Acceptance differs from answer to answer, and a few short ones are no traffic. Chosen, not derived.
_FEWEST_REQUESTS = 20

MARGIN_PERCENT = 80
"""Acceptance is bad below this percentage of the lowest published length, because traffic differs from benchmarks."""


def reports_drafts(recipe: Recipe) -> bool:
    """Whether the recipe's engine tells how many tokens it drafted and accepted."""
    metrics = recipe.engine_rules.metrics
    return metrics is not None and metrics.reports_drafts(recipe)


def draft_length(recipe: Recipe) -> int | None:
    """K, if every draft has K tokens and the engine's log counts them; else None."""
    if recipe.speculation is None or not recipe.speculation.facts.full_drafts:
        return None
    if recipe.speculation.schedule or recipe.speculation.adaptive or recipe.engine.args.get("disable-log-stats"):
        return None
    if not reports_drafts(recipe):
        return None
    on_types = [recipe.on(name).speculation for name in recipe.platform.types]
    lengths = {speculation.num_speculative_tokens for speculation in on_types if speculation}
    return lengths.pop() if len(lengths) == 1 else None


def acceptance_floor(recipe: Recipe) -> float | None:
    """The acceptance length below which something is wrong; None without evidence for this K."""
    k = draft_length(recipe)
    published = [
        item.acceptance_length
        for item in recipe.evidence
        if item.acceptance_length and item.num_speculative_tokens in (None, k)
    ]
    return round(MARGIN_PERCENT / 100 * min(published), 2) if k and published else None
