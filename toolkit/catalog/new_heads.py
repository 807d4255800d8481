"""A drafter that the catalogue does not have, by its config.json, by the hub, and by a recipe that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.catalog import lookup, methods, published
from toolkit.catalog.entries import Head
from toolkit.catalog.recipe_drafters import REPOSITORY, Named
from toolkit.text import inert

_NOTE = "read by `toolkit catalog update`; nobody here has tried it"


def new_head(
    repo: str, source: str, config: Mapping[str, Any], about: published.Repository, recipe: Named | None
) -> Head | None:
    """The head; None where nothing says how it drafts, or for which model."""
    card = about.cardData or {}
    method = published.written_method(config) or (recipe.method if recipe else "")
    named = (published.written_target(config), _text(card.get("base_model")), recipe.target if recipe else "")
    target = next(filter(REPOSITORY.fullmatch, named), "")
    known = next((item for item in methods.methods() if item.name == method), None)
    if known is None or lookup.default_engine() not in known.engines or not target:
        return None
    layers = {**config, **published.inner(config, "transformer_layer_config")}  # speculators' format
    block = _number(config.get("block_size"))
    tokens = published.written_tokens(config)
    if not tokens and recipe and recipe.tokens:
        tokens, source = recipe.tokens, recipe.source
    facts = {"revision": "", "last_modified": "", "gated": None, **published.hub_facts(about)}
    return Head(
        repo=repo,
        drafter_class=next(filter(lookup.first_with_drafter, published.architectures(config)), ""),
        method=method,
        target=target,
        layers=_number(layers.get("num_hidden_layers")),
        trained_depth=(block - 1 or None) if block and method == "dflash" else None,  # of a block one token is given
        card_k=tokens,
        card_flags={},
        card_env={},
        min_engine=_first_version(config, known),
        acceptance=(),
        context="",
        recommended_max_context=None,
        min_context=None,
        license=_text(card.get("license")),
        published="",
        note=_NOTE,
        source=source,
        positions=_number(layers.get("max_position_embeddings")),
        **facts,
    )


def _first_version(config: Mapping[str, Any], method: methods.Method) -> str:
    """Of the engine, with that method and with the head's class, if it is one of the engine's own."""
    since = method.engines[lookup.default_engine()].since
    named = map(lookup.first_with_drafter, published.architectures(config))
    return max((since, *filter(None, named)), key=lookup.version_key)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str:
    """A text, or the first one of a list, as cards have both, that a terminal can show."""
    first = value[0] if isinstance(value, list) and value else value
    return inert(first) if isinstance(first, str) else ""
