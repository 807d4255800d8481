"""The instance types that hold a pair of models, the cheapest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.catalog.lookup import Instance
from toolkit.engines.open_choices import able_types, by_weights
from toolkit.errors import ToolkitError
from toolkit.proposal.model import Goal
from toolkit.recipe.lock import Lock
from toolkit.recipe.resolve import Recipe
from toolkit.sizing.fit import GIB, Fit, fits, sizable
from toolkit.sizing.weights import file_bytes


@dataclass(frozen=True)
class Offer:
    """An instance type that holds the models: on `tensor_parallel` accelerators, with `requests` of full length."""

    instance_type: str
    tensor_parallel: int
    price: float | None
    room: str

    def __str__(self) -> str:
        price = "price unknown" if self.price is None else f"{self.price:.2f} $/h"
        return f"{self.instance_type} {price}"


def offers(recipe: Recipe, models: Lock, goal: Goal, max_price: float | None = None) -> list[Offer]:
    """Types of the recipe's platform that hold the models, the best for the goal first: cheapest, or by price of KV.

    Those above `max_price` or of unknown price are left out if there is a limit. Raises ToolkitError if the target's
    size is unknown.
    """
    there = able_types(recipe)
    try:
        found = _sized(recipe, models, there, goal)
    except ToolkitError as error:
        found = _by_weights(recipe, models, there, error)
    return [offer for offer in found if max_price is None or (offer.price is not None and offer.price <= max_price)]


def _sized(recipe: Recipe, models: Lock, instances: Sequence[Instance], goal: Goal) -> list[Offer]:
    known, _ = sizable(models)
    found = fits(recipe, known, instances, "kv-price" if goal == "throughput" else "price")
    return [
        Offer(one.instance, one.tensor_parallel, one.price_per_hour, _room(one))
        for one in found
        if one.fits and not one.doubtful
    ]


def _room(found: Fit) -> str:
    each = f" on each of {found.tensor_parallel} GPUs" if found.tensor_parallel > 1 else ""
    return f"{found.weights_gib + found.drafter_gib:.0f} GiB of weights{each}, room for {found.kv_tokens:,} tokens"


def _by_weights(recipe: Recipe, models: Lock, instances: Sequence[Instance], error: ToolkitError) -> list[Offer]:
    """By the size of the weights alone. Raises the error if that is unknown, too."""
    size = file_bytes(models.target)
    if not size:
        raise error
    room = f"by its {size / GIB:.0f} GiB of weights alone: the rest cannot be estimated"
    found = by_weights(recipe, models, instances)
    return [Offer(one.instance, one.tensor_parallel, one.price_per_hour, room) for one in found]
