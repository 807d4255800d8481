"""What a plan says of how long its containers take to answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pairs import HUB_RECIPE, write_hub_pair

from toolkit.loading import load, on_platform
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.starts import COMPILING, MeasuredStart, expected_seconds, start_notes, what_starts

LAST = MeasuredStart(
    "this", {"waiting for an instance, weights and image": 200.0, "starting": 2.0, "loading": 70.0}, "2026-11-21"
)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return replace(load(write_hub_pair(tmp_path, HUB_RECIPE)), weight_bytes=65_000_000_000)


def test_it_is_estimated_by_stage(recipe: Recipe) -> None:
    (note,) = start_notes(recipe, None)
    assert note.startswith("Its containers answer after about ")
    assert "(an estimate): waiting for an instance, weights and image" in note
    assert "A burst" not in note
    more = expected_seconds(replace(recipe, weight_bytes=130_000_000_000))
    assert all(more[stage] >= seconds for stage, seconds in expected_seconds(recipe).items())
    assert more["loading the target"] > expected_seconds(recipe)["loading the target"]


def test_the_last_start_counts_more_than_an_estimate(recipe: Recipe) -> None:
    assert list(start_notes(recipe, LAST)) == [
        "Its containers answer after about 4:32 (as at its last start, 2026-11-21): "
        "waiting for an instance, weights and image 3:20, loading 1:10"
    ]


def test_where_it_scales_a_burst_waits_as_long(recipe: Recipe) -> None:
    (note,) = start_notes(replace(recipe, scaling=recipe.scaling.edit(max_instances=4)), LAST)
    assert note.endswith("loading 1:10. A burst that needs another instance waits as long")


def test_of_models_of_unknown_size_and_of_this_machine_nothing_is_expected(recipe: Recipe) -> None:
    assert not list(start_notes(replace(recipe, weight_bytes=None), None))
    assert not list(start_notes(on_platform(recipe, "local"), None))


def test_another_version_method_or_instance_is_another_start(recipe: Recipe) -> None:
    others = [
        replace(recipe, engine=recipe.engine.edit(version="0.29.0")),
        recipe.baseline(),
        replace(recipe, platform=recipe.platform.edit(instance_types=("ml.p5.48xlarge",))),
    ]
    assert len({what_starts(one) for one in (recipe, *others)}) == 4
    assert what_starts(replace(recipe, tags={"team": "a"})) == what_starts(recipe)


def test_on_trainium_it_compiles_for_long_or_not_at_all() -> None:
    ahead = replace(load("qwen3-32b/draft-model-trn2"), weight_bytes=65_000_000_000)
    at_start = replace(ahead, engine=ahead.engine.edit(compile="at-start"))
    assert COMPILING not in expected_seconds(ahead)
    assert expected_seconds(at_start)[COMPILING] > 1200
