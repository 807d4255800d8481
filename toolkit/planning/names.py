"""Names and tags of the resources that the toolkit creates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolkit.recipe.content import digest
from toolkit.recipe.recipe import Recipe
from toolkit.version import __version__

ENDPOINT_TAG = "toolkit:endpoint"
"""Every resource we create has this tag with the endpoint's name. Without it, nothing is changed or deleted."""

RECIPE_TAG = "toolkit:recipe"
RECIPE_ANNOTATION = "toolkit/recipe"
"""Digest of the recipe that a resource was made from."""

VERSION_TAG = "toolkit:version"

ARTIFACTS_PREFIX = "neuron/"
"""In a bucket: what was compiled for Trainium, by the key of all that it depends on; see planning/artifacts.py."""

_DIGEST_CHARACTERS = 8
_TAG_CHARACTERS = 12


def content_name(prefix: str, body: Mapping[str, Any]) -> str:
    """A readable name with a digest of the content."""
    return f"{prefix}-{digest(body)[:_DIGEST_CHARACTERS]}"


def is_content_name(prefix: str, name: str) -> bool:
    """Whether `name` may come from `content_name` with that prefix."""
    return re.fullmatch(rf"{re.escape(prefix)}-[0-9a-f]{{{_DIGEST_CHARACTERS}}}", name) is not None


def without_digest(name: str) -> str:
    """The readable part of a name of `content_name`; another name as it is."""
    return re.sub(rf"-[0-9a-f]{{{_DIGEST_CHARACTERS}}}$", "", name)


def tag_map(recipe: Recipe, endpoint: str | None = None) -> dict[str, str]:
    """The recipe's tags and the toolkit's; `endpoint` if it differs from the recipe's name."""
    ours = {
        ENDPOINT_TAG: endpoint or recipe.name,
        RECIPE_TAG: recipe.digest[:_TAG_CHARACTERS],
        VERSION_TAG: __version__,
    }
    return {**recipe.tags, **ours}
