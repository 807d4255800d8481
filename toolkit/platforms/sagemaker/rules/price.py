"""The price of a recipe on SageMaker, from the catalogue: on-demand, in US dollars, with date and region.

An unknown price is None, never 0: that of a type without a price in the catalogue, and of reserved capacity, which is
in no price list. A price is that of the recipe's region; where it is not known, of another one, which is named.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.catalog import lookup
from toolkit.planning.resources import Observed
from toolkit.platforms.sagemaker.keys import aws, aws_rollout
from toolkit.platforms.sagemaker.rules.arms import candidates, instances, variants
from toolkit.recipe.recipe import Recipe

# Public figures are read from lists that lack the newest types.
_WHERE = "update prices with `toolkit catalog update`, or see https://aws.amazon.com/sagemaker/ai/pricing"


def price_per_hour(recipe: Recipe) -> float | None:
    """US dollars per hour of the recipe's endpoint at first: first instance type, minimum number of instances."""
    return _price(recipe, recipe.platform.types[:1], instances(recipe))


def most_per_hour(recipe: Recipe) -> float | None:
    """Maximum US dollars per hour: the most expensive instance type, the maximum of autoscaling."""
    return _price(recipe, recipe.platform.types, max(1, recipe.scaling.max_instances))


def price_of(instance_type: str, region: str | None = None) -> float | None:
    """US dollars per hour of one instance, None if the catalogue has no price."""
    price = _find_price(instance_type, region)
    return price.usd_per_hour if price else None


def price_now(observed: Observed, region: str | None = None) -> float | None:
    """US dollars per hour of the existing endpoints, without changes by autoscaling."""
    running = {item.state["Running"] for item in observed.existing if item.kind == "Endpoint"}
    configs = [item for item in observed.existing if item.kind == "EndpointConfig" and item.name in running]
    return price_of_instances([instance for config in configs for instance in config.state["Instances"]], region)


def price_of_instances(instances: Sequence[tuple[str, int]], region: str | None = None) -> float | None:
    """US dollars per hour of (type, number) pairs, None if one of the prices is unknown."""
    prices = [(price_of(instance_type, region), number) for instance_type, number in instances]
    return (
        None if any(price is None for price, _ in prices) else sum((price or 0.0) * number for price, number in prices)
    )


def price_text(recipe: Recipe) -> str:
    """The price as a phrase, with its source and reliability, or why it is unknown and what to do."""
    if aws(recipe).capacity_reservation:
        return "? $/h: reserved capacity is paid in advance, at a price that is not public"
    known = tuple(name for name in recipe.platform.types if price_of(name, recipe.region) is not None)
    unknown = [name for name in recipe.platform.types if name not in known]
    ask = f": no known price for {', '.join(unknown)}; {_WHERE}" if unknown else ""
    now = price_per_hour(recipe)
    most = _price(recipe, known, max(1, recipe.scaling.max_instances)) if known else None
    first = _find_price(recipe.platform.types[0], recipe.region)
    if now is None or first is None:
        return f"? $/h{ask}"
    trust = "" if first.quality.startswith("good") else f"; {first.quality}"
    source = f"on demand in {first.region}, {first.date}{trust}"
    without = " on the types of known price" if unknown else ""
    at_most = "" if most is None or (most == now and not unknown) else f", at most {most:.2f} $/h{without}"
    return f"{now:.2f} $/h ({source}){at_most}{ask}"


def _find_price(instance_type: str, region: str | None) -> lookup.Price | None:
    instance = lookup.instance(instance_type)
    return instance.price(region) if instance else None


def _price(recipe: Recipe, instance_types: tuple[str, ...], count: int) -> float | None:
    """The price with the most expensive of `instance_types`. Each variant has its own instances, including a shadow."""
    prices = [price_of(name, recipe.region) for name in instance_types]
    known = [price for price in prices if price is not None]
    if aws(recipe).capacity_reservation or len(known) < len(prices):
        return None
    shadows = 1 if recipe.speculation and aws_rollout(recipe).shadow else 0
    return max(known) * (count * (len(variants(recipe)) + shadows) + len(candidates(recipe)))
