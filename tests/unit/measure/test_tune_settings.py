"""Variants of a recipe that can be measured beside each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pairs import write_pair

from toolkit.api.tuning import with_method
from toolkit.errors import UsageError
from toolkit.loading import load
from toolkit.measure.settings import from_recipe, of_method, with_k, with_schedule
from toolkit.recipe.recipe import Recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_pair(tmp_path))


def test_a_k_is_the_recipe_under_another_name(recipe: Recipe) -> None:
    setting = with_k(recipe, 4)

    assert (setting.name, setting.recipe.name) == ("K=4", "tiny-tune-k4")
    assert setting.keys == {"method": "p-eagle", "model": str(recipe.drafter), "num_speculative_tokens": 4}
    assert setting.recipe.baseline().engine == recipe.baseline().engine


def test_a_k_holds_on_every_instance_type(tmp_path: Path) -> None:
    path = write_pair(tmp_path)
    types = "platform: {name: sagemaker, instance_types: [{type: ml.g6.xlarge, num_speculative_tokens: 2}]}"
    path.write_text(path.read_text().replace("platform: {name: local}", types))

    on_type = with_k(load(path), 4).recipe.on("ml.g6.xlarge")

    assert on_type.speculation
    assert on_type.speculation.num_speculative_tokens == 4


def test_a_k_by_batch_size_drafts_at_most_its_largest_k(recipe: Recipe) -> None:
    setting = with_schedule(recipe, [(1, 8, 6), (9, 128, 0)])

    assert setting.keys["num_speculative_tokens_per_batch_size"] == [[1, 8, 6], [9, 128, 0]]
    assert setting.speculation.num_speculative_tokens == 6


def test_a_method_without_a_drafter_needs_only_its_name(recipe: Recipe) -> None:
    setting = of_method(recipe, with_method(recipe, "ngram"))

    assert setting.speculation.drafter is None
    assert setting.name.startswith("ngram K=")
    assert (setting.recipe.target, setting.recipe.workloads) == (recipe.target, recipe.workloads)


@pytest.mark.parametrize("method", ["eagle3", "none", "no-such-method"])
def test_other_methods_cannot_be_tried_by_name(recipe: Recipe, method: str) -> None:
    with pytest.raises(UsageError, match=f"`{method}` cannot be tried by its name alone"):
        with_method(recipe, method)


def test_another_recipe_is_asked_the_same_prompts(recipe: Recipe, tmp_path: Path) -> None:
    mine = replace(recipe, workloads={"mine": tmp_path / "prompts.jsonl"})
    other = replace(recipe, name="other")

    setting = from_recipe(mine, other, 0)

    assert (setting.name, setting.recipe.name) == ("other K=7", "tiny-tune-arm0")
    assert setting.recipe.workloads == mine.workloads


def test_recipes_of_another_target_or_none_are_refused(recipe: Recipe) -> None:
    with pytest.raises(UsageError, match="serves another target"):
        from_recipe(recipe, replace(recipe, target=recipe.target.edit(model="/elsewhere")), 0)
    with pytest.raises(UsageError, match="does not speculate"):
        from_recipe(recipe, recipe.baseline(), 0)
    with pytest.raises(UsageError, match="does not speculate"):
        with_k(replace(recipe, speculation=None), 3)


def test_names_are_no_longer_than_a_baselines(recipe: Recipe) -> None:
    longest = replace(recipe, name="a" * 44)

    names = [with_k(longest, 10).recipe.name, of_method(longest, with_method(longest, "ngram")).recipe.name]

    assert max(map(len, names)) <= len(longest.baseline().name)
    assert len(set(names)) == 2


def test_all_requests_of_a_setting_are_speculated_on(tmp_path: Path) -> None:
    path = write_pair(tmp_path)
    path.write_text(path.read_text() + "rollout: {speculative_percent: 50}\n")

    assert with_k(load(path), 3).recipe.rollout.speculative_percent == 100
