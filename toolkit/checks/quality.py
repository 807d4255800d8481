"""Will speculation make this recipe faster?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import Evidence

_K = "speculation.num_speculative_tokens"
# The best K of one pair differs by this much between workloads (vLLM blog 2026-03-13): a smaller difference is fine.
_FAR = 3


def check_quality(recipe: Recipe) -> Iterator[Finding]:
    """Compare K with the K that had the best measured speedup at the recipe's concurrency."""
    if recipe.speculation is None or recipe.speculation.schedule:
        return
    wanted, requests = recipe.speculation.num_speculative_tokens, recipe.engine.max_num_seqs
    best = _fastest(recipe.evidence, requests)
    if best is None or best.num_speculative_tokens is None:
        return
    if abs(wanted - best.num_speculative_tokens) >= _FAR:
        message = (
            f"K={wanted}, but the best that was measured at concurrency {best.concurrency} "
            f"is K={best.num_speculative_tokens} ({best.source})"
        )
        hint = f"Set it to {best.num_speculative_tokens}"
        if recipe.drafting and recipe.drafting.takes("num_speculative_tokens_per_batch_size", recipe.engine.version):
            schedule = f"[[1, 8, {max(wanted, best.num_speculative_tokens)}], [9, {requests}, {_low(recipe)}]]"
            hint += f", or give a K per batch size: `num_speculative_tokens_per_batch_size: {schedule}`"
        hint += "."
        yield Finding("quality.best-k", message, _K, hint=hint, severity="warning")


def _fastest(evidence: Sequence[Evidence], requests: int) -> Evidence | None:
    measured = [
        item
        for item in evidence
        if item.speedup and item.num_speculative_tokens and item.concurrency and item.concurrency <= requests
    ]
    # Use the nearest concurrency: the best K falls as more requests share a step.
    return max(measured, key=lambda item: (item.concurrency or 0, item.speedup or 0), default=None)


def _low(recipe: Recipe) -> int:
    return min(item.num_speculative_tokens or 1 for item in recipe.evidence if item.num_speculative_tokens)
