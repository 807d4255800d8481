"""Names on AWS: the bucket and what lies in it, roles, tags."""

from __future__ import annotations

from toolkit.planning.names import tag_map
from toolkit.planning.resources import Account
from toolkit.recipe.resolve import Recipe

ML = "ml."
"""What SageMaker's names of EC2's instance types begin with."""

PREVIOUS_TAG = "toolkit:previous"
"""On an endpoint: the EndpointConfigs that it ran before, oldest first, for `toolkit rollback`; see `ran_before`."""

WEIGHTS_PREFIX = "weights/"
USES_PREFIX = "uses/"
"""In our bucket: weights by content, and which endpoint uses which, as empty objects `uses/<weights>/<endpoint>`."""

STAGED_PREFIX = "staged/"
"""In our bucket: an empty object for weights from the hub that have arrived whole."""

LEASES_PREFIX = "leases/"
"""In our bucket: who is changing which endpoint right now."""

CAPTURE_PREFIX = "capture/"
"""In our bucket: requests and answers that an endpoint captures."""


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


def tags(recipe: Recipe, endpoint: str | None = None) -> list[dict[str, str]]:
    """The recipe's own tags and ours as AWS lists them; `endpoint` when that is not the recipe's name."""
    return [{"Key": key, "Value": value} for key, value in sorted(tag_map(recipe, endpoint).items())]
