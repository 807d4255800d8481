"""A toy platform, engine and method, registered, go the whole road: no file of the product knows of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from toys import SESSION, registered, write_toy_recipe

from toolkit import api
from toolkit.apply.progress import Silent
from toolkit.recipe.load import load_file

RECIPE = """\
name: spinner
target: {model: ./target}
speculation: {method: toy-drafts}
engine: {name: toy, max_model_len: 512}
platform: {name: toy-box}
"""


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_toy_recipe(tmp_path, RECIPE)


def test_the_recipe_is_read_and_checked_by_its_rooms(recipe: Path) -> None:
    assert load_file(recipe).file.engine.name == "toy"
    assert [finding.code for finding in api.check(recipe).errors] == []
    recipe.write_text(RECIPE + "scaling: {max_instances: 2}\n")
    assert "toy.one-box" in [finding.code for finding in api.check(recipe).errors]


def test_its_plan_has_its_kinds_in_their_order(recipe: Path) -> None:
    plan = api.plan(recipe, baseline=True)
    assert [str(action) for action in plan.actions] == [
        "create Box spinner",
        "create Box spinner-baseline",
        "create Top spinner",
        "create Top spinner-baseline",
    ]
    assert (plan.platform, plan.price_per_hour, plan.notes) == ("toy-box", 0.5, ("Tops spin",))
    assert plan.configs == {"spinner": "red", "spinner-baseline": "white"}


def test_it_is_deployed_changed_and_removed(recipe: Path) -> None:
    endpoint = api.deploy(recipe, progress=Silent())
    assert (endpoint.name, endpoint.status().config) == ("spinner", "red")
    assert api.plan(recipe).changes == []
    recipe.write_text(RECIPE.replace("toy-drafts", "none"))
    assert [f"{action} ({action.reason})" for action in api.plan(recipe).changes] == [
        "update Box spinner (is red)",
        "update Top spinner (is red)",
    ]
    assert api.connect("spinner", platform="toy-box").name == "spinner"
    done = api.destroy("spinner", platform="toy-box", progress=Silent())
    assert [str(action) for action in done.actions] == ["delete Top spinner", "delete Box spinner"]
    assert SESSION.box.holds == {}
