"""The cheapest number of instances with which simulated requests meet an SLO, and what a better head would save."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from toolkit.measure.break_even import BatchSizes
from toolkit.measure.queue import Engine, Request, Waited, simulate
from toolkit.measure.speeds import Curve, Quality, mean_acceptance, pace
from toolkit.recipe.schema import Slo

HOURS_PER_MONTH = 730
MOST_INSTANCES = 512
_WINDOW = 3600.0
_FEWEST_WINDOWS = 3


@dataclass(frozen=True)
class Option:
    """A way to serve: an instance type (empty: this machine) at one K, or at a K by the number of requests in a step.

    `curves` are its speeds up to each number of requests. `price` is that of one instance in US dollars per hour.
    """

    instance: str
    price: float | None
    curves: tuple[tuple[int, tuple[Curve, ...]], ...]
    max_requests: int
    max_tokens: int
    kv_tokens: int
    quality: Quality
    source: str
    most_instances: int = MOST_INSTANCES
    schedule: tuple[BatchSizes, ...] = ()

    @property
    def k(self) -> int:
        return max(curves[0].k for _, curves in self.curves)

    @property
    def acceptance(self) -> float:
        """The mean acceptance length of its workloads."""
        return mean_acceptance(self.curves[0][1])

    def engine(self, acceptance: float | None = None) -> Engine:
        paces = tuple((most, pace(curves, acceptance)) for most, curves in self.curves)
        return Engine(paces, self.max_requests, self.max_tokens, self.kv_tokens)


@dataclass(frozen=True)
class Scaling:
    """Instances that follow the traffic: `mean` of them, which the price is of."""

    min_instances: int
    max_instances: int
    mean: float


@dataclass(frozen=True)
class Choice:
    """An option with as many instances as it needs. Times are the 90th percentiles in seconds.

    `margin` is the least share of a limit that is left; below 0 the SLO is not met with any number of instances.
    `requests_per_instance` is what autoscaling aims at. Prices are in US dollars, None if unknown. `beyond` is the most
    requests in one step, where that is more than were measured at a time.
    """

    instance: str
    k: int
    instances: int
    price_per_hour: float | None
    price_per_month: float | None
    ttft: float
    tpot: float | None
    e2e: float
    margin: float
    requests_per_instance: int
    quality: Quality
    source: str
    acceptance_length: float
    schedule: tuple[BatchSizes, ...] = ()
    scaling: Scaling | None = None
    beyond: int = 0

    @property
    def met(self) -> bool:
        return self.margin >= 0


@dataclass(frozen=True)
class Worth:
    """What another acceptance length would save, in US dollars a month; `instances` as many as would then do."""

    acceptance_length: float
    of: str
    source: str
    instance: str
    instances: int
    margin: float
    saves_per_month: float | None


def choose(options: Iterable[Option], requests: Sequence[Request], slo: Slo, lag: float) -> tuple[Choice, ...]:
    """Every option with the instances it needs: those that meet the SLO first, the cheapest first."""
    return tuple(sorted((_choice(one, requests, slo, lag) for one in options), key=_order))


def _order(choice: Choice) -> tuple[bool, bool, float, float]:
    price = choice.price_per_month if choice.met else 0.0
    return not choice.met, price is None, price or 0.0, -choice.margin


def worth(
    choice: Choice,
    options: Sequence[Option],
    lengths: Iterable[tuple[float, str, str]],
    requests: Sequence[Request],
    slo: Slo,
    lag: float,
) -> list[Worth]:
    """What each acceptance length (with whose it is, and its source) would save over the choice, at its K."""
    drafting = [one for one in options if one.k == choice.k and not one.schedule]
    found = []
    for length, of, source in lengths:
        then = min((_choice(one, requests, slo, lag, length) for one in drafting), key=_order)
        before, after = choice.price_per_month, then.price_per_month
        saves = None if before is None or after is None else before - after
        found.append(Worth(length, of, source, then.instance, then.instances, then.margin, saves))
    return found


def _choice(
    option: Option, requests: Sequence[Request], slo: Slo, lag: float, acceptance: float | None = None
) -> Choice:
    engine = option.engine(acceptance)
    count, waited = _instances(engine, requests, slo, option.most_instances)
    margin = margin_of(waited, slo)
    scaling = _scaling(engine, requests, slo, lag, count) if margin >= 0 else None
    price = None if option.price is None else option.price * (scaling.mean if scaling else count)
    measured = min(max(one.tpot) for _, curves in option.curves for one in curves)
    return Choice(
        option.instance,
        option.k,
        count,
        price,
        None if price is None else price * HOURS_PER_MONTH,
        waited.ttft.p90,
        waited.tpot.p90 if waited.tpot else None,
        waited.e2e.p90,
        margin,
        max(1, math.ceil(waited.in_flight)),
        option.quality,
        option.source,
        acceptance or option.acceptance,
        option.schedule,
        scaling,
        waited.largest_step if waited.largest_step > measured else 0,
    )


def margin_of(waited: Waited, slo: Slo) -> float:
    """The least share of a limit that 90 % of the requests leave; below 0 one is not met."""
    times = ((waited.ttft, slo.ttft), (waited.tpot, slo.tpot), (waited.e2e, slo.e2e))
    return min((limit - time.p90) / limit for time, limit in times if limit and time)


def _instances(engine: Engine, requests: Sequence[Request], slo: Slo, most: int) -> tuple[int, Waited]:
    """The fewest instances that meet the SLO; else as many as were tried, more of which would not help."""

    def met(count: int) -> bool:
        tried[count] = simulate(requests, engine, [(0.0, count)])
        return margin_of(tried[count], slo) >= 0

    tried: dict[int, Waited] = {}
    enough, too_few = 1, 0
    while not met(enough):
        if tried[enough].largest_step == 1 or enough >= most:
            return enough, tried[enough]
        too_few, enough = enough, min(enough * 2, most)
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        enough, too_few = (middle, too_few) if met(middle) else (enough, middle)
    return enough, tried[enough]


def _scaling(engine: Engine, requests: Sequence[Request], slo: Slo, lag: float, most: int) -> Scaling | None:
    """Instances by the hour, if with them, each `lag` seconds late, the SLO is met all the same; None if not.

    An instance is there until its hour is over, and is asked for in the hour that needs it.
    """
    hours = max(_WINDOW, 2 * lag)
    windows: list[list[Request]] = [[] for _ in range(int(requests[-1].at // hours) + 1)]
    for request in requests:
        windows[int(request.at // hours)].append(request)
    if most == 1 or len(windows) < _FEWEST_WINDOWS:
        return None
    needs = [_instances(engine, one, slo, most)[0] if one else 1 for one in windows]
    steps = [(0.0, needs[0])]
    for number, (before, now) in enumerate(pairwise(needs), 1):
        if now != before:
            steps.append((number * hours + lag, now))
    mean = fmean(max(pair) for pair in zip(needs, (needs[0], *needs), strict=False))
    if mean >= most or margin_of(simulate(requests, engine, steps), slo) < 0:
        return None
    return Scaling(min(needs), max(needs), mean)
