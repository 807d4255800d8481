"""Which of a few toy instances is chosen, where the answer is plain."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from measured_speeds import length, report

from toolkit.measure.advise import MOST_INSTANCES, Choice, Demand, Option
from toolkit.measure.queue import Request, most_served
from toolkit.measure.speeds import curves_at, read_speeds
from toolkit.measure.trace import at_rate
from toolkit.recipe.schema import Slo

LOOSE, TIGHT = Slo(tpot=0.03), Slo(tpot=0.009)
LAG = 900.0


def option(name: str, price: float | None, k: int = 7, slower: float = 1.0) -> Option:
    (found,), _ = read_speeds([("r", report(name, slower=slower))], "p-eagle", {})
    quality, curves = curves_at(found, k)
    return Option(name, price, ((64, tuple(curves)),), 64, 8192, 10**6, quality, "r")


SMALL, LARGE = option("small", 1.0, slower=3.0), option("large", 6.0)


def best(slo: Slo, rate: float, *options: Option) -> Choice:
    return Demand(at_rate(rate, 800, 200), slo, LAG).choose(options)[0]


def test_the_cheap_one_is_taken_where_it_is_fast_enough_and_the_dear_one_where_it_is_not() -> None:
    assert best(LOOSE, 1.0, LARGE, SMALL).instance == "small"
    tight = best(TIGHT, 1.0, LARGE, SMALL)
    assert (tight.instance, tight.instances, tight.met) == ("large", 1, True)
    assert tight.margin == pytest.approx(1 - (tight.tpot or 0) / 0.009)
    assert tight.price_per_month == pytest.approx(6.0 * 730)


def test_drafting_is_taken_where_it_needs_fewer_instances() -> None:
    without = option("large", 6.0, k=0)
    chosen = Demand(at_rate(12.0, 800, 200), Slo(tpot=0.012), LAG).choose([without, LARGE])
    assert [one.k for one in chosen] == [7, 0]
    assert chosen[0].instances < chosen[1].instances or not chosen[1].met


def test_what_has_no_price_comes_after_what_has_one_and_before_what_is_too_slow() -> None:
    unknown, slow = option("unknown", None), option("slow", 0.1, slower=9.0)
    chosen = Demand(at_rate(1.0, 800, 200), TIGHT, LAG).choose([slow, unknown, LARGE])
    assert [one.instance for one in chosen] == ["large", "unknown", "slow"]


def test_more_traffic_needs_more_instances() -> None:
    needed = [best(LOOSE, rate, LARGE).instances for rate in (1.0, 10.0, 40.0)]
    assert needed == sorted(needed)
    assert needed[0] == 1
    assert needed[-1] > 1


def test_one_instance_less_would_not_do() -> None:
    demand = Demand(at_rate(40.0, 800, 200), TIGHT, LAG)
    count = demand.choice(LARGE).instances
    fewer = replace(LARGE, most_instances=count - 1)
    assert count > 1
    assert not demand.choice(fewer).met


def test_instances_serve_as_many_requests_as_come_even_where_only_tokens_are_limited() -> None:
    """64 at a time have quick tokens however many wait: what is served in a second does not grow with these."""
    rate, loose = 40.0, Slo(tpot=0.1)
    chosen = best(loose, rate, LARGE)
    assert chosen.met
    served = chosen.instances * most_served([Request(0, 800, 200)], LARGE.engine())
    assert rate * 0.97 < served < rate * 1.5  # by chance a few less come
    alone = best(loose, rate, replace(LARGE, most_instances=1))
    assert alone.tpot
    assert alone.tpot < 0.1
    assert alone.margin == pytest.approx(1 - rate * chosen.instances / served, rel=0.03)


def test_what_nothing_meets_is_found_without_trying_hundreds() -> None:
    chosen = best(Slo(tpot=0.0001), 5.0, LARGE)
    assert not chosen.met
    assert chosen.margin < -1
    assert chosen.instances < MOST_INSTANCES
    assert chosen.scaling is None


def test_where_requests_come_in_one_at_a_time_more_instances_shorten_the_wait() -> None:
    demand = Demand(at_rate(5.0, 800, 200), Slo(ttft=0.2), LAG)
    choices = [demand.choice(replace(LARGE, **limit)) for limit in ({"max_requests": 1}, {"kv_tokens": 1500})]
    assert all(one.met and 1 < one.instances < 20 for one in choices)


def test_a_better_head_saves_what_the_instances_cost_that_it_spares() -> None:
    demand = Demand(at_rate(40.0, 800, 200), TIGHT, LAG)
    now = demand.choice(LARGE)
    much, little = demand.worth(now, now, [LARGE], [(6.0, "a head", "card"), (length(7) + 0.01, "another", "card")])
    assert much.instances < now.instances
    assert much.saves_per_month == pytest.approx((now.instances - much.instances) * 6.0 * 730)
    assert little.saves_per_month == 0


def test_a_better_head_saves_nothing_that_is_known_where_it_misses_the_slo() -> None:
    demand = Demand(at_rate(1.0, 800, 200), Slo(tpot=0.012), LAG)
    best, slow = option("large", 6.0, k=0), option("slow", 1.0, slower=15.0)
    (worth,) = demand.worth(demand.choice(best), demand.choice(slow), [slow], [(4.5, "a head", "card")])
    assert worth.margin < 0
    assert worth.saves_per_month is None


def day(rates: list[float]) -> tuple[Request, ...]:
    """An hour of Poisson traffic at each rate."""
    pauses, found = random.Random(3), []
    for hour, rate in enumerate(rates):
        now = hour * 3600.0
        while (now := now + pauses.expovariate(rate)) < (hour + 1) * 3600.0:
            found.append(Request(now, 800, 200))
    return tuple(found)


SLOW, A_DAY = option("slow", 1.0, slower=15.0), [0.05, 0.05, 0.05, 0.8, 0.05, 0.05]


def test_instances_follow_a_day_and_are_paid_as_long_as_they_are_there() -> None:
    chosen = Demand(day(A_DAY), Slo(tpot=0.1), 60.0).choice(SLOW)
    assert chosen.met
    assert chosen.scaling
    assert (chosen.scaling.min_instances, chosen.scaling.max_instances) == (1, chosen.instances)
    # In the hour of the rise, and the one behind it.
    assert chosen.scaling.mean == pytest.approx((4 + 2 * chosen.instances) / 6)
    assert chosen.price_per_hour == pytest.approx(chosen.scaling.mean)


def test_one_instance_is_not_followed_by_the_hour_however_many_these_are() -> None:
    far_apart = Request(0.0, 800, 200), Request(1e15, 800, 200)
    chosen = Demand(far_apart, LOOSE, 60.0).choice(LARGE)
    assert (chosen.instances, chosen.scaling) == (1, None)


def test_where_a_rise_would_break_the_slo_all_instances_stay() -> None:
    """Most requests come in the hour of the rise, and an instance that takes half of it is there too late."""
    chosen = Demand(day(A_DAY), Slo(tpot=0.1), 1800.0).choice(SLOW)
    assert chosen.met
    assert chosen.instances > 1
    assert chosen.scaling is None
