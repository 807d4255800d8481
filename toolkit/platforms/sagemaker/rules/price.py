"""What a recipe costs on SageMaker. Prices are the catalogue's: dated, on demand, US dollars, each with its region.

A price that is not known is None, never 0: of a type that the catalogue has no price for, and of reserved capacity,
which stands in no price list.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.catalog import lookup
from toolkit.planning.resources import Observed
from toolkit.platforms.sagemaker.rules.arms import variants
from toolkit.recipe.resolve import Recipe


def price_per_hour(recipe: Recipe) -> float | None:
    """US dollars per hour of the recipe's endpoint as it starts: the first instance type, the fewest instances."""
    return _price(recipe, recipe.platform.instance_types[:1], max(1, recipe.scaling.min_instances))


def most_per_hour(recipe: Recipe) -> float | None:
    """US dollars per hour at most: the dearest of the instance types, as many instances as autoscaling may come to."""
    return _price(recipe, recipe.platform.instance_types, max(1, recipe.scaling.max_instances))


def price_of(instance_type: str) -> float | None:
    """US dollars per hour of one instance, None when the catalogue has no price for it."""
    price = _catalogued(instance_type)
    return price.usd_per_hour if price else None


def price_now(observed: Observed) -> float | None:
    """US dollars per hour of the endpoints that exist, whatever their autoscaling has come to since."""
    running = {item.state["Running"] for item in observed.existing if item.kind == "Endpoint"}
    configs = [item for item in observed.existing if item.kind == "EndpointConfig" and item.name in running]
    return price_of_instances([instance for config in configs for instance in config.state["Instances"]])


def price_of_instances(instances: Sequence[tuple[str, int]]) -> float | None:
    """US dollars per hour of (type, number) pairs, None when one of them has no known price."""
    prices = [(price_of(instance_type), number) for instance_type, number in instances]
    return (
        None if any(price is None for price, _ in prices) else sum((price or 0.0) * number for price, number in prices)
    )


def price_text(recipe: Recipe) -> str:
    """The price in words: where it is from and how far to trust it, or why there is none and what helps."""
    if recipe.platform.capacity_reservation:
        return "? $/h: reserved capacity is paid for beforehand, at a price that no list has"
    unknown = [name for name in recipe.platform.instance_types if price_of(name) is None]
    ask = f": no price is known for {', '.join(unknown)}; `toolkit lock --prices` asks AWS" if unknown else ""
    now, most, first = price_per_hour(recipe), most_per_hour(recipe), _catalogued(recipe.platform.instance_types[0])
    if now is None or first is None:
        return f"? $/h{ask}"
    trust = "" if first.quality.startswith("good") else f"; {first.quality}"
    source = f"on demand in {first.region}, {first.date}{trust}"
    at_most = "" if most == now else ", at most unknown" if most is None else f", at most {most:.2f} $/h"
    return f"{now:.2f} $/h ({source}){at_most}{ask}"


def _catalogued(instance_type: str) -> lookup.Price | None:
    instance = lookup.instance(instance_type)
    return instance.price if instance else None


def _price(recipe: Recipe, instance_types: tuple[str, ...], instances: int) -> float | None:
    """Of the dearest of `instance_types`; each variant has instances of its own, a shadow too."""
    prices = [price_of(name) for name in instance_types]
    known = [price for price in prices if price is not None]
    if recipe.platform.capacity_reservation or len(known) < len(prices):
        return None
    shadows = 1 if recipe.speculation and recipe.rollout.shadow else 0
    return max(known) * instances * (len(variants(recipe)) + shadows)
