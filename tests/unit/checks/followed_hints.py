"""A recipe with the edit made that a finding's hint asks for."""

from __future__ import annotations

import re
from typing import Any

import yaml

from toolkit.findings import Finding

_SET_IT = re.compile(r"Set it to ([^\s,]+?)(?: or (?:less|more|newer))?(?:[,.:]|$| or )")
_SET_KEY = re.compile(r"[Ss]et `([\w.]+): ([^`]+)`")
_REMOVE = re.compile(r"Remove (?:it|the flag|the key)\b")
_OF_ENGINE = ("version", "max_model_len")


def follow(text: str, finding: Finding) -> str | None:
    """The recipe as the hint wants it; None where it asks for what is no edit of one key."""
    recipe = yaml.safe_load(text)
    if found := _SET_IT.match(finding.hint):
        _edit(recipe, finding.path, yaml.safe_load(found[1]))
    elif _REMOVE.match(finding.hint):
        _edit(recipe, finding.path)
    elif found := _SET_KEY.search(finding.hint):
        key = f"engine.{found[1]}" if found[1] in _OF_ENGINE else found[1]
        _edit(recipe, key, yaml.safe_load(found[2]))
    else:
        return None
    return yaml.safe_dump(recipe, sort_keys=False)


def _edit(recipe: Any, path: str, *value: Any) -> None:
    """Set the key at `path`, or remove it."""
    *above, key = path.split(".")
    for name in above:
        recipe = recipe.setdefault(name, {})
    recipe.pop(key, None)
    if value:
        (recipe[key],) = value
