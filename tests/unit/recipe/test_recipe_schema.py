"""The JSON schema that editors use."""

from __future__ import annotations

import json
from pathlib import Path

import toolkit.recipe.schema
from toolkit.recipe.assemble import json_schema
from toolkit.recipe.known import catalogue, catalogue_dir
from toolkit.registry import recipe_schema

COMMITTED = Path(toolkit.recipe.schema.__file__).with_name("recipe.schema.json")


def test_the_committed_schema_is_the_generated_one() -> None:
    assert json.loads(COMMITTED.read_text()) == json_schema(recipe_schema()), f"toolkit schema > {COMMITTED}"


def test_every_recipe_of_the_catalogue_names_the_schema() -> None:
    for name in catalogue():
        path = catalogue_dir() / f"{name}.yaml"
        comment, _, schema = path.read_text().splitlines()[0].partition("$schema=")
        assert comment == "# yaml-language-server: "
        assert (path.parent / schema).resolve() == COMMITTED
