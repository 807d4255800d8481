"""vLLM's speculative configuration, and the draft slots of a request."""

from __future__ import annotations

from typing import Any

from toolkit.engines.arguments import drafter_path, fetched_by_container
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import SpeculationSection


def draft_slots(recipe: Recipe) -> int:
    """Slots of the token budget that drafting needs for each request."""
    speculation = recipe.speculation
    return speculation.facts.draft_slots(speculation.num_speculative_tokens) if speculation else 0


def speculative_config(recipe: Recipe, speculation: SpeculationSection) -> dict[str, Any]:
    """The value of `--speculative-config`."""
    drafting, drafter = recipe.drafting, speculation.drafter
    config: dict[str, Any] = {
        "method": drafting.method if drafting else speculation.method,
        "model": drafter_path(recipe),
        "num_speculative_tokens": speculation.num_speculative_tokens,
    }
    if drafter and fetched_by_container(recipe, drafter) and drafter.revision:
        config["revision"] = drafter.revision
    config |= {**speculation.settings, **(drafting.fixed if drafting else {})}
    if recipe.synthetic_acceptance_length is not None:
        config["rejection_sample_method"] = "synthetic"
        config["synthetic_acceptance_length"] = recipe.synthetic_acceptance_length
    return {key: value for key, value in config.items() if value != ""}
