"""vLLM's speculative configuration, and the draft slots of a request."""

from __future__ import annotations

from typing import Any

from toolkit.engines.arguments import drafter_path, fetched_by_container
from toolkit.recipe.parts import Speculation
from toolkit.recipe.resolve import Recipe


def draft_slots(recipe: Recipe) -> int:
    """Slots of the token budget that drafting needs for each request."""
    speculation = recipe.speculation
    return speculation.facts.draft_slots(speculation.num_speculative_tokens) if speculation else 0


def speculative_config(recipe: Recipe, speculation: Speculation) -> dict[str, Any]:
    """The value of `--speculative-config`."""
    drafting, drafter = recipe.drafting, speculation.drafter
    config: dict[str, Any] = {
        "method": drafting.method if drafting else speculation.method,
        "model": drafter_path(recipe),
        "num_speculative_tokens": speculation.num_speculative_tokens,
    }
    if drafter and fetched_by_container(recipe, drafter) and drafter.revision:
        config["revision"] = drafter.revision
    if speculation.tensor_parallel:
        config["draft_tensor_parallel_size"] = speculation.tensor_parallel
    if speculation.schedule:
        config["num_speculative_tokens_per_batch_size"] = [list(entry) for entry in speculation.schedule]
    config |= {**speculation.settings, **(drafting.fixed if drafting else {})}
    if speculation.synthetic_acceptance_length is not None:
        config["rejection_sample_method"] = "synthetic"
        config["synthetic_acceptance_length"] = speculation.synthetic_acceptance_length
    return {key: value for key, value in config.items() if value != ""}
