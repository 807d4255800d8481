"""Drafters and K that vLLM's own recipes publish (github vllm-project/recipes), for heads.json."""

from __future__ import annotations

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
