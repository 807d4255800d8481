"""Will speculation pay, as this recipe asks for it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.catalog import lookup
from toolkit.findings import Finding
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.schema import Evidence

_K = "speculation.num_speculative_tokens"
_GENERATION = "engine.args.override-generation-config"
# Measured best K of one pair differ by this much between workloads (vLLM blog 2026-03-13), so less is no finding.
_FAR = 3


def check_quality(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Findings on sampling, and on K against what was measured."""
    if recipe.speculation is None:
        return
    if not recipe.on_neuron:
        yield from _sampling(recipe, target)
    yield from _best_k(recipe)


def _sampling(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    overriding = recipe.engine.args.get("override-generation-config")
    defaults = {**target.generation_config, **(overriding if isinstance(overriding, dict) else {})}
    path = _GENERATION if isinstance(overriding, dict) else "target.model"
    refused = [name for name in lookup.engine(recipe.engine.name).rejected_sampling_params if defaults.get(name)]
    if refused:
        message = f"`{refused[0]}` is a default of every request, and requests with it are refused under speculation"
        hint = f"Set `{refused[0]}` to 0 in engine.args `override-generation-config`."
        yield Finding("quality.refused-sampling", message, path, hint=hint)
    temperature = defaults.get("temperature")
    if path == _GENERATION and isinstance(temperature, int | float) and temperature > 1:
        message = f"at temperature {temperature} the target's choice is hard to draft: acceptance falls"
        yield Finding("quality.temperature", message, path, hint="Use 1.0 or less.", severity="warning")


def _best_k(recipe: Recipe) -> Iterator[Finding]:
    """K against the K with the best measured speedup at the concurrency that the recipe allows."""
    assert recipe.speculation
    wanted, requests = recipe.speculation.num_speculative_tokens, recipe.engine.max_num_seqs
    if recipe.speculation.schedule:
        return
    best = _fastest(recipe.evidence, requests)
    if best is None or best.num_speculative_tokens is None:
        return
    if abs(wanted - best.num_speculative_tokens) >= _FAR:
        message = (
            f"K={wanted}, but the best that was measured at concurrency {best.concurrency} "
            f"is K={best.num_speculative_tokens} ({best.source})"
        )
        hint = f"Set it to {best.num_speculative_tokens}"
        if _has_schedule(recipe):
            schedule = f"[[1, 8, {max(wanted, best.num_speculative_tokens)}], [9, {requests}, {_low(recipe)}]]"
            hint += f", or give a K per batch size: `num_speculative_tokens_per_batch_size: {schedule}`"
        hint += "."
        yield Finding("quality.best-k", message, _K, hint=hint, severity="warning")


def _has_schedule(recipe: Recipe) -> bool:
    """Whether the engine takes a K per batch size with this method."""
    drafting = recipe.speculation.facts.engines.get(recipe.engine.name) if recipe.speculation else None
    known = drafting.keys.get("num_speculative_tokens_per_batch_size") if drafting else None
    return known is not None and not lookup.older(recipe.engine.version, known.since)


def _fastest(evidence: Sequence[Evidence], requests: int) -> Evidence | None:
    measured = [
        item
        for item in evidence
        if item.speedup and item.num_speculative_tokens and item.concurrency and item.concurrency <= requests
    ]
    # The nearest concurrency decides: best K falls as more requests share a step.
    return max(measured, key=lambda item: (item.concurrency or 0, item.speedup or 0), default=None)


def _low(recipe: Recipe) -> int:
    return min(item.num_speculative_tokens or 1 for item in recipe.evidence if item.num_speculative_tokens)
