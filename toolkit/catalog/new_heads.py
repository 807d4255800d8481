"""A drafter that the catalogue does not have, by its config.json, by the hub, and by a recipe that names it.

The recipes are vLLM's own (github vllm-project/recipes), read from an archive of them.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolkit import documents
from toolkit.catalog import lookup, methods, published
from toolkit.catalog.entries import Head
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


ARCHIVE = documents.Limits(size=64 * 1024**2)
_UNPACKED, _RECIPE = 256 * 1024**2, 1024**2
_FILE = re.compile(r"[^/]+/models/[^/]+/[^/]+\.yaml")
_CONFIG = re.compile(r'\{[^{}]*"num_speculative_tokens"[^{}]*\}')
_TARGET = re.compile(r"^ +model_id: *[\"']?([\w./-]+)", re.MULTILINE | re.ASCII)
REPOSITORY = re.compile(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}", re.ASCII)


@dataclass(frozen=True)
class Named:
    """A drafter as a recipe names it; what the recipe does not say is empty, or None."""

    repo: str
    method: str
    tokens: int | None
    target: str
    source: str


def drafters(archive: bytes) -> dict[str, Named]:
    """The drafters that a value of --speculative-config names. Raises documents.Unfit for what is no such archive."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as packed:
            unpacked = packed.read(_UNPACKED + 1)
        if len(unpacked) > _UNPACKED:
            raise documents.Unfit(f"more than {_UNPACKED} bytes when unpacked")
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as files:
            return {one.repo: one for path, text in _recipes(files) for one in _named(text, path)}
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise documents.Unfit(f"no archive of recipes: {error}") from error


def _recipes(files: tarfile.TarFile) -> Iterator[tuple[str, str]]:
    """Path in the repository, and text."""
    for member in files:
        content = files.extractfile(member) if _FILE.fullmatch(member.name) and member.isfile() else None
        if content and member.size <= _RECIPE:
            yield member.name.partition("/")[2], content.read().decode("utf-8", "replace")


def _named(text: str, path: str) -> Iterator[Named]:
    target = found[1] if (found := _TARGET.search(text)) else ""
    for written in _CONFIG.findall(text):
        try:
            config = documents.decode(written)
        except documents.Unfit:
            continue
        model, tokens = config.get("model"), published.draft_tokens(config.get("num_speculative_tokens"))
        if isinstance(model, str) and REPOSITORY.fullmatch(model):
            method = methods.configured(lookup.default_engine(), config) or str(config.get("method") or "")
            yield Named(model, method, tokens, target, f"recipes of {lookup.engine_title()}, {path}")
