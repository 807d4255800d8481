"""Each shipped recipe for Trainium as its container starts it: the argv is that of the recipe, to the last flag."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from neuron_machine import NXD_INFERENCE, VLLM_NEURON, Machine

from toolkit.engines.arguments import environment
from toolkit.loading import load
from toolkit.planning import artifacts
from toolkit.recipe.known import catalogue
from toolkit.recipe.recipe import Recipe

RECIPES = [(name, load(name)) for name in catalogue() if load(name).engine_rules.compilation]
ARMS = [
    pytest.param(arm, id=f"{name}, {arm.method}") for name, recipe in RECIPES for arm in (recipe, recipe.baseline())
]


@pytest.mark.parametrize("recipe", ARMS)
def test_a_recipe_reaches_its_engine(recipe: Recipe, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (machine.host / "version").write_text("2.28.0.0\n")
    engine = NXD_INFERENCE if recipe.engine.name == "nxd-inference" else VLLM_NEURON
    machine.record(engine.folder, artifacts.key(recipe), artifacts.parts(recipe))

    said = machine.serves(engine, environment(recipe) | artifacts.variables(recipe, str(machine.artifacts)))

    given = _flags(said["argv"])
    expected = {flag: _told(value) for flag, value in {"model": "org/model", **recipe.flags}.items()}
    assert given.items() >= expected.items()
    assert given.keys() - expected.keys() == {"port", "middleware"}
    assert said["env"].get("VLLM_USE_V1") == ("0" if engine is NXD_INFERENCE else None)


def _flags(argv: list[str]) -> dict[str, Any]:
    """Flags without dashes, JSON read."""
    flags: dict[str, Any] = {}
    for word in argv:
        if word.startswith("--"):
            flag = word.removeprefix("--")
            flags[flag] = True
        else:
            flags[flag] = json.loads(word) if word.startswith("{") else word
    return flags


def _told(value: Any) -> Any:
    return value if value is True or isinstance(value, dict) else str(value)
