"""The instance types that hold a pair of models, the cheapest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.catalog.lookup import Instance
from toolkit.engines.open_choices import able_types
from toolkit.errors import ToolkitError
from toolkit.proposal.model import Goal
from toolkit.recipe.lock import Lock
from toolkit.recipe.resolve import Recipe
from toolkit.sizing.fit import GIB, Fit, fits, sizable
from toolkit.sizing.weights import file_bytes

_TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)
# Without an estimate of the rest, weights may take this share of the memory.
_WEIGHTS_SHARE = 0.65


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
    """By the size of the weights alone, for models whose KV cache cannot be estimated."""
    sizes = [file_bytes(facts) for facts in (models.target, models.drafter) if facts]
    weights = sum(size or 0 for size in sizes)
    if not sizes[0]:
        raise error
    heads = models.target.text_config.get("num_attention_heads") or 1
    found = []
    for instance in instances:
        memory = instance.memory_per_accelerator_mib * 2**20 * _WEIGHTS_SHARE
        able = [size for size in _TENSOR_PARALLEL_SIZES if size <= instance.accelerator_count and heads % size == 0]
        size = next((size for size in able if weights / size <= memory), None)
        if size:
            price = instance.price(recipe.platform.region)
            room = f"by its {weights / GIB:.0f} GiB of weights alone: the rest cannot be estimated"
            found.append(Offer(instance.name, size, price.usd_per_hour if price else None, room))
    return sorted(found, key=lambda offer: (offer.price is None, offer.price or 0.0, offer.instance_type))
