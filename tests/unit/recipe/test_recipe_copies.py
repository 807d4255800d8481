"""`Recipe.edit`: other values in memory, checked as those of a file, which stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

import toolkit


def test_keys_of_sections_are_changed_and_all_else_stays() -> None:
    recipe = toolkit.load("tiny/p-eagle")
    text = recipe.path.read_text()
    edited = recipe.edit(speculation={"num_speculative_tokens": 4}, engine={"max_model_len": 512})
    assert edited.speculation
    assert (edited.speculation.num_speculative_tokens, edited.engine.max_model_len) == (4, 512)
    assert (edited.speculation.model, edited.engine.args) == (str(recipe.drafter), recipe.engine.args)
    assert toolkit.check(edited).ok
    assert recipe.speculation
    assert recipe.speculation.num_speculative_tokens == 7
    assert recipe.path.read_text() == text


def test_folders_begin_at_the_recipes_own() -> None:
    recipe = toolkit.load("tiny/p-eagle")
    assert (
        recipe.edit(speculation={"model": "./models/eagle3"}).drafter
        == recipe.edit(speculation={"model": str(recipe.path.parent / "models" / "eagle3")}).drafter
    )
    assert toolkit.check(recipe.edit(target={"model": "./nowhere"})).errors[0].path == "target.model"
    assert recipe.edit(target={"model": "org/model"}).target.folder is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"speculation": {"num_speculative_tokens": 0}}, "`speculation.num_speculative_tokens`"),
        ({"speculation": {"tokens": 4}}, "`speculation.tokens`"),
        ({"speculatin": {}}, "no key `speculatin`"),
        ({"engine": 7}, "`engine` is a section"),
        ({"name": "another"}, "`name` is no section"),
        ({"training": {"steps": 3}}, "`training` is no section that the recipe has"),
    ],
)
def test_what_no_file_may_say_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(toolkit.UsageError, match=told):
        toolkit.load("tiny/p-eagle").edit(**changes)
