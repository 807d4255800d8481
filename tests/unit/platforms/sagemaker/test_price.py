"""What a recipe costs: instances times the catalogue's prices, and no number where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pairs import recipe_with, write_hub_pair

from toolkit.catalog import lookup
from toolkit.loading import load
from toolkit.planning.resources import Existing, Observed
from toolkit.platforms.sagemaker.keys import AwsRollout
from toolkit.platforms.sagemaker.rules.price import (
    price_now,
    price_of,
    price_per_hour,
    price_text,
)
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ScalingSection
from toolkit.registry import rules_of

CHEAP, DEAR = "ml.g6e.2xlarge", "ml.g6e.12xlarge"
UNPRICED = next(item.name for item in lookup.instances() if not item.prices)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return recipe_with(load(write_hub_pair(tmp_path)), instance_types=(CHEAP,))


def usd(instance_type: str) -> float:
    price = price_of(instance_type)
    assert price is not None
    return price


def test_one_instance(recipe: Recipe) -> None:
    assert price_per_hour(recipe) == usd(CHEAP)
    assert "at most" not in price_text(recipe)


def test_the_local_platform_costs_nothing(recipe: Recipe) -> None:
    here = recipe_with(recipe, platform="local")
    assert rules_of("local").facts.price_per_hour(here) == 0
    assert rules_of("local").parts.price_text(here) == "0.00 $/h"


def test_autoscaling_starts_at_the_fewest_and_may_cost_the_most(recipe: Recipe) -> None:
    scaled = replace(recipe, scaling=ScalingSection(min_instances=2, max_instances=5))
    assert price_per_hour(scaled) == 2 * usd(CHEAP)
    assert price_text(scaled).endswith(f"), at most {5 * usd(CHEAP):.2f} $/h")


def test_an_endpoint_that_scales_to_zero_costs_one_instance_while_it_serves(recipe: Recipe) -> None:
    idle = replace(recipe, scaling=ScalingSection(min_instances=0, max_instances=1))
    assert price_per_hour(idle) == usd(CHEAP)


def test_of_several_types_the_first_is_expected_and_the_dearest_possible(recipe: Recipe) -> None:
    pools = recipe_with(recipe, instance_types=(CHEAP, DEAR))
    assert price_per_hour(pools) == usd(CHEAP)
    assert price_text(pools).endswith(f"), at most {usd(DEAR):.2f} $/h")


def test_what_runs_costs_as_much_as_all_its_instances() -> None:
    """A configuration that no endpoint runs costs nothing."""
    running = Existing("EndpointConfig", "hub-2", True, ("hub",), {"Instances": [(CHEAP, 3), (DEAR, 1)]})
    old = Existing("EndpointConfig", "hub-1", True, ("hub",), {"Instances": [(DEAR, 5)]})
    endpoint = Existing("Endpoint", "hub", True, ("hub",), {"Running": "hub-2"})
    assert price_now(Observed((endpoint, old, running))) == pytest.approx(3 * usd(CHEAP) + usd(DEAR))


@pytest.mark.parametrize("rollout", [AwsRollout(shadow=True), AwsRollout(speculative_percent=50)])
def test_a_second_variant_has_instances_of_its_own(recipe: Recipe, rollout: AwsRollout) -> None:
    assert price_per_hour(replace(recipe, rollout=rollout)) == 2 * usd(CHEAP)


def test_a_baseline_has_no_second_variant(recipe: Recipe) -> None:
    assert price_per_hour(replace(recipe, rollout=AwsRollout(shadow=True)).baseline()) == usd(CHEAP)


@pytest.mark.parametrize("name", [UNPRICED, "ml.nosuch.large"])
def test_a_type_without_a_price_makes_the_price_unknown(recipe: Recipe, name: str) -> None:
    assert price_per_hour(recipe_with(recipe, instance_types=(name,))) is None
    assert price_per_hour(recipe_with(recipe, instance_types=(CHEAP, name))) == usd(CHEAP)


def test_a_reservation_stands_in_no_price_list(recipe: Recipe) -> None:
    reserved = recipe_with(recipe, capacity_reservation="arn:aws:sagemaker:us-west-2:123456789012:training-plan/x")
    assert price_per_hour(reserved) is None
    assert "UpfrontFee" in price_text(reserved)
    assert "https://docs.aws.amazon.com/sagemaker/latest/dg/reserve-capacity-with-training-plans.html" in price_text(
        reserved
    )
    assert "--discount PERCENT" in price_text(reserved)
    assert replace(reserved, discount_percent=40).price_per_hour == pytest.approx(0.6 * usd(CHEAP))


def test_a_discount_comes_off_the_list_price_and_is_named(recipe: Recipe) -> None:
    less = replace(recipe_with(recipe, instance_types=(CHEAP, DEAR)), discount_percent=20)
    assert less.price_per_hour == pytest.approx(0.8 * usd(CHEAP))
    text = price_text(less)
    assert text.startswith(f"{0.8 * usd(CHEAP):.2f} $/h (with your discount of 20 % on {usd(CHEAP):.2f} $/h on demand")
    assert text.endswith(f"), at most {0.8 * usd(DEAR):.2f} $/h")


def test_words_say_region_date_and_the_most(recipe: Recipe) -> None:
    instance = lookup.instance(CHEAP)
    assert instance
    price = instance.price()
    assert price
    source = f"on demand in {price.region}, {price.date}"
    assert price_text(recipe) == f"{usd(CHEAP):.2f} $/h ({source})"
    pools = recipe_with(recipe, instance_types=(CHEAP, DEAR))
    assert price_text(pools) == f"{usd(CHEAP):.2f} $/h ({source}), at most {usd(DEAR):.2f} $/h"


def test_words_say_which_price_is_missing_and_what_helps(recipe: Recipe) -> None:
    ask = (
        f": no price of {UNPRICED}: no public copy of AWS's price list that was found has it (2026-11-26); see "
        "https://aws.amazon.com/sagemaker/ai/pricing, or read AWS's price list: `toolkit catalog update"
    )
    assert price_text(recipe_with(recipe, instance_types=(UNPRICED,))).startswith(f"? $/h{ask}")
    assert f", at most {usd(CHEAP):.2f} $/h on the types of known price{ask}" in price_text(
        recipe_with(recipe, instance_types=(CHEAP, UNPRICED))
    )


@pytest.mark.parametrize("item", [item for item in lookup.instances() if item.hostable], ids=lambda item: item.name)
def test_every_type_that_may_host_has_a_price_or_says_why_not_and_where_to_look(
    recipe: Recipe, item: lookup.Instance
) -> None:
    text = price_text(recipe_with(recipe, instance_types=(item.name,)))
    assert text.startswith("? $/h") == (not item.prices)
    assert item.prices or f"no price of {item.name}: " in text
    assert item.prices or "; see https://" in text


def test_what_ec2_asks_for_the_same_machine_is_said_where_sagemakers_own_price_is_not_known(recipe: Recipe) -> None:
    text = price_text(recipe_with(recipe, instance_types=("ml.p6-b200.48xlarge",)))
    assert text.endswith(
        "EC2 asks for p6-b200.48xlarge 113.93 $/h (us-east-1, 2026-07-28), and SageMaker 1.15 to 1.40 times EC2's "
        "price elsewhere"
    )


def test_types_that_aws_sells_as_reserved_capacity_alone_say_so(recipe: Recipe) -> None:
    assert "it is sold as reserved capacity" in price_text(recipe_with(recipe, instance_types=("ml.trn2.48xlarge",)))


def test_words_say_when_a_price_is_not_sure(recipe: Recipe) -> None:
    assert price_text(recipe_with(recipe, instance_types=("ml.p5e.48xlarge",))).endswith(
        "; rounded: an author's figure)"
    )
