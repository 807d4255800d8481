"""vLLM's speculative configuration, and what drafting takes of a step."""

from __future__ import annotations

from typing import Any

from toolkit.engines.arguments import drafter_path, pulled
from toolkit.engines.vllm.facts import facts
from toolkit.recipe.resolve import Recipe, Speculation


def draft_slots(recipe: Recipe) -> int:
    """Slots of the token budget that drafting takes for each request (vLLM 0.32, config/speculative.py)."""
    speculation = recipe.speculation
    if speculation is None or speculation.method == "eagle3":
        return 0
    k = speculation.num_speculative_tokens
    return {"p-eagle": k - 1, "pard": k, "dflash": k, "draft-model": 1}[speculation.method]


def speculative_config(recipe: Recipe, speculation: Speculation) -> dict[str, Any]:
    """The value of `--speculative-config`."""
    method = facts().methods[speculation.method]
    drafter = speculation.drafter
    config: dict[str, Any] = {
        "method": method.engine_method,
        "model": drafter_path(recipe),
        "num_speculative_tokens": speculation.num_speculative_tokens,
    }
    if pulled(recipe, drafter) and drafter.revision:
        config["revision"] = drafter.revision
    if speculation.tensor_parallel:
        config["draft_tensor_parallel_size"] = speculation.tensor_parallel
    if speculation.schedule:
        config["num_speculative_tokens_per_batch_size"] = [list(entry) for entry in speculation.schedule]
    return {**config, "parallel_drafting": True} if method.parallel_drafting else config
