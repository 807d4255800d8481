"""Drafters that the hub lists for a model: heads by their base model, smaller models by family and tokenizer.

Everything raises HubError if the hub does not answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import httpx
from pydantic import BaseModel, ConfigDict, Field

from toolkit import documents
from toolkit.catalog import lookup, methods
from toolkit.catalog.published import written_method, written_tokens
from toolkit.errors import HubError, UnreadableModel
from toolkit.proposal.model import Drafter, with_default_k
from toolkit.recipe import model_config
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.hub import HubFiles
from toolkit.recipe.model_files import read_model

# What names and tags of heads have in common; quantized copies, adapters and merges of the model have none of it.
_HEAD = re.compile(r"eagle|p-?eagle|dflash|dspark|speculator|speculative|pard\b|mtp|assistant", re.IGNORECASE)
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)[bB](?![a-zA-Z])")
_COPIES = re.compile(r"gguf|awq|gptq|int[48]|fp8|nvfp4|mlx|bnb", re.IGNORECASE)
# Of more than these, nobody has the patience to wait for the reading.
_LISTED, _READ = 100, 4
_LARGEST_SHARE, _USUAL_SHARE = 1 / 8, 1 / 25


class _Listed(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$", max_length=200)]
    tags: list[str] = []


def heads(client: httpx.Client, target: str) -> list[Drafter]:
    """Heads whose cards name the target as their base model, most downloaded first; not those of the catalogue."""
    listed = _list(client, filter=f"base_model:{target}")
    likely = [item.id for item in listed if _HEAD.search(" ".join([item.id, *item.tags]))]
    new = [repo for repo in likely if lookup.head(repo) is None]
    return [drafter for repo in new[:_READ] if (drafter := _head(client, repo))]


def smaller_models(client: httpx.Client, target: ModelFacts) -> list[Drafter]:
    """Models of the same maker and family, much smaller and with the same tokenizer."""
    maker, _, name = target.model.partition("/")
    size = _SIZE.search(name)
    if not size or target.tokenizer is None:
        return []
    listed = [item.id for item in _list(client, author=maker, search=name[: size.start()].strip("-_. "))]
    near = sorted(_near(listed, float(size[1])))
    return list(_draft_models(client, target, [repo for _, repo in near[:_READ]]))


def similar_names(client: httpx.Client, name: str) -> list[str]:
    """Models with a name like that one."""
    return [item.id for item in _list(client, search=name.rpartition("/")[2])][:3]


def _list(client: httpx.Client, **asked: str) -> list[_Listed]:
    params = {**asked, "sort": "downloads", "limit": str(_LISTED)}
    try:
        answer = documents.request(client, "GET", "api/models", params=params)
        answer.raise_for_status()
        return documents.fit(list[_Listed], documents.decode(answer.content))
    except (httpx.HTTPError, httpx.InvalidURL, documents.Unfit) as error:
        hint = "Check your network connection."
        raise HubError(f"the hub's list of models cannot be read: {error}", hint=hint) from error


def _head(client: httpx.Client, repo: str) -> Drafter | None:
    """The head, if its config.json says how it drafts and the engine has that method."""
    files = HubFiles(repo, None, client)
    try:
        config = documents.decode(files.read("config.json"))
    except (HubError, documents.Unfit):  # gated, or only its card is there
        return None
    if not isinstance(config, dict) or model_config.problem(config):
        return None
    method = next((item for item in methods.methods() if item.name == written_method(config)), None)
    facts = ModelFacts(repo, files.source, config, None, None, revision=files.revision, partial=True)
    sized = all(facts.text_config.get(key) for key in ("hidden_size", "vocab_size"))
    if method is None or lookup.default_engine() not in method.engines or not sized:
        return None
    tokens = written_tokens(config)
    about = "its card on the hub says that it is for this model; nobody here has tried it"
    why = "its config.json's" if tokens else f"the default of {method.name}: its config.json has none"
    return Drafter(method.name, tokens or method.default_num_speculative_tokens, about, why, repo, facts)


def _near(names: list[str], size: float) -> Iterator[tuple[float, str]]:
    for name in names:
        found = _SIZE.search(name.partition("/")[2])
        if found and not _COPIES.search(name) and 0 < float(found[1]) <= size * _LARGEST_SHARE:
            yield abs(float(found[1]) - size * _USUAL_SHARE), name


def _draft_models(client: httpx.Client, target: ModelFacts, names: list[str]) -> Iterator[Drafter]:
    method = next(item for item in methods.methods() if item.kind == "model" and not item.mask_token)
    for name in names:
        try:
            facts = read_model(HubFiles(name, None, client), name)
        except UnreadableModel:
            continue
        if target.tokenizer and facts.tokenizer and target.tokenizer.agrees_with(facts.tokenizer):
            yield with_default_k(method, "a small model of the same family, with the same tokenizer", facts)
            return
