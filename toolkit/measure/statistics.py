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

Blocks. Concurrent requests share what disturbs the machine while their block runs, so with several requests in a block

    V = V_prompts + σ² Σ w²,

w being a block's share of the time (1/blocks if all are alike) and σ² what a block strays by itself. A cell is an arm
on a workload at a load. With b blocks in it, b (V_blocks - V_pairs) estimates σ² with b - 1 degrees of freedom:
V_blocks and V_pairs are the jackknife variances with blocks and with pairs left out, the pairs' own noise is in both.
Large loads have few blocks, but the drift is the machine's and blocks of all cells last about as long (`run.py`), so σ²
is a mean of all cells' estimates. The variance of each is 2 (b V_blocks)²/(b - 1), which is mostly the pairs' own where
few run concurrently: as in any weighted mean each counts by the inverse, b V_blocks being σ² + b V_pairs with the
pooled σ² (by turns, from equal mean squares on), so that no cell weighs more because its estimate is small. The pooled
mean square has the degrees of freedom of this sum, and is what gives the weighted mean's variance. Open loops' blocks
last longer, and the machine drifts further from one arm's to the next one's: they have a σ² of their own. The m arms of
a cell share the baseline's half of the noise: estimates correlate by 1/2, their squares by 1/4, so m arms have (b - 1)
4m/(m + 3) degrees of freedom. Those of V are Satterthwaite's (Biometrics Bulletin 2, 1946), V² over the sum of
(part)²/freedom; as σ² is a difference, its part there is that of the whole mean square b V_blocks. With fewer than four
pooled degrees there is no interval.

One width. V_prompts is taken as V_pairs if that is larger: to stop when the interval happens to be narrow would pick
underestimates (with 4 prompts, 95 % intervals then cover 88 %). The same interval is reported, stops the measurement,
and says what is still needed. No measurement stops because of its verdict.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, quantiles

from toolkit.endpoint.generation import Acceptance
from toolkit.measure.measurement import Interval, Percentiles
from toolkit.measure.result import RequestResult, successful
from toolkit.student import LEVEL, student

_FEWEST_FOR_P99 = 100
# An interval from a thousandth to a thousandfold says nothing, and more would overflow.
_WIDEST = math.log(1000)
Figures = Callable[[RequestResult], tuple[float, float]]
# Sums of times may be off by rounding.
_CLOCK_STEP = 1e-6
_MOST_FURTHER_REQUESTS = 100_000
_ROUNDS_OF_WEIGHTS = 4
FEWEST_FREEDOM = 4
"""With fewer pooled degrees of freedom, how far blocks stray is not known."""


@dataclass(frozen=True, slots=True)
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
class BlockNoise:
    """How far one block strays from the others: the variance of ln R beyond that of its pairs, and with theirs."""

    beyond_pairs: float = 0.0
    whole: float = 0.0
    freedom: float = 0.0


@dataclass(frozen=True)
class _Spread:
    """ln R, its variance, the degrees of freedom of t, and the part of the variance that only other prompts narrow."""

    log_ratio: float
    variance: float
    freedom: float
    of_prompts: float

    def half_width(self, growth: float = 1.0, other_prompts: bool = True) -> float:
        """Once it has `growth` times as many requests."""
        lasting = 0.0 if other_prompts else min(self.variance, self.of_prompts)
        variance = lasting + (self.variance - lasting) / growth
        freedom = (self.freedom + 1) * growth - 1 if other_prompts else self.freedom
        return math.expm1(_reach(freedom, variance))


def block_noise(pairs: Sequence[Pair]) -> BlockNoise:
    """What the blocks of one cell tell."""
    blocks = _by_block(pairs)
    if not 1 < len(blocks) < len(pairs):
        return BlockNoise()
    whole, pair_by_pair = _jackknife(blocks)[0], _jackknife([[pair] for pair in pairs])[0]
    return BlockNoise(len(blocks) * (whole - pair_by_pair), len(blocks) * whole, len(blocks) - 1)


def pool(noises: Iterable[BlockNoise], arms: int = 1) -> BlockNoise:
    """What the blocks of all cells tell together, with `arms` compared to the same baseline in each."""
    known = [noise for noise in noises if noise.freedom]
    freedom = math.fsum(noise.freedom for noise in known)
    if not freedom:
        return BlockNoise()
    weights = [noise.freedom for noise in known]
    whole = math.fsum(noise.whole * noise.freedom for noise in known) / freedom
    beyond = 0.0
    for _ in range(_ROUNDS_OF_WEIGHTS):
        told = math.fsum(noise.beyond_pairs * weight for noise, weight in zip(known, weights, strict=True))
        beyond = max(0.0, told / math.fsum(weights))
        squares = [beyond + noise.whole - noise.beyond_pairs for noise in known]
        if not all(square > 0 for square in squares):
            break
        weights = [noise.freedom / square**2 for noise, square in zip(known, squares, strict=True)]
        parts = (noise.freedom / square for noise, square in zip(known, squares, strict=True))
        freedom = round(math.fsum(parts) ** 2 / math.fsum(weights), 9)  # of one cell, exactly its own
        whole = math.sqrt(freedom / math.fsum(weights))
    return BlockNoise(beyond, whole, freedom * 4 / (arms + 3))


def lacks_blocks(noise: BlockNoise) -> str:
    """What is missing where there is no interval; empty if it is not blocks."""
    if noise.freedom >= FEWEST_FREEDOM:
        return ""
    return f": how far blocks stray has {noise.freedom:.1f} degrees of freedom, at least {FEWEST_FREEDOM} are needed"


def speedup(pairs: Sequence[Pair], looks: int = 1, noise: BlockNoise | None = None) -> Interval | None:
    """The ratio of the arm's throughput to the baseline's. None for fewer than two pairs, which show no noise.

    None as well where concurrent requests have too few blocks, pooled in `noise` (None: only these pairs' own). Pairs
    of a single prompt are taken as independent: the interval then holds for this prompt only. For several `looks` it
    is as much wider as it takes for that many intervals to hold together in 95 % of all cases (Bonferroni).
    """
    spread = _spread(pairs, noise)
    if spread is None:
        return None
    reach = _reach(spread.freedom, spread.variance, 1 - (1 - LEVEL) / looks)
    return Interval(*(math.exp(spread.log_ratio + sign * reach) for sign in (0, -1, 1)))


def half_width(pairs: Sequence[Pair], noise: BlockNoise | None = None) -> float:
    """The relative half-width of the interval above the ratio: 0.05 is +5 %. inf if unknown."""
    spread = _spread(pairs, noise)
    return spread.half_width() if spread else math.inf


@dataclass(frozen=True)
class Further:
    """How many more requests of each arm narrow an interval: with prompts of their own, or of the same prompts."""

    requests: int
    other_prompts: bool

    def __str__(self) -> str:
        which = "with other prompts" if self.other_prompts else "in further blocks of the same prompts"
        return f"about {self.requests} more requests of each arm, {which},"


def what_narrows(pairs: Sequence[Pair], width: float, noise: BlockNoise | None = None) -> Further | None:
    """What would narrow the interval to ±`width`: the same prompts again where that suffices, else other prompts.

    None if the pairs do not tell, or if it would be more than 100,000 requests.
    """
    spread = _spread(pairs, noise)
    if spread is None or width <= 0:
        return None
    for other_prompts in (False, True):

        def is_enough(further: int, other: bool = other_prompts) -> bool:
            return spread.half_width(1 + further / len(pairs), other) <= width

        if is_enough(_MOST_FURTHER_REQUESTS):
            return Further(bisect_left(range(_MOST_FURTHER_REQUESTS), x=True, key=is_enough), other_prompts)
    return None


def acceptance_length(results: Iterable[RequestResult]) -> Interval | None:
    """Tokens per target step that verified drafts, with the interval over prompts. None for fewer than two answers."""
    counted = [item for item in results if item.acceptance and item.acceptance.steps]
    return speedup([Pair((item.workload, item.prompt), *tokens_and_steps(item), 1, 1) for item in counted])


def decoding_pairs(results: Sequence[RequestResult], arm: str, baseline: str) -> list[Pair]:
    """Tokens and seconds after the first token. Answers that came all at once tell nothing of it."""
    timed = [item for item in results if item.tpot]
    return pairs_of(timed, arm, baseline, _after_the_first, _after_the_first)


def acceptance_ratio(results: Sequence[RequestResult], arm: str, baseline: str, looks: int) -> Interval | None:
    """The ratio of the acceptance lengths; None if one of the two does not draft. No clock is in it, nor its drift."""
    counted = [replace(item, block=None) for item in results if item.acceptance and item.acceptance.steps]
    return speedup(pairs_of(counted, arm, baseline, tokens_and_steps, tokens_and_steps), looks)


def share(hits: int, total: int) -> Interval:
    """A share of requests with its 95 % interval (Wilson 1927), right for few requests too."""
    z = NormalDist().inv_cdf(LEVEL)
    centre = (hits + z * z / 2) / (total + z * z)
    reach = z / (total + z * z) * math.sqrt(hits * (total - hits) / total + z * z / 4)
    return Interval(hits / total, max(0.0, centre - reach), min(1.0, centre + reach))


def percentiles(values: Iterable[float]) -> Percentiles | None:
    """Interpolated linearly, as NumPy does; None for no values."""
    known = [*values]
    if not known:
        return None
    points = quantiles(known if len(known) > 1 else known * 2, n=100, method="inclusive")
    p99 = points[98] if len(known) >= _FEWEST_FOR_P99 else None
    return Percentiles(points[49], points[89], p99, len(known))


def busy_seconds(results: Iterable[RequestResult]) -> float:
    """The time during which at least one of the requests was running."""
    return sum(end - start for start, end, _ in _blocks(results))


def steady_seconds(answers: Iterable[RequestResult], concurrency: int) -> float:
    """The time that these answers take where always `concurrency` requests run, or as many as their block has.

    So tokens per second leave out a block's end, when fewer run, as the speedup does: their ratio is the speedup.
    """
    blocks: dict[Hashable, list[float]] = defaultdict(list)
    for item in answers:
        blocks[item.block].append(item.seconds)
    return sum(sum(seconds) / min(concurrency, len(seconds)) for seconds in blocks.values())


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
    """The arm's successful answers, each with the baseline's at the same place; others have nothing to compare.

    `arm_figures` gives the tokens and seconds that an answer of the arm is taken for, `baseline_figures` those of the
    baseline's.
    """
    answers: dict[str, list[RequestResult]] = defaultdict(list)
    for item in successful(list(results)):
        if item.output_tokens and item.seconds > 0:
            answers[item.arm].append(item)
    reference = {item.place: item for item in answers[baseline]}
    return [
        Pair((item.workload, item.prompt), *arm_figures(item), *baseline_figures(reference[item.place]), _block(item))
        for item in answers[arm]
        if item.place in reference
    ]


def _block(item: RequestResult) -> Hashable:
    return None if item.block is None else (item.workload, item.load, item.open_loop, item.block)


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


def _spread(pairs: Sequence[Pair], noise: BlockNoise | None = None) -> _Spread | None:
    if len(pairs) < 2:
        return None
    by_pair, of_pairs = _jackknife([[pair] for pair in pairs])
    prompts = _group((pair.cluster, pair) for pair in pairs)
    by_prompt, of_prompts = _jackknife(prompts) if len(prompts) > 1 else (by_pair, of_pairs)
    # Asked r times, a prompt's own noise is in V_pairs at 1/r: asked once, it cannot be told from the prompt's speedup.
    rounds = len(pairs) / len(prompts)
    lasting = max(0.0, by_prompt - by_pair) * rounds / (rounds - 1) if rounds > 1 else by_prompt
    variance, freedom = max((by_prompt, of_prompts), (by_pair, of_pairs))
    blocks = _by_block(pairs)
    if len(blocks) < len(pairs):
        noise = noise or pool([block_noise(pairs)])
        if noise.freedom < FEWEST_FREEDOM:
            return None
        evenness = 1 / (_jackknife(blocks)[1] + 1)
        whole = noise.whole * evenness
        uncertain = variance**2 / freedom + whole**2 / noise.freedom
        variance += noise.beyond_pairs * evenness
        if uncertain:
            freedom = max(min(freedom, noise.freedom), variance**2 / uncertain)
    return _Spread(_log_ratio(_sums(pairs)), variance, freedom, lasting)


def _by_block(pairs: Sequence[Pair]) -> list[list[Pair]]:
    return _group((number if pair.block is None else (pair.block,), pair) for number, pair in enumerate(pairs))


def _reach(freedom: float, variance: float, level: float = LEVEL) -> float:
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
    if count == 1:
        return 0.0, 0.0
    strays = (_log_ratio((a - x, b - y, c - z, d - w)) - whole for x, y, z, w in sums)
    variance = (count - 1) / count * math.fsum(stray * stray for stray in strays)
    weights = ((y / b + w / d) / 2 for _, y, _, w in sums)
    return variance, 1 / math.fsum(weight * weight for weight in weights) - 1
