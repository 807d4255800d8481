"""Every speculative setting of a public collection, as the shortest recipe that gives the container just that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pairs import write_recipe

from toolkit.engines.arguments import environment
from toolkit.engines.vllm.setting_checks import check_speculation
from toolkit.loading import load

SETTINGS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("public_settings.json").read_text())["settings"]

RECIPE = """\
name: public
target: {model: org/target}
speculation: %s
engine: {version: 0.32.0}
platform: {name: sagemaker, instance_types: [ml.g6.xlarge], weights: hub}
"""


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: json.dumps(setting["published"]))
def test_a_public_setting_can_be_written(tmp_path: Path, setting: dict[str, Any]) -> None:
    recipe = load(write_recipe(tmp_path, RECIPE % json.dumps(setting["recipe"])))
    assert json.loads(environment(recipe)["SM_VLLM_SPECULATIVE_CONFIG"]) == setting["published"]
    assert list(check_speculation(recipe)) == []


def test_none_of_the_85_is_left_out() -> None:
    assert sum(setting["places"] for setting in SETTINGS) == 85
