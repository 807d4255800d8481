"""Figures of a measurement: percentiles, throughput, and ratios with their 95 % intervals. Standard library only.

The ratio. A pair is one prompt asked of an arm and of the baseline, one right after the other. With T tokens and
S seconds summed over pairs, the speedup is the ratio of the two throughputs,

    R = (T_arm / S_arm) / (T_baseline / S_baseline).

With n concurrent requests an arm yields n T/S tokens per second (Little's law), so R holds at any concurrency.

The interval. Answers to one prompt resemble each other, so the independent units are the prompts ("clusters"), not the
requests: two rounds over four prompts tell of four prompts. V is the delete-one-cluster jackknife variance of ln R,

    V = (n - 1)/n * sum over clusters of (ln R without the cluster - ln R)²,

which for few clusters is the most dependable of the usual estimates (MacKinnon, Nielsen & Webb, "Cluster-robust
inference: a guide to empirical practice", Journal of Econometrics 232, 2023). The interval is R * exp(±t √V), t being
Student's 97.5 % quantile. Long answers weigh more, so its degrees of freedom are those of the effective number of
clusters, 1/Σw² - 1, w being a cluster's share of the time (Carter, Schnepel & Steigerwald, Review of Economics and
Statistics 99, 2017); equal prompts give n - 1. A percentile bootstrap needs dozens of prompts for the same coverage
(Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69, 2015).

Concurrent requests share what disturbs the machine while their block runs. With several requests in a block, prompts
and blocks are crossed: V = V_prompts + V_blocks - V_pairs (Cameron, Gelbach & Miller, Journal of Business & Economic
Statistics 29, 2011), at least V_prompts, with the smaller degrees of freedom of the two.

Stopping. To stop when the interval happens to be narrow would pick underestimates of V: with 4 prompts, 95 % intervals
then cover 88 %. `half_width` therefore takes the larger of V and V_pairs, which is steadier and on average not larger.
With three rounds at least, coverage stays at 93-97 % (simulated with ±30 % of noise in the tests). No measurement
stops because of its verdict.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, quantiles

from toolkit.endpoint.generation import Acceptance
from toolkit.measure.measurement import Interval, Percentiles
from toolkit.measure.result import RequestResult, successful

_LEVEL = 0.975
# An interval from a thousandth to a thousandfold says nothing, and more would overflow.
_WIDEST = math.log(1000)
Figures = Callable[[RequestResult], tuple[float, float]]
# Sums of times may be off by rounding.
_CLOCK_STEP = 1e-6
_MOST_FURTHER_REQUESTS = 100_000
_STEPS = 32


@dataclass(frozen=True)
class Pair:
    """One prompt's answer by the arm, and by the baseline at almost the same time.

    `cluster` is the prompt; pairs of the same `block` ran concurrently.
    """

    cluster: Hashable
    arm_tokens: float
    arm_seconds: float
    baseline_tokens: float
    baseline_seconds: float
    block: Hashable = None


@dataclass(frozen=True)
class _Spread:
    """ln R, its variance, the degrees of freedom of t, and the variance if pairs of one prompt were independent."""

    log_ratio: float
    variance: float
    freedom: float
    pair_variance: float

    def stopping_width(self, growth: float = 1.0) -> float:
        """The half-width that a measurement may stop at, once it has `growth` times as many prompts."""
        variance = max(self.variance, self.pair_variance) / growth
        return math.expm1(_reach((self.freedom + 1) * growth - 1, variance))


def speedup(pairs: Sequence[Pair], looks: int = 1) -> Interval | None:
    """The ratio of the arm's throughput to the baseline's. None for fewer than two pairs, which show no noise.

    Pairs of a single prompt are taken as independent: the interval then holds for this prompt only. For several
    `looks` it is as much wider as it takes for that many intervals to hold together in 95 % of all cases (Bonferroni).
    """
    spread = _spread(pairs)
    if spread is None:
        return None
    reach = _reach(spread.freedom, spread.variance, 1 - (1 - _LEVEL) / looks)
    return Interval(*(math.exp(spread.log_ratio + sign * reach) for sign in (0, -1, 1)))


def half_width(pairs: Sequence[Pair]) -> float:
    """The relative half-width that a measurement may stop at, see the module's text: 0.05 is ±5 %. inf if unknown."""
    spread = _spread(pairs)
    return spread.stopping_width() if spread else math.inf


def requests_needed(pairs: Sequence[Pair], width: float) -> int | None:
    """How many more requests of each arm, with prompts of their own, would narrow the interval to ±`width`.

    Asking the same prompts again helps less. None if the pairs do not tell, or if it would be more than 100,000.
    """
    spread = _spread(pairs)
    if spread is None or width <= 0:
        return None

    def is_enough(further: int) -> bool:
        return spread.stopping_width(1 + further / len(pairs)) <= width

    if not is_enough(_MOST_FURTHER_REQUESTS):
        return None
    low, high = -1, _MOST_FURTHER_REQUESTS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def acceptance_length(results: Iterable[RequestResult]) -> Interval | None:
    """Tokens per target step that verified drafts, with the interval over prompts. None for fewer than two answers."""
    counted = [item for item in results if item.acceptance and item.acceptance.steps]
    return speedup([Pair((item.workload, item.prompt), *tokens_and_steps(item), 1, 1) for item in counted])


def decoding(results: Sequence[RequestResult], arm: str, baseline: str, looks: int) -> Interval | None:
    """The ratio of the tokens per second after the first token. Answers that came all at once tell nothing of it."""
    timed = [item for item in results if item.tpot]
    return speedup(pairs_of(timed, arm, baseline, _after_the_first, _after_the_first), looks)


def acceptance_ratio(results: Sequence[RequestResult], arm: str, baseline: str, looks: int) -> Interval | None:
    """The ratio of the acceptance lengths; None if one of the two does not draft."""
    counted = [item for item in results if item.acceptance and item.acceptance.steps]
    return speedup(pairs_of(counted, arm, baseline, tokens_and_steps, tokens_and_steps), looks)


def share(hits: int, total: int) -> Interval:
    """A share of requests with its 95 % interval (Wilson 1927), right for few requests too."""
    z = NormalDist().inv_cdf(_LEVEL)
    centre = (hits + z * z / 2) / (total + z * z)
    reach = z / (total + z * z) * math.sqrt(hits * (total - hits) / total + z * z / 4)
    return Interval(hits / total, max(0.0, centre - reach), min(1.0, centre + reach))


def percentiles(values: Iterable[float]) -> Percentiles | None:
    """p50, p90 and p99, interpolated linearly as NumPy does; None for no values."""
    known = [*values]
    if not known:
        return None
    points = quantiles(known if len(known) > 1 else known * 2, n=100, method="inclusive")
    return Percentiles(points[49], points[89], points[98])


def busy_seconds(results: Iterable[RequestResult]) -> float:
    """The time during which at least one of the requests was running."""
    return sum(end - start for start, end, _ in _blocks(results))


def tokens_and_steps(item: RequestResult) -> tuple[float, float]:
    """What the acceptance length is made of."""
    acceptance = item.acceptance or Acceptance()
    return acceptance.steps + acceptance.accepted, acceptance.steps


def _after_the_first(item: RequestResult) -> tuple[float, float]:
    tokens = item.output_tokens - 1
    return tokens, (item.tpot or 0.0) * tokens


def tokens_and_seconds(item: RequestResult) -> tuple[float, float]:
    """What throughput is made of."""
    return item.output_tokens, item.seconds


def pairs_of(
    results: Iterable[RequestResult],
    arm: str,
    baseline: str,
    arm_figures: Figures = tokens_and_seconds,
    baseline_figures: Figures = tokens_and_seconds,
) -> list[Pair]:
    """The arm's successful answers, each with the baseline's to the same request; others have nothing to compare.

    `arm_figures` gives the tokens and seconds that an answer of the arm is taken for, `baseline_figures` those of the
    baseline's.
    """
    answers: dict[str, list[RequestResult]] = defaultdict(list)
    for item in successful(list(results)):
        if item.output_tokens and item.seconds > 0:
            answers[item.arm].append(item)
    reference = {item.request: item for item in answers[baseline]}
    return [
        Pair((item.workload, item.prompt), *arm_figures(item), *baseline_figures(reference[item.request]), block)
        for block, (_, _, members) in enumerate(_blocks(answers[arm]))
        for item in members
        if item.request in reference
    ]


def _blocks(results: Iterable[RequestResult]) -> Iterator[tuple[float, float, list[RequestResult]]]:
    """Requests that ran without a pause between them: start, end, and the requests."""
    start = end = 0.0
    members: list[RequestResult] = []
    for item in sorted(results, key=lambda item: item.started):
        if members and item.started > end - _CLOCK_STEP:
            yield start, end, members
            members = []
        start = start if members else item.started
        end = max(end, item.started + item.seconds) if members else item.started + item.seconds
        members.append(item)
    if members:
        yield start, end, members


def _spread(pairs: Sequence[Pair]) -> _Spread | None:
    if len(pairs) < 2:
        return None
    each = _jackknife([[pair] for pair in pairs])
    prompts = _group((pair.cluster, pair) for pair in pairs)
    variance, freedom = _jackknife(prompts) if len(prompts) > 1 else each
    blocks = _group((number if pair.block is None else (pair.block,), pair) for number, pair in enumerate(pairs))
    if 1 < len(blocks) < len(pairs) and (by_block := _jackknife(blocks))[0] > each[0]:
        variance, freedom = variance + by_block[0] - each[0], min(freedom, by_block[1])
    return _Spread(_log_ratio(_sums(pairs)), variance, freedom, each[0])


def _reach(freedom: float, variance: float, level: float = _LEVEL) -> float:
    return min(_WIDEST, student(freedom, level) * math.sqrt(variance))


_Sums = tuple[float, float, float, float]


def _sums(pairs: Iterable[Pair]) -> _Sums:
    """Tokens and seconds of the arm and of the baseline."""
    rows = [(pair.arm_tokens, pair.arm_seconds, pair.baseline_tokens, pair.baseline_seconds) for pair in pairs]
    a, b, c, d = (math.fsum(column) for column in zip(*rows, strict=True))
    return a, b, c, d


def _log_ratio(sums: _Sums) -> float:
    arm_tokens, arm_seconds, baseline_tokens, baseline_seconds = sums
    return math.log(arm_tokens / arm_seconds * baseline_seconds / baseline_tokens)


def _group(pairs: Iterable[tuple[Hashable, Pair]]) -> list[list[Pair]]:
    groups: dict[Hashable, list[Pair]] = defaultdict(list)
    for key, pair in pairs:
        groups[key].append(pair)
    return list(groups.values())


def _jackknife(clusters: Sequence[Sequence[Pair]]) -> tuple[float, float]:
    """The variance of ln R and its degrees of freedom."""
    count = len(clusters)
    sums = [_sums(cluster) for cluster in clusters]
    a, b, c, d = (math.fsum(column) for column in zip(*sums, strict=True))
    whole = _log_ratio((a, b, c, d))
    strays = (_log_ratio((a - x, b - y, c - z, d - w)) - whole for x, y, z, w in sums)
    variance = (count - 1) / count * math.fsum(stray * stray for stray in strays)
    weights = ((y / b + w / d) / 2 for _, y, _, w in sums)
    return variance, 1 / math.fsum(weight * weight for weight in weights) - 1


def student(freedom: float, level: float = _LEVEL) -> float:
    """A quantile of Student's t, for at least one degree of freedom, which need not be whole."""
    return _student_at(max(1.0, round(freedom, 2)), level)


@lru_cache(maxsize=1024)
def _student_at(freedom: float, level: float) -> float:
    if freedom > 30:  # Abramowitz & Stegun 26.7.5, right to 4 digits here
        z = NormalDist().inv_cdf(level)
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        return z + first / freedom + second / freedom**2
    # With t = √freedom tan x, the probability below t is 1/2 plus the integral of cos(x)^(freedom - 1) from 0 to x,
    # over the beta function of 1/2 and freedom/2: bisection over Simpson's rule.
    beta = math.sqrt(math.pi) * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    low, high = 0.0, math.pi / 2
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (middle, high) if _integral(freedom - 1, middle) < (level - 0.5) * beta else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _integral(power: float, end: float) -> float:
    values = [math.pow(math.cos(end * i / _STEPS), power) for i in range(_STEPS + 1)]
    return end / _STEPS / 3 * (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]))
