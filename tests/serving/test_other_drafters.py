"""EAGLE-3 heads and draft models on a real vLLM: drafts are accepted, and the output is the target's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forked_vllm import ForkedVllm

import toolkit
from toolkit.recipe.resolve import Recipe

pytestmark = pytest.mark.serving


@pytest.mark.parametrize("method", ["eagle3", "draft-model"])
def test_other_drafters_give_the_targets_output(vllm: ForkedVllm, method: str) -> None:
    recipe = toolkit.load(f"tiny/{method}")
    structured, open_ended = (first_prompts(recipe.workloads[name]) for name in ("structured", "open-ended"))
    drafted = vllm.run("answer", arguments=llm_arguments(recipe), prompts=structured)
    rest = vllm.run("answer", arguments=llm_arguments(recipe), prompts=open_ended)
    target = vllm.run("answer", arguments=llm_arguments(recipe.baseline()), prompts=[*structured, *open_ended])

    assert [*drafted["tokens"], *rest["tokens"]] == target["tokens"]
    assert 1 + drafted["accepted"] / drafted["steps"] >= 2


def first_prompts(workload: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in workload.read_text().splitlines()[:3]]


def llm_arguments(recipe: Recipe) -> dict[str, Any]:
    """The flags of the recipe's server, as vLLM takes them without one."""
    arguments = {flag.replace("-", "_"): value for flag, value in recipe.flags.items()}
    if recipe.speculation:
        drafter = str(recipe.speculation.drafter.folder)
        arguments["speculative_config"] = {**arguments["speculative_config"], "model": drafter}
    return {**arguments, "model": str(recipe.target.folder), "disable_log_stats": False}
