"""From results to the figures of a report: one row for each arm, workload and load, and the speedups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

from toolkit.endpoint.generation import Acceptance
from toolkit.measure.arm import Arm
from toolkit.measure.design import LeftOut
from toolkit.measure.measurement import ArmReport, ArmSpeedup, Gain, Interval, Speedup
from toolkit.measure.pays import verdict_pays
from toolkit.measure.replay import by_block, seconds_of, without_beginnings
from toolkit.measure.result import RequestResult, successful
from toolkit.measure.run import again
from toolkit.measure.statistics import (
    BlockNoise,
    Pair,
    acceptance_length,
    acceptance_ratio,
    block_noise,
    busy_seconds,
    decoding_pairs,
    pairs_of,
    percentiles,
    pool,
    speedup,
    steady_seconds,
)
from toolkit.recipe.schema import Slo

_SECONDS_PER_HOUR = 3600


def is_met(slo: Slo, result: RequestResult) -> bool:
    """Whether a successful answer came within all limits."""
    times = ((result.ttft, slo.ttft), (result.tpot, slo.tpot), (result.seconds, slo.e2e))
    return all(limit is None or time is None or time <= limit for time, limit in times)


@dataclass(frozen=True)
class Point:
    """Where an arm was measured: a workload under a load."""

    workload: str
    load: float
    open_loop: bool = False

    @property
    def concurrency(self) -> int | None:
        """The number of concurrent requests; None in an open loop."""
        return None if self.open_loop else round(self.load)

    @property
    def rate(self) -> float | None:
        """Requests per second of an open loop."""
        return self.load if self.open_loop else None


_Blocks = Mapping[bool, BlockNoise]
"""How far blocks stray: those of open loops (True), and the others."""


@dataclass(frozen=True)
class Summary:
    arms: tuple[ArmReport, ...]
    speedups: tuple[Speedup, ...] = ()
    noise: Interval | None = None
    gains: tuple[Gain, ...] = ()
    between_arms: tuple[ArmSpeedup, ...] = ()
    blocks: _Blocks = field(default_factory=lambda: {False: BlockNoise(), True: BlockNoise()})


_Pairs = Mapping[tuple[Point, str], Sequence[Pair]]


def by_point(results: Iterable[RequestResult]) -> dict[Point, list[RequestResult]]:
    """Results by where they were measured, in the order of the measurement."""
    found: dict[Point, list[RequestResult]] = {}
    for item in results:
        found.setdefault(Point(item.workload, item.load, item.open_loop), []).append(item)
    return found


def summarise(
    results: Iterable[RequestResult],
    arms: Sequence[Arm],
    baseline: Arm | None = None,
    slos: Mapping[str, Slo] | None = None,
    left_out: Mapping[LeftOut, int] | None = None,
    stretches: Mapping[int | None, float] | None = None,
) -> Summary:
    """The figures of all arms. `slos` are limits by workload; goodput is known where there is one.

    `left_out` are the answers that are not among the results: they count as requests, and figures are those of the
    others. `stretches` are how long a trace's requests came in each block. A point without at least two pairs of
    answers has no speedup.
    """
    points, limits, others = by_point(results), slos or {}, left_out or {}
    rows = tuple(
        row(
            point,
            arm,
            [item for item in results_there if item.arm == arm.name],
            limits.get(point.workload),
            others.get((point.workload, point.load, point.open_loop, arm.name), 0),
            stretches,
        )
        for point, results_there in points.items()
        for arm in (*filter(None, [baseline]), *arms)
    )
    between = tuple(_between_arms(points, arms))
    if baseline is None:
        return Summary(rows, between_arms=between)
    itself = again(baseline.name)
    pairs = {
        (point, arm.name): pairs_of(there, arm.name, baseline.name) for point, there in points.items() for arm in arms
    }
    blocks = _pooled(pairs, len(arms))
    again_pairs = [pairs_of(there, itself, baseline.name) for there in points.values()]
    noise = speedup([pair for there in again_pairs for pair in there], noise=pool(map(block_noise, again_pairs)))
    gains = tuple(_gains(points, arms, baseline.name))
    speedups = tuple(_speedups(pairs, points, arms, blocks, noise))
    return Summary(rows, speedups, noise, gains, between, blocks)


def _pooled(pairs: _Pairs, arms: int) -> _Blocks:
    return {
        kind: pool((block_noise(there) for (point, _), there in pairs.items() if point.open_loop is kind), arms)
        for kind in (False, True)
    }


def _between_arms(points: Mapping[Point, Sequence[RequestResult]], arms: Sequence[Arm]) -> Iterator[ArmSpeedup]:
    pairs = {
        (point, other.name): pairs_of(there, arms[0].name, other.name)
        for point, there in points.items()
        for other in arms[1:]
    }
    noise = _pooled(pairs, len(arms) - 1)
    for point in points:
        for other in arms[1:]:
            if ratio := speedup(pairs[point, other.name], noise=noise[point.open_loop]):
                at = point.workload, point.concurrency, arms[0].name, other.name
                yield ArmSpeedup(*at, ratio.ratio, ratio.low, ratio.high, point.rate)


def _gains(points: Mapping[Point, Sequence[RequestResult]], arms: Sequence[Arm], baseline: str) -> Iterator[Gain]:
    looks = len(points) * len(arms)
    pairs = {
        (point, arm.name): decoding_pairs(there, arm.name, baseline) for point, there in points.items() for arm in arms
    }
    noise = _pooled(pairs, len(arms))
    for point, there in points.items():
        for arm in arms:
            faster = speedup(pairs[point, arm.name], looks, noise[point.open_loop])
            accepted = acceptance_ratio(there, arm.name, baseline, looks)
            if faster and accepted:
                yield Gain(point.workload, point.concurrency, arm.name, faster, accepted, point.rate)


def _speedups(
    pairs: _Pairs, points: Iterable[Point], arms: Sequence[Arm], blocks: _Blocks, noise: Interval | None
) -> Iterator[Speedup]:
    points = list(points)
    loads = Counter(point.workload for point in points)
    for point in points:
        for arm in arms:
            mine = pairs[point, arm.name]
            ratio = speedup(mine, noise=blocks[point.open_loop])
            among_all = speedup(mine, loads[point.workload] * len(arms), blocks[point.open_loop])
            if ratio:
                at = point.workload, point.concurrency, arm.name
                pays = verdict_pays(among_all, noise)
                yield Speedup(*at, ratio.ratio, ratio.low, ratio.high, point.rate, pays)


def row(
    point: Point,
    arm: Arm,
    results: Sequence[RequestResult],
    slo: Slo | None = None,
    left_out: int = 0,
    stretches: Mapping[int | None, float] | None = None,
) -> ArmReport:
    """The figures of one arm at one point. Latencies and throughput are those of successful requests.

    The pauses of an open loop count, too: it cannot yield more than it is asked. Of a trace, `stretches` tell them.
    """
    answers = successful(results)
    if stretches:
        took = ((stretches[block], seconds_of(members)) for block, members in by_block(results).items())
        seconds = sum(map(max, took))
    elif point.rate:
        seconds = max(busy_seconds(answers), len(answers) / point.rate)
    else:
        seconds = steady_seconds(answers, point.concurrency or 1)
    tokens = sum(item.output_tokens for item in answers)
    reasoning = sum(item.reasoning_tokens for item in answers)
    throughput = tokens / seconds if tokens and seconds else None
    acceptance, length = acceptance_of(answers), acceptance_length(answers)
    within = sum(is_met(slo, answer) for answer in answers) if slo else 0
    growth = 1 + left_out / len(answers) if answers else 1.0
    share = _share_within(slo, without_beginnings(results) if stretches else results, growth) if slo else None
    return ArmReport(
        arm=arm.name,
        workload=point.workload,
        concurrency=point.concurrency,
        requests=len(results) + left_out,
        failed=sum(item.outcome == "failed" for item in results),
        incomplete=sum(item.outcome == "incomplete" for item in results),
        ttft=percentiles(item.ttft for item in answers if item.ttft is not None),
        itl=percentiles(gap for item in answers for gap in item.gaps),
        tpot=percentiles(item.tpot for item in answers if item.tpot is not None),
        e2e=percentiles(item.seconds for item in answers),
        output_tokens_per_second=throughput,
        rate=point.rate,
        reasoning_share=reasoning / tokens if reasoning else None,
        acceptance_length=acceptance.length if acceptance else None,
        acceptance_per_position=acceptance.per_position if acceptance else (),
        goodput=within / seconds if slo and seconds else None,
        meets_slo=share >= slo.share if slo and share is not None else None,
        within_slo=share,
        price_per_million_output_tokens=_price(arm.price_per_hour, throughput),
        cached_share=cached_share(answers),
        acceptance_length_low=length.low if length else None,
        acceptance_length_high=length.high if length else None,
        prompt_tokens=sum(item.prompt_tokens for item in answers) / len(answers) if answers else None,
        answer_tokens=tokens / len(answers) if answers else None,
        joules_per_output_token=_joules(answers),
    )


def _share_within(slo: Slo, results: Sequence[RequestResult], growth: float) -> float | None:
    """The share of requests within an SLO; each answer stands for `growth` of them."""
    answers = successful(results)
    requests = len(results) - len(answers) + len(answers) * growth
    return sum(is_met(slo, answer) for answer in answers) * growth / requests if requests else None


def acceptance_of(results: Iterable[RequestResult]) -> Acceptance | None:
    """The acceptance of all answers together; None if no draft was verified."""
    counted = [item.acceptance for item in results if item.acceptance and item.acceptance.steps]
    return reduce(add, counted) if counted else None


def cached_share(answers: Iterable[RequestResult]) -> float | None:
    told = [(item.cached_tokens, item.prompt_tokens) for item in answers if item.cached_tokens is not None]
    prompts = sum(tokens for _, tokens in told)
    return sum(cached for cached, _ in told) / prompts if prompts else None


def _joules(answers: Iterable[RequestResult]) -> float | None:
    """Per output token."""
    told = [(item.joules, item.output_tokens) for item in answers if item.joules is not None]
    tokens = sum(count for _, count in told)
    return sum(joules for joules, _ in told) / tokens if tokens else None


def _price(price_per_hour: float | None, tokens_per_second: float | None) -> float | None:
    """US dollars per million output tokens; None if either is unknown, or the arm is free."""
    if not price_per_hour or not tokens_per_second:
        return None
    return price_per_hour / _SECONDS_PER_HOUR / tokens_per_second * 1e6
