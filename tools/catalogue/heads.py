"""heads.json: public drafters, from their cards by hand; revision, date, gate, layers and positions from the hub."""

from __future__ import annotations

from typing import Any

from toolkit import documents as bounded
from toolkit.catalog import published
from tools.catalogue.documents import Documents, as_text, kept


def generate(documents: Documents) -> str:
    """The text of the file."""
    facts = kept("heads.json")
    heads = [{**head, **_from_hub(documents, head["repo"])} for head in facts["heads"]]
    heads.sort(key=lambda head: str(head["repo"]).lower())
    return as_text({"date": documents.date, "sources": facts["sources"], "heads": heads})


def _from_hub(documents: Documents, repo: str) -> dict[str, Any]:
    """What the hub's API and the head's config.json say, where they were read."""
    answer = bounded.fit(published.Repository, documents.json(f"hub/{repo}.json"))
    config = documents.json(f"hub/{repo}.config.json")
    config |= config.get("transformer_layer_config") or {}  # speculators format
    named = {"layers": config.get("num_hidden_layers"), "positions": config.get("max_position_embeddings")}
    return published.hub_facts(answer) | {name: value for name, value in named.items() if isinstance(value, int)}
