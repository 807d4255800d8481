"""heads.json: public drafters, from their cards by hand, and from vLLM's recipes.

Revision, date, gate, layers and positions are the hub's; `own_layers` are models that draft with layers of their own.
"""

from __future__ import annotations

from typing import Any

from toolkit import documents as bounded
from toolkit.catalog import published
from tools.catalogue import recipes
from tools.catalogue.documents import Documents, as_text, kept

# What only a head's card, config.json or repository says.
_UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(("layers", "trained_depth", "recommended_max_context", "min_context", "gated")),
    **dict.fromkeys(("min_engine", "context", "license", "published", "revision", "last_modified"), ""),
    "card_flags": {},
    "card_env": {},
    "acceptance": [],
}


def generate(documents: Documents) -> str:
    """The text of the file."""
    facts, listed = kept("heads.json"), recipes.published(documents)
    known = {head["repo"].lower() for head in facts["heads"]}
    by_drafter: dict[str, recipes.Published] = {}
    for one in (*listed, *recipes.named(documents)):
        if one.drafter and one.drafter.lower() not in known:
            by_drafter.setdefault(one.drafter.lower(), one)
    new = map(_of_recipe, by_drafter.values())
    heads = [{**head, **_from_hub(documents, head["repo"])} for head in (*facts["heads"], *new)]
    heads.sort(key=lambda head: str(head["repo"]).lower())
    own = [
        {"target": one.target, "method": one.method, "tokens": one.tokens, "source": one.source}
        for one in listed
        if not one.drafter
    ]
    return as_text({"date": documents.date, "sources": facts["sources"], "heads": heads, "own_layers": own})


def _of_recipe(one: recipes.Published) -> dict[str, Any]:
    """A drafter that a recipe of vLLM names. Its card and its files were not read."""
    told = {
        "repo": one.drafter,
        "method": one.method,
        "target": one.target,
        "card_k": one.tokens,
        "note": "K is that of vLLM's recipe",
        "source": one.source,
    }
    return {**_UNKNOWN, **told}


def _from_hub(documents: Documents, repo: str) -> dict[str, Any]:
    """What the hub's API and the head's config.json say, where they were read."""
    answer = bounded.fit(published.Repository, documents.json(f"hub/{repo}.json"))
    config = documents.json(f"hub/{repo}.config.json")
    config |= config.get("transformer_layer_config") or {}  # speculators format
    named = {"layers": config.get("num_hidden_layers"), "positions": config.get("max_position_embeddings")}
    return published.hub_facts(answer) | {name: value for name, value in named.items() if isinstance(value, int)}
