"""What a proposed recipe says of a head that can be trained for its target, where nobody has published one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit import registry
from toolkit.catalog import lookup, methods
from toolkit.checks.run import findings_on
from toolkit.loading import complete
from toolkit.proposal.model import Choice, Drafter, Proposal
from toolkit.recipe.facts import Lock
from toolkit.recipe.load import LoadedRecipe
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.trained import as_trained

DATA = "./chats.jsonl"
_ROW = '{"messages": [{"role": "user", "content": "…"}]}'


def own_head(drafter: Drafter, proposal: Proposal, folder: Path, name: str) -> Mapping[str, Any]:
    """The section `training` for the recipe of that name; empty where a head is there, or none can be trained."""
    method = methods.method(drafter.method)
    if method.kind == "target" or (method.kind == "head" and drafter.exact):
        return {}
    recipe = _complete(proposal.recipe, folder)
    if recipe.engine.name != lookup.default_engine() or registry.rules_of(recipe.platform.name).parts.training is None:
        return {}
    here = "" if recipe.platform_rules.facts.has_instance_types else f"-{recipe.platform.name}"
    section = {"data": [DATA], "head": f"./{name}-head{here}"}
    trained = as_trained(_complete({**proposal.recipe, "training": section}, folder))
    found = findings_on(trained, Lock(proposal.lock.target))
    return {} if any(item.severity == "error" and item.code != "training.data" for item in found) else section


def choices(section: Mapping[str, Any]) -> list[Choice]:
    """The reasons of a section `training`, which tell what to put where."""
    if not section:
        return []
    data = f"your conversations, one a line: {_ROW}; the model answers them anew, and the head learns its answers"
    head = "where `toolkit train` puts a P-EAGLE head; `speculation` then names it, and drafts without it until then"
    return [Choice("training.data", section["data"], data), Choice("training.head", section["head"], head)]


def _complete(data: Mapping[str, Any], folder: Path) -> Recipe:
    return complete(LoadedRecipe(registry.recipe_schema().model_validate(data), folder / "recipe.yaml", {}))
