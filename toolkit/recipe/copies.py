"""A recipe with other values than its file has: `Recipe.edit`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from toolkit.errors import UsageError
from toolkit.recipe.schema import RecipeFile
from toolkit.recipe.section import Section
from toolkit.recipe.source import model_source

_MODELS = ("model", "head", "start_from")


def edited(recipe: Any, file: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    """These fields of a recipe of that file with other values, those of sections by key. Raises UsageError."""
    return {key: _value(getattr(recipe, key, None), file, key, value) for key, value in changes.items()}


def _value(before: Any, file: Path, key: str, value: Any) -> Any:
    if key not in RecipeFile.model_fields:
        raise UsageError(f"a recipe has no key `{key}`", hint=f"It has: {', '.join(RecipeFile.model_fields)}.")
    if not isinstance(before, Section):
        raise UsageError(f"`{key}` is no section that the recipe has", hint=f"Write it in {file}.")
    if not isinstance(value, Mapping):
        raise UsageError(f"`{key}` is a section", hint=f"Write: edit({key}={{KEY: VALUE}})")
    try:
        return _section(before, file.resolve().parent, value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (key, *first["loc"])))
        raise UsageError(f"`{where}`: {first['msg']}", hint="All keys: toolkit schema") from error


def _section(before: Section, base: Path, changes: Mapping[str, Any]) -> Section:
    """Folders begin at the recipe's own, as in its file."""
    placed = {
        name: model_source(value, base).model if name in _MODELS and isinstance(value, str) else value
        for name, value in changes.items()
    }
    written = {name: getattr(before, name) for name in before.model_fields_set if name not in changes}
    validated = type(before).model_validate({**_plain(written), **placed})
    # What was filled in and is not written stays as it was.
    return before.model_copy(update={name: getattr(validated, name) for name in changes})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sections in a section as the data that they were read from."""
    return {name: value.dump() if isinstance(value, Section) else value for name, value in values.items()}
