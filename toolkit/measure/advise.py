"""The cheapest number of instances with which simulated requests meet an SLO, and what a better head would save."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from toolkit.measure.break_even import BatchSizes
from toolkit.measure.queue import Engine, Request, Waited, most_served, simulate
from toolkit.measure.speeds import Curve, Quality, mean_acceptance, pace
from toolkit.recipe.schema import Slo

HOURS_PER_MONTH = 730
MOST_INSTANCES = 512
_WINDOW, _FEWEST_WINDOWS = 3600.0, 3
_LEAST_SECONDS = 60.0  # requests that come at once are no rate


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

    `margin` is the least share left of a limit, or of what can be served; below 0 no number of instances meets the SLO.
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
    """What another acceptance length would save, in US dollars a month; `instances` as many as would then do.

    `saves_per_month` is None where a price is unknown, and where nothing meets the SLO now, or then.
    """

    before: float
    acceptance_length: float
    of: str
    source: str
    instance: str
    instances: int
    margin: float
    saves_per_month: float | None


@dataclass(frozen=True)
class Demand:
    """Requests, in their order, the SLO that they must meet, and the seconds until a further instance serves.

    Without these (`lag` None) all instances are always on: a rate that stays the same has nothing to follow but chance.
    """

    requests: Sequence[Request]
    slo: Slo
    lag: float | None

    @cached_property
    def _known(self) -> dict[tuple[Engine, int], tuple[int, Waited, float, Scaling | None]]:
        return {}

    def choose(self, options: Iterable[Option]) -> tuple[Choice, ...]:
        """Every option with the instances it needs: those that meet the SLO first, the cheapest first."""
        return tuple(sorted(map(self.choice, options), key=_order))

    def worth(
        self, best: Choice, now: Choice, options: Iterable[Option], lengths: Iterable[tuple[float, str, str]]
    ) -> tuple[Worth, ...]:
        """What each acceptance length (with whose it is, and its source) would save over the best, at the K of now."""
        drafting = [one for one in options if one.k == now.k and not one.schedule]
        found = []
        for length, of, source in lengths:
            then = min((self.choice(one, length) for one in drafting), key=_order)
            old, new = best.price_per_month, then.price_per_month
            saves = max(old - new, 0.0) if best.met and then.met and old is not None and new is not None else None
            what = now.acceptance_length, length, of, source
            found.append(Worth(*what, then.instance, then.instances, then.margin, saves))
        return tuple(found)

    def choice(self, option: Option, acceptance: float | None = None) -> Choice:
        """An option with as many instances as it needs; as if its acceptance length were another one."""
        key = option.engine(acceptance), option.most_instances
        if key not in self._known:  # types that differ in their price alone are simulated once
            count, waited, margin = _instances(*key, self.requests, self.slo)
            self._known[key] = count, waited, margin, self._scaling(key[0], count) if margin >= 0 else None
        count, waited, margin, scaling = self._known[key]
        there = scaling.mean if scaling else count
        price = None if option.price is None else option.price * there
        measured = min(one.steps[-1][0] for _, one in key[0].paces)
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
            max(1, math.ceil(waited.in_flight * count / there)),
            option.quality,
            option.source,
            acceptance or option.acceptance,
            option.schedule,
            scaling,
            waited.largest_step if waited.largest_step > measured else 0,
        )

    def _scaling(self, engine: Engine, most: int) -> Scaling | None:
        """Instances by the hour, if with them, each `lag` seconds late, the SLO is met all the same; None if not.

        An instance is asked for in the hour that needs it, and stays for one more.
        """
        if self.lag is None or most == 1:
            return None
        hour = max(_WINDOW, 2 * self.lag)
        count = self.requests[-1].at // hour + 1
        if count < _FEWEST_WINDOWS:
            return None
        hours: list[list[Request]] = [[] for _ in range(int(count))]
        for request in self.requests:
            hours[int(request.at // hour)].append(request)
        needs = [_instances(engine, most, one, self.slo)[0] if one else 1 for one in hours]
        there = [max(pair) for pair in zip(needs, (needs[0], *needs), strict=False)]
        steps = [(0.0, there[0]), *((i * hour + self.lag, count) for i, count in enumerate(there[1:], 1))]
        if fmean(there) >= most or margin_of(simulate(self.requests, engine, steps), self.slo) < 0:
            return None
        return Scaling(min(there), max(there), fmean(there))


def _order(choice: Choice) -> tuple[bool, bool, float, float]:
    price = choice.price_per_month if choice.met else 0.0
    return not choice.met, price is None, price or 0.0, -choice.margin


def margin_of(waited: Waited, slo: Slo) -> float:
    """The least share of a limit that 90 % of the requests leave; below 0 one is not met."""
    times = ((waited.ttft, slo.ttft), (waited.tpot, slo.tpot), (waited.e2e, slo.e2e))
    return min(((limit - time.p90) / limit for time, limit in times if limit and time), default=1.0)


def _instances(engine: Engine, most: int, requests: Sequence[Request], slo: Slo) -> tuple[int, Waited, float]:
    """The fewest instances that meet the SLO, and its margin; else as many as were tried, more of which do not help."""
    # they also serve as many requests per second as come, else the queue grows beyond what is simulated
    seconds = max(requests[-1].at - requests[0].at, _LEAST_SECONDS)
    needed = len(requests) / seconds / most_served(requests, engine)

    def met(count: int) -> bool:
        waited = simulate(requests, engine, [(0.0, count)])
        tried[count] = count, waited, min(margin_of(waited, slo), 1 - needed / count)
        return tried[count][-1] >= 0

    tried: dict[int, tuple[int, Waited, float]] = {}
    enough = min(max(1, math.ceil(needed)), most)
    too_few = enough - 1
    while not met(enough):
        if tried[enough][1].most_in_flight == 1 or enough >= most:
            return tried[enough]
        too_few, enough = enough, min(enough * 2, most)
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        enough, too_few = (middle, too_few) if met(middle) else (enough, middle)
    return tried[enough]
