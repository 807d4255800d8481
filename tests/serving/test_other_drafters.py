"""EAGLE-3 heads and draft models on a real vLLM: drafts are accepted, and the output is the target's."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from forked_vllm import ForkedVllm, llm_arguments

import toolkit

pytestmark = pytest.mark.serving


@pytest.fixture(scope="module")
def expected(vllm: ForkedVllm) -> dict[str, list[list[int]]]:
    """The target's own answers, by workload."""
    baseline = toolkit.load("tiny/eagle3").baseline()
    by_workload = {name: first_prompts(path) for name, path in baseline.workloads.items()}
    asked = [prompt for prompts in by_workload.values() for prompt in prompts]
    answers = iter(vllm.run("answer", arguments=llm_arguments(baseline), prompts=asked)["tokens"])
    return {name: list(islice(answers, len(prompts))) for name, prompts in by_workload.items()}


@pytest.mark.parametrize("method", ["eagle3", "draft-model"])
def test_other_drafters_give_the_targets_output(
    vllm: ForkedVllm, expected: dict[str, list[list[int]]], method: str
) -> None:
    recipe = toolkit.load(f"tiny/{method}")
    arguments = llm_arguments(recipe)
    found = {
        name: vllm.run("answer", arguments=arguments, prompts=first_prompts(path))
        for name, path in recipe.workloads.items()
    }

    assert {name: answers["tokens"] for name, answers in found.items()} == expected
    assert 1 + found["structured"]["accepted"] / found["structured"]["steps"] >= 2


def first_prompts(workload: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in workload.read_text().splitlines()[:3]]
