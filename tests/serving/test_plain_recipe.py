"""A recipe that says no more of its engine than name, version and longest request runs on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

import toolkit
from toolkit.apply.progress import Silent

pytestmark = [pytest.mark.serving, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

MODELS = Path(__file__).parents[2] / "recipes" / "tiny" / "models"
RECIPE = f"""\
name: plain
description: nothing about memory, dtype and compilation
target: {{model: {MODELS / "target"}}}
speculation: {{method: p-eagle, model: {MODELS / "p-eagle"}, num_speculative_tokens: 7}}
engine: {{name: vllm, version: 0.32.0, max_model_len: 1024}}
platform: {{name: local}}
"""


def test_memory_dtype_and_eager_mode_are_those_of_the_machine(tmp_path: Path) -> None:
    recipe = tmp_path / "plain.yaml"
    recipe.write_text(RECIPE)
    assert toolkit.check(recipe).ok
    endpoint = toolkit.deploy(recipe, progress=Silent())
    try:
        assert endpoint.chat("One, two,", max_tokens=4)
    finally:
        toolkit.destroy(recipe, progress=Silent())
