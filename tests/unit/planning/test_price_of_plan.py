"""What a plan says that it costs, beside what runs now, and whether that is more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolkit.planning.plan import Action, Plan

DEPLOYS = (Action("Endpoint", "tiny", "create", "does not exist", {}),)
PLAN = Plan("recipe.yaml", "sagemaker", ("tiny",), DEPLOYS, price_per_hour=1.13, fingerprint="")
UNKNOWN = "no price, and a note on why"


@pytest.mark.parametrize(
    ("before", "after", "cost", "costs_more"),
    [
        (0.0, 1.13, "1.13 $/h while running", True),
        (1.13, 1.13, "1.13 $/h while running", False),
        (2.26, 1.13, "1.13 $/h while running, 1.13 less than now", False),
        (1.13, 2.26, "2.26 $/h while running, 1.13 more than now", True),
        (None, 1.13, "1.13 $/h while running", True),
        (0.0, None, UNKNOWN, True),
        (1.13, None, UNKNOWN, True),
        (None, None, UNKNOWN, False),  # nodes of a cluster are billed whether pods run on them or not
        (0.0, 0.0, "0.00 $/h while running", False),
    ],
)
def test_what_is_billed_beside_what_runs_now(
    before: float | None, after: float | None, cost: str, costs_more: bool
) -> None:
    plan = replace(PLAN, price_before=before, price_per_hour=after)
    assert (plan.cost, plan.costs_more) == (cost, costs_more)
    assert not replace(plan, actions=()).costs_more


def test_a_discount_is_named_beside_the_price() -> None:
    assert replace(PLAN, discount_percent=12.5).cost == "1.13 $/h while running with your discount of 12.5 %"
