"""Warm starts where there is nothing to keep, or nobody to take it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import HUB_RECIPE, RECIPE, write_hub_pair, write_pair, write_recipe

from toolkit.api.checking import check
from toolkit.loading import load

EAGER = "    enforce-eager: true\n"


def found(root: Path, text: str) -> dict[str, str]:
    """Findings on `engine.warm_start`: the severity of each code."""
    engine = text.replace("engine:\n", "engine:\n  warm_start: true\n")
    report = check(load(write_recipe(root, engine)))
    return {item.code: item.severity for item in report.findings if item.path == "engine.warm_start"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RECIPE, {"engine.warm-start": "warning"}),
        (RECIPE.replace(EAGER, ""), {"engine.warm-start": "warning"}),
        (RECIPE.replace(EAGER, "    no-enforce-eager: true\n"), {}),
    ],
)
def test_where_vllm_compiles_nothing_there_is_nothing_to_keep(tmp_path: Path, text: str, said: dict[str, str]) -> None:
    write_pair(tmp_path)
    assert found(tmp_path, text) == said


def test_a_container_of_this_machine_keeps_nothing(tmp_path: Path) -> None:
    write_pair(tmp_path)
    compiling = RECIPE.replace(EAGER, "    no-enforce-eager: true\n")
    container = "platform: {name: local, run: container}\ncontainer: {base: registry/cpu:1}\n"
    assert "platform: {name: local}\n" in compiling
    assert found(tmp_path, compiling.replace("platform: {name: local}\n", container)) == {"local.not-here": "error"}


def test_on_a_gpu_it_compiles_by_itself(tmp_path: Path) -> None:
    write_hub_pair(tmp_path)
    assert found(tmp_path, HUB_RECIPE) == {}


def test_jumpstarts_container_takes_nothing(tmp_path: Path) -> None:
    text = HUB_RECIPE.replace("org/target", "jumpstart:some-model")
    assert found(tmp_path, text) == {"engine.warm-start": "error"}


def test_pods_of_a_cluster_take_nothing(tmp_path: Path) -> None:
    text = HUB_RECIPE.replace("sagemaker, instance_types: [ml.g6.xlarge]", "kubernetes, instance_types: [g6.xlarge]")
    assert found(tmp_path, text) == {"kubernetes.warm-start": "error"}


def test_trainium_has_a_key_of_its_own(tmp_path: Path) -> None:
    text = HUB_RECIPE.replace("version: 0.30.0", "name: neuron").replace("ml.g6.xlarge", "ml.trn2.48xlarge")
    assert found(tmp_path, text) == {"recipe.no-effect": "error"}
