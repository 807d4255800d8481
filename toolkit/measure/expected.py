"""The acceptance that a recipe's evidence lets expect of its endpoint."""

from __future__ import annotations

from toolkit.recipe.resolve import Recipe

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
    on_types = [recipe.on(name).speculation for name in recipe.platform.instance_types]
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
