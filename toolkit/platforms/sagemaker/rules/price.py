"""The price of a recipe on SageMaker, from the catalogue: on-demand, in US dollars, with date and region.

An unknown price is None, never 0: that of a type without a price in the catalogue, and of reserved capacity, which is
in no price list. A price is that of the recipe's region; where it is not known, of another one, which is named. All are
list prices but for what `price_text` says: a recipe's discount comes off them in `Recipe.price_per_hour`. With it,
reserved capacity has a price: so much less than the list's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from toolkit.catalog import lookup
from toolkit.platforms.sagemaker.keys import aws, aws_rollout
from toolkit.platforms.sagemaker.rules.arms import candidates, instances, variants
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.planning.resources import Observed

_PAGE = "https://aws.amazon.com/sagemaker/ai/pricing"
RESERVED = (
    "? $/h: reserved capacity is paid in advance, at the price of its offer (UpfrontFee of `aws sagemaker "
    "describe-training-plan`, see https://docs.aws.amazon.com/sagemaker/latest/dg/reserve-capacity-with-training-plans"
    ".html); to see it here, give its difference from the price on demand: --discount PERCENT"
)


def price_per_hour(recipe: Recipe) -> float | None:
    """US dollars per hour of the recipe's endpoint at first: first instance type, minimum number of instances."""
    return _price(recipe, recipe.platform.types[:1], instances(recipe))


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
    """The price as a phrase, with its source and reliability, or why it is unknown and what to do.

    It may cost as much as the most expensive of its types does, at the most instances of its autoscaling.
    """
    if _has_no_list_price(recipe):
        return RESERVED
    known = tuple(name for name in recipe.platform.types if price_of(name, recipe.region) is not None)
    unknown = [name for name in recipe.platform.types if name not in known]
    ask = f": {why_unknown(unknown, recipe.region)}" if unknown else ""
    now = price_per_hour(recipe)
    most = recipe.discounted(_price(recipe, known, max(1, recipe.scaling.max_instances))) if known else None
    first = _find_price(recipe.platform.types[0], recipe.region)
    if now is None or first is None:
        return f"? $/h{ask}"
    trust = "" if first.quality.startswith("good") else f"; {first.quality}"
    source = f"on demand in {first.region}, {first.date}{trust}"
    if recipe.discount_percent:
        source = f"with your discount of {recipe.discount_percent:g} % on {now:.2f} $/h {source}"
        now *= 1 - recipe.discount_percent / 100
    without = " on the types of known price" if unknown else ""
    at_most = "" if most is None or (most == now and not unknown) else f", at most {most:.2f} $/h{without}"
    return f"{now:.2f} $/h ({source}){at_most}{ask}"


def why_unknown(names: Sequence[str], region: str | None) -> str:
    """Why the catalogue has no price of these types, what is known of them, and where to look."""
    reasons: dict[str, list[str]] = {}
    for name in names:
        instance = lookup.instance(name)
        why = instance.no_price if instance else None
        said = f"{why.reason}; see {why.address}" if why else f"the catalogue has none; see {_PAGE}"
        reasons.setdefault(said, []).append(name)
    said = "; ".join(f"no price of {', '.join(names)}: {reason}" for reason, names in reasons.items())
    update = f"toolkit catalog update --region {region}" if region else "toolkit catalog update"
    return f"{said}, or read AWS's price list: `{update}`{_of_ec2(names)}"


def _of_ec2(names: Sequence[str]) -> str:
    """What the same machines cost without SageMaker, as a clause; empty if that is not known."""
    found = [(name, one.ec2_prices[0]) for name in names if (one := lookup.instance(name)) and one.ec2_prices]
    if not found:
        return ""
    each = ", ".join(f"{name.removeprefix('ml.')} {price.usd_per_hour:.2f} $/h" for name, price in found)
    least, most = _times_ec2()
    where = f"{found[0][1].region}, {found[0][1].date}"
    return f". EC2 asks for {each} ({where}), and SageMaker {least:.2f} to {most:.2f} times EC2's price elsewhere"


@cache
def _times_ec2() -> tuple[float, float]:
    """SageMaker's price of a type by EC2's of the same machine: the least and the most, where both are known.

    Of two regions that cost the same, because few prices are known of both in one.
    """
    ratios = [
        hosting.usd_per_hour / ec2.usd_per_hour
        for one in lookup.instances()
        for hosting in one.prices
        for ec2 in one.ec2_prices
        if {hosting.region, ec2.region} <= {"us-east-1", "us-west-2"}
    ]
    return min(ratios), max(ratios)


def _has_no_list_price(recipe: Recipe) -> bool:
    return bool(aws(recipe).capacity_reservation) and not recipe.discount_percent


def _find_price(instance_type: str, region: str | None) -> lookup.Price | None:
    instance = lookup.instance(instance_type)
    return instance.price(region) if instance else None


def _price(recipe: Recipe, instance_types: tuple[str, ...], count: int) -> float | None:
    """The price with the most expensive of `instance_types`. Each variant has its own instances, including a shadow."""
    prices = [price_of(name, recipe.region) for name in instance_types]
    known = [price for price in prices if price is not None]
    if _has_no_list_price(recipe) or len(known) < len(prices):
        return None
    shadows = 1 if recipe.speculation and aws_rollout(recipe).shadow else 0
    return max(known) * (count * (len(variants(recipe)) + shadows) + len(candidates(recipe)))
