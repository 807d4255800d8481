"""A toy platform, engine and method, registered, go the whole road: no file of the product knows of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from toys import SESSION, ToyBox, registered, write_toy_recipe

import toolkit
from toolkit.api.removal import destroy_on
from toolkit.apply.progress import Progress, Silent
from toolkit.errors import ApplyError
from toolkit.loading import read
from toolkit.planning.kinds import configs
from toolkit.planning.plan import Action
from toolkit.registry import rules_of

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
    assert read(recipe).file.engine.name == "toy"
    assert [finding.code for finding in toolkit.check(recipe).errors] == []
    recipe.write_text(RECIPE + "scaling: {max_instances: 2}\n")
    assert "toy.one-box" in [finding.code for finding in toolkit.check(recipe).errors]


def test_its_plan_has_its_kinds_in_their_order(recipe: Path) -> None:
    plan = toolkit.plan(recipe, baseline=True)
    assert [str(action) for action in plan.actions] == [
        "create Box spinner",
        "create Box spinner-baseline",
        "create Top spinner",
        "create Top spinner-baseline",
    ]
    assert (plan.platform, plan.price_per_hour, plan.notes) == ("toy-box", 0.5, ("Tops spin",))
    assert configs(plan, rules_of(plan.platform).kinds) == {"spinner": "red", "spinner-baseline": "white"}


def test_it_is_deployed_changed_and_removed(recipe: Path) -> None:
    endpoint = toolkit.deploy(recipe, progress=Silent())
    assert (endpoint.name, endpoint.status().config) == ("spinner", "red")
    assert toolkit.plan(recipe).changes == []
    recipe.write_text(RECIPE.replace("toy-drafts", "none"))
    assert [f"{action} ({action.reason})" for action in toolkit.plan(recipe).changes] == [
        "update Box spinner (is red)",
        "update Top spinner (is red)",
    ]
    assert toolkit.connect("spinner", platform="toy-box").name == "spinner"
    done = toolkit.destroy("spinner", platform="toy-box", progress=Silent())
    assert [str(action) for action in done.actions] == ["delete Top spinner", "delete Box spinner"]
    assert SESSION.box.holds == {}


def test_what_is_still_there_after_a_removal_is_named() -> None:
    class Forgetful(ToyBox):
        """Says yes to the removal of a Box, and keeps it."""

        def execute(self, action: Action, progress: Progress) -> None:
            if (action.kind, action.verb) != ("Box", "delete"):
                super().execute(action, progress)

    box = Forgetful()
    box.holds = {("Box", "spinner"): "red", ("Top", "spinner"): "red"}
    with pytest.raises(ApplyError, match=r"^still there: Box spinner\n  Run the same command again"):
        destroy_on(box, "", ["spinner"], Silent())
