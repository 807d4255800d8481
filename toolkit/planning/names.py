"""Names and tags: how what we make is told from what we do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolkit.planning.resources import Account, digest
from toolkit.recipe.resolve import Recipe
from toolkit.version import __version__

ENDPOINT_TAG = "toolkit:endpoint"
"""Everything we make carries this tag; its value is the endpoint's name. What lacks it is never changed or removed."""

RECIPE_TAG = "toolkit:recipe"
RECIPE_ANNOTATION = "toolkit/recipe"
"""Digest of the recipe that a resource was made from."""

VERSION_TAG = "toolkit:version"
PREVIOUS_TAG = "toolkit:previous"
"""On an endpoint: the EndpointConfigs that it ran before, oldest first, for `toolkit rollback`; see `ran_before`."""

WEIGHTS_PREFIX = "weights/"
USES_PREFIX = "uses/"
"""In our bucket: weights by content, and which endpoint uses which, as empty objects `uses/<weights>/<endpoint>`."""

STAGED_PREFIX = "staged/"
"""In our bucket: an empty object for weights from the hub that have arrived whole."""

ARTIFACTS_PREFIX = "neuron/"
"""In our bucket: what was compiled for Trainium, by the key of all that it depends on; see planning/artifacts.py."""

LEASES_PREFIX = "leases/"
"""In our bucket: who is changing which endpoint right now."""

_DIGEST_CHARACTERS = 8
_TAG_CHARACTERS = 12


def bucket_name(account: Account) -> str:
    """The one bucket of the toolkit in an account and region."""
    return f"toolkit-{account.id}-{account.region}"


def ran_before(tag: str | None, running: str) -> str | None:
    """What an endpoint ran before `running`, by its PREVIOUS_TAG; `running` itself when its update was rolled back.

    The tag is written before an update, which may never come: then its last name is what still runs.
    """
    names = (tag or "").split()
    return next((name for name in reversed(names) if name != running), names[-1] if names else None)


def role_name(endpoint: str) -> str:
    """The execution role that is made for an endpoint."""
    return f"toolkit-{endpoint}"


def compiler(recipe: str) -> str:
    """Whose role the jobs run under that compile for a recipe: they may write what an endpoint may only read."""
    return f"{recipe}-compile"


def content_name(prefix: str, body: Mapping[str, Any]) -> str:
    """A readable name that says its content: the same recipe gives the same name, a changed one another."""
    return f"{prefix}-{digest(body)[:_DIGEST_CHARACTERS]}"


def is_content_name(prefix: str, name: str) -> bool:
    """Whether `content_name` may have made the name of that prefix."""
    return re.fullmatch(rf"{re.escape(prefix)}-[0-9a-f]{{{_DIGEST_CHARACTERS}}}", name) is not None


def tags(recipe: Recipe, endpoint: str | None = None) -> list[dict[str, str]]:
    """The recipe's own tags and ours; `endpoint` when that is not the recipe's name."""
    return [{"Key": key, "Value": value} for key, value in sorted(tag_map(recipe, endpoint).items())]


def tag_map(recipe: Recipe, endpoint: str | None = None) -> dict[str, str]:
    """The same as one mapping."""
    ours = {ENDPOINT_TAG: endpoint or recipe.name, RECIPE_TAG: _recipe_digest(recipe), VERSION_TAG: __version__}
    return {**recipe.tags, **ours}


def _recipe_digest(recipe: Recipe) -> str:
    """The same on every machine: folders count by their names."""
    said = recipe.to_dict()
    said["target"] = recipe.target.name
    if recipe.drafter:
        said["speculation"]["model"] = recipe.drafter.name
    said["workloads"] = sorted(recipe.workloads)
    return digest(said)[:_TAG_CHARACTERS]
