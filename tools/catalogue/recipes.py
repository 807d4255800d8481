"""Drafters and K that vLLM's own recipes publish (github vllm-project/recipes), for heads.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML

from toolkit.catalog import methods
from toolkit.engines.vllm.importing import read_settings
from toolkit.errors import UsageError
from tools.catalogue.documents import Documents

REPOSITORY = "vllm-project/recipes"
DOCUMENT = "vllm-recipes.json"
"""`commit`, and `recipes` by path: their settings, and in `commands` what their guides start a server with."""

FILES = re.compile(r"models/[^/]+/[^/]+\.yaml")
_PARTS = ("model", "features", "opt_in_features", "variants", "strategy_overrides")
_UNREAD = ("description", "dependencies", "install")
_CODE_BLOCK = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_FLAT_OBJECT = re.compile(r'\{[^{}]*"num_speculative_tokens"[^{}]*\}')
# A block with several commands has them apart by an empty line.
_EMPTY_LINES = re.compile(r"\n\s*\n")
_STARTS_SERVER = re.compile(r"vllm serve |docker run |api_server")


@dataclass(frozen=True)
class Published:
    """How a recipe speculates: `drafter` is None where the target drafts with layers of its own."""

    target: str
    method: str
    drafter: str | None
    tokens: int
    source: str


def cut(text: str) -> dict[str, Any]:
    """What is read of a recipe: the settings, and of its guide the commands alone."""
    document: dict[str, Any] = YAML(typ="safe").load(text)
    kept = {name: _without_prose(document[name]) for name in _PARTS if document.get(name)}
    return {**kept, "commands": [*dict.fromkeys(_commands(document.get("guide") or ""))]}


def published(documents: Documents) -> list[Published]:
    """Of each recipe the one way to speculate that it has."""
    document = documents.json(DOCUMENT)
    found = (_published(path, recipe, document["commit"]) for path, recipe in document.get("recipes", {}).items())
    return [one for one in found if one]


def named(documents: Documents) -> list[Published]:
    """Further drafters that a recipe names, in what it does not do by default and in its commands, each once.

    Some recipes name a drafter of another model: the first for it is the one whose target its name has.
    """
    document = documents.json(DOCUMENT)
    found = [
        one for path, recipe in document.get("recipes", {}).items() for one in _named(path, recipe, document["commit"])
    ]
    found.sort(key=lambda one: one.target.rpartition("/")[2].lower() not in str(one.drafter).lower())
    by_drafter: dict[str, Published] = {}
    for one in found:
        by_drafter.setdefault(str(one.drafter).lower(), one)
    return list(by_drafter.values())


def _named(path: str, recipe: Mapping[str, Any], commit: str) -> Iterator[Published]:
    target = recipe.get("model", {}).get("model_id", "")
    known = {item.name for item in methods.methods()}
    for config in (config for text in _texts(recipe) for config in _configs(text)):
        drafter, tokens, method = (config.get(key) for key in ("model", "num_speculative_tokens", "method"))
        has_drafter = isinstance(drafter, str) and drafter.count("/") == 1 and drafter != target
        if has_drafter and isinstance(tokens, int) and method in known and target:
            yield Published(target, str(method), drafter, tokens, f"github {REPOSITORY}@{commit[:8]}, {path}")


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, Mapping | list):
        for inner in part.values() if isinstance(part, Mapping) else part:
            yield from _texts(inner)


def _configs(text: str) -> Iterator[dict[str, Any]]:
    """The flat JSON objects in a text that may be a value of --speculative-config."""
    for match in _FLAT_OBJECT.findall(text):
        try:
            yield json.loads(match)
        except ValueError:
            continue


def _published(path: str, recipe: Mapping[str, Any], commit: str) -> Published | None:
    try:
        imported = read_settings(recipe, None)
    except UsageError:  # of vLLM-Omni
        return None
    if imported is None or "num_speculative_tokens" not in imported.speculation:
        return None
    target, speculation = imported.target["model"], imported.speculation
    drafter = speculation.get("model")
    tokens = speculation["num_speculative_tokens"]
    source = f"github {REPOSITORY}@{commit[:8]}, {path}"
    method = methods.method(speculation["method"])
    return Published(target, method.spelling_of or method.name, drafter, tokens, source)


def _without_prose(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {key: _without_prose(value) for key, value in part.items() if key not in _UNREAD}
    return part


def _commands(guide: str) -> Iterator[str]:
    for block in _CODE_BLOCK.findall(guide):
        for command in _EMPTY_LINES.split(block):
            if _STARTS_SERVER.search(command):
                yield command.strip()
