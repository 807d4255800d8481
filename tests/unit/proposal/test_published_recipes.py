"""What vLLM's own recipes publish as working: it is imported, no check refuses it, and it is what `new` proposes.

Cut copies of all of github vllm-project/recipes are in tests/documents, with their commit.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolkit.api.importing import import_recipe
from toolkit.errors import UsageError
from toolkit.proposal.drafters import drafters
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.known import known_model
from tools.catalogue import recipes
from tools.catalogue.__main__ import DOCUMENTS
from tools.catalogue.documents import documents_in

READ = documents_in(DOCUMENTS)
RECIPES: dict[str, dict[str, Any]] = READ.json(recipes.DOCUMENT)["recipes"]
# Whether a model drafts with layers of its own is in its config.json, which is not known here of all.
DRAFTERS = [one for one in recipes.published(READ) if one.drafter or known_model(one.target)]

NO_HUB = {"lock.missing", "model.unreadable"}
"""Their files would be read from the hub."""

RIGHTLY = {
    "another engine than vLLM": "vLLM-Omni",
    "names no model": "`vllm serve ...`, or a variable that the reader sets",
    "no command that starts a vLLM server": "a container with a shell",
    "--ignored-layers": "a flag of vLLM-Omni",
    "--guided-decoding-backend": "no version since 0.16 has it; the command is older",
    "use_inductor": "no CompilationConfig since vLLM 0.16 has it; the recipe is older",
    "--tool-call-parser-plugin": "no version has it: it is called --tool-parser-plugin",
    "nano_v3": "a parser of a plugin, which import leaves out: it runs code",
    "nemotron_json": "likewise",
    "the engine takes 16 GPUs": "on two nodes, and an instance of SageMaker has eight at most",
    "times pipeline-parallel-size 2 needs that many": "likewise",
    "data-parallel-size 16 needs that many": "likewise",
    "179.4 more than available": "Llama 4 Scout with all of its 10,485,760 tokens",
}
"""What is refused, and why that is right."""


def attempts(recipe: dict[str, Any]) -> list[tuple[str, str | None]]:
    """The text of each import that the recipe makes possible, and its variant: its settings, and its commands."""
    settings = json.dumps({name: part for name, part in recipe.items() if name != "commands"})
    variants = [None, *(name for name in recipe.get("variants", {}) if name != "default")]
    return [*((settings, variant) for variant in variants), *((command, None) for command in recipe["commands"])]


def told(text: str, variant: str | None, out: Path) -> list[str]:
    """The refusal, or the errors that `check` finds in what was imported."""
    try:
        made = import_recipe(text, out=out, variant=variant)
    except UsageError as error:
        return [error.message]
    return [item.message for item in made.findings if item.severity == "error" and item.code not in NO_HUB]


@pytest.mark.parametrize("path", RECIPES)
def test_what_is_published_is_imported_without_an_error(path: str, tmp_path: Path) -> None:
    for number, (text, variant) in enumerate(attempts(RECIPES[path])):
        messages = told(text, variant, tmp_path / f"{number}.yaml")
        assert [message for message in messages if not any(known in message for known in RIGHTLY)] == [], text


def test_all_of_them_are_tried() -> None:
    assert len(RECIPES) == 173
    assert sum(len(attempts(recipe)) for recipe in RECIPES.values()) > 800


@pytest.mark.parametrize("published", DRAFTERS, ids=lambda one: one.target)
def test_what_is_published_for_a_target_is_proposed_for_it(published: recipes.Published) -> None:
    config = {"hidden_size": 4096, "vocab_size": 128_000}
    target = known_model(published.target) or ModelFacts(published.target, "test", config, None, None)
    proposed = [(drafter.method, drafter.model, drafter.tokens) for drafter in drafters(target)]
    assert (published.method, published.drafter, published.tokens) in proposed


def test_a_copy_in_another_precision_drafts_as_many_tokens() -> None:
    """vLLM's recipe for Qwen3.5-397B-A17B has K=3, where most have 1."""
    known = known_model("Qwen/Qwen3.5-397B-A17B")
    assert known
    own = next(one for one in drafters(replace(known, model="someone/Qwen3.5-397B-A17B-FP8")) if one.method == "mtp")
    assert own.tokens == 3
    assert "models/Qwen/Qwen3.5-397B-A17B.yaml" in own.tokens_why
