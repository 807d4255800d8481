"""Intervals cover the truth as often as they say, for few prompts as well as for many."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from statistics import mean, stdev

import pytest
from simulated_arms import arm as simulated
from simulated_arms import result

from toolkit.endpoint.generation import Acceptance
from toolkit.measure.measurement import Interval
from toolkit.measure.pays import verdict_pays
from toolkit.measure.run import FEWEST_ROUNDS
from toolkit.measure.statistics import (
    BlockNoise,
    Further,
    Pair,
    acceptance_length,
    block_noise,
    busy_seconds,
    half_width,
    pairs_of,
    percentiles,
    pool,
    share,
    speedup,
    steady_seconds,
    student,
    what_narrows,
)
from toolkit.measure.summary import summarise

RUNS = 1000

NOISE = 0.3

Noisy = Callable[[random.Random], float]


def lognormal(rng: random.Random) -> float:
    """A factor around 1 that is now and then far above."""
    return rng.lognormvariate(-(NOISE**2) / 2, NOISE)


def uniform(rng: random.Random) -> float:
    """A factor from 0.7 to 1.3."""
    return rng.uniform(1 - NOISE, 1 + NOISE)


def rounds(
    rng: random.Random, prompts: int, true: float, by_prompt: float = 0.0, noisy: Noisy = lognormal
) -> Iterator[list[Pair]]:
    """Rounds over the same prompts: answers of different length, an arm that is `true` times as fast on average."""
    kinds = [(rng.randint(40, 160), rng.lognormvariate(-(by_prompt**2) / 2, by_prompt)) for _ in range(prompts)]
    while True:
        yield [
            Pair(prompt, tokens, tokens / true * slower * noisy(rng), tokens, tokens * noisy(rng))
            for prompt, (tokens, slower) in enumerate(kinds)
        ]


def some_rounds(rng: random.Random, prompts: int, number: int, true: float, **kind: float) -> list[Pair]:
    found = rounds(rng, prompts, true, **kind)
    return [pair for _ in range(number) for pair in next(found)]


def covered(intervals: Iterator[Interval | None], true: float) -> float:
    """The share of intervals that have the truth in them."""
    found = [item for item in intervals if item]
    assert len(found) == RUNS
    return sum(item.low <= true <= item.high for item in found) / RUNS


@pytest.mark.parametrize(
    ("prompts", "number", "by_prompt"), [(4, 2, 0.0), (4, 4, 0.15), (8, 1, 0.15), (16, 2, 0.1), (32, 1, 0.2)]
)
@pytest.mark.parametrize("noisy", [lognormal, uniform])
def test_95_percent_intervals_cover_the_true_speedup_in_95_percent_of_runs(
    prompts: int, number: int, by_prompt: float, noisy: Noisy
) -> None:
    def runs() -> Iterator[Interval | None]:
        for seed in range(RUNS):
            found = rounds(random.Random(seed), prompts, 1.4, by_prompt, noisy)
            yield speedup([pair for _ in range(number) for pair in next(found)])

    assert 0.93 <= covered(runs(), 1.4) <= 0.985  # of two rounds, the wider of two estimates is often too wide


def test_what_disturbs_all_concurrent_requests_of_a_block_widens_the_interval() -> None:
    def run(seed: int) -> list[Pair]:
        rng = random.Random(seed)
        return [
            Pair(prompt, 100, 100 / 1.4 * arm * lognormal(rng), 100, 100 * baseline * lognormal(rng), (turn, half))
            for turn in range(4)
            for half in range(2)
            for arm, baseline in [(rng.lognormvariate(0, 0.2), rng.lognormvariate(0, 0.2))]
            for prompt in range(half, 16, 2)
        ]

    assert 0.93 <= covered((speedup(run(seed)) for seed in range(RUNS)), 1.4) <= 0.97


def test_what_prompts_and_blocks_each_add_to_the_noise_is_summed() -> None:
    """V = V_prompts + σ²/blocks: each of 8 prompts is slower or faster by itself, and each of 8 blocks."""
    strays = [0.01 * (number - 3.5) for number in range(8)]
    pairs = [
        Pair(prompt, 100, math.exp(own + shared), 100, 1, block)
        for block, shared in enumerate(strays)
        for prompt, own in enumerate(strays)
    ]

    def variance(found: Sequence[Pair], freedom: float) -> float:
        interval = speedup(found)
        assert interval
        return (math.log(interval.high / interval.low) / 2 / student(freedom)) ** 2

    of_prompts = variance([replace(pair, block=None) for pair in pairs], 7)
    of_blocks = variance([replace(pair, cluster=pair.block, block=None) for pair in pairs], 7)
    of_pairs = variance([replace(pair, cluster=number, block=None) for number, pair in enumerate(pairs)], 63)
    total = of_prompts + of_blocks - of_pairs
    satterthwaite = total**2 / ((of_prompts**2 + of_blocks**2) / 7)
    assert variance(pairs, satterthwaite) == pytest.approx(total, rel=0.02)
    assert of_prompts == pytest.approx(of_blocks)


@pytest.mark.parametrize(("prompts", "precision"), [(4, 0.6), (8, 0.35), (16, 0.2)])
def test_stopping_once_the_interval_is_narrow_does_not_spoil_it(prompts: int, precision: float) -> None:
    def run(seed: int) -> Interval | None:
        pairs: list[Pair] = []
        for found in islice(rounds(random.Random(seed), prompts, 1.4, 0.1), 12):
            pairs += found
            if len(pairs) >= FEWEST_ROUNDS * prompts and half_width(pairs) <= precision:
                break
        return speedup(pairs)

    assert 0.93 <= covered((run(seed) for seed in range(RUNS)), 1.4) <= 0.97


@pytest.mark.parametrize(("prompts", "number"), [(4, 2), (8, 2), (16, 2), (32, 1)])
def test_the_baseline_hardly_ever_pays_against_itself(prompts: int, number: int) -> None:
    """In a measurement with nothing to find, an arm pays in at most 2.5 % of the runs, and costs as rarely."""
    found = []
    for seed in range(RUNS):
        rng = random.Random(seed)
        pairs = some_rounds(rng, prompts, number, 1.0)
        itself = [
            Pair(
                pair.cluster,
                pair.baseline_tokens,
                pair.baseline_tokens * lognormal(rng),
                pair.baseline_tokens,
                pair.baseline_seconds,
            )
            for pair in pairs[-prompts:]
        ]
        noise = speedup(itself)
        assert noise
        found.append(verdict_pays(speedup(pairs), noise))
    assert found.count(True) <= 0.025 * RUNS
    assert found.count(False) <= 0.025 * RUNS


def test_the_baseline_hardly_ever_pays_at_any_of_three_loads() -> None:
    """Three chances of an error; by intervals for a single one, an arm would pay in 4 to 7 % of the runs."""

    def pays(seed: int) -> bool:
        rng = random.Random(seed)
        at_each_load = [speedup(some_rounds(rng, 16, 2, 1.0), looks=3) for _ in range(3)]
        return any(verdict_pays(item, None) for item in at_each_load)

    assert sum(map(pays, range(RUNS))) <= 0.025 * RUNS


def test_an_arm_that_is_as_good_as_it_says_pays() -> None:
    pairs = [some_rounds(random.Random(seed), 16, 3, 1.4) for seed in range(200)]
    assert sum(verdict_pays(speedup(run), None) is True for run in pairs) >= 190
    assert sum(verdict_pays(speedup(run, looks=3), None) is True for run in pairs) >= 185


@pytest.mark.parametrize(
    ("low", "high", "itself", "pays"),
    [
        (1.2, 1.6, None, True),
        (0.9, 1.6, None, None),
        (0.7, 0.9, None, False),
        (1.005, 1.009, None, None),
        (1.05, 1.1, 1.07, None),
        (1.2, 1.6, 0.9, True),
        (0.9, 0.95, 0.93, None),
    ],
)
def test_an_arm_pays_if_it_beats_the_baseline_by_more_than_the_baseline_beats_itself(
    low: float, high: float, itself: float | None, pays: bool | None
) -> None:
    noise = Interval(itself, itself - 0.1, itself + 0.1) if itself else None
    assert verdict_pays(Interval((low + high) / 2, low, high), noise) is pays


def test_the_ratio_is_that_of_the_throughputs() -> None:
    found = speedup([Pair("a", 100, 1, 100, 2), Pair("b", 300, 3, 300, 6)])
    assert found == Interval(pytest.approx(2), pytest.approx(2), pytest.approx(2))


def test_a_single_pair_shows_no_noise() -> None:
    assert speedup([Pair("a", 100, 1, 100, 2)]) is None
    assert half_width([]) == math.inf
    assert what_narrows([Pair("a", 100, 1, 100, 2)], 0.05) is None


def test_too_few_blocks_have_an_interval_only_by_those_of_other_cells() -> None:
    def cell(seed: int, blocks: int) -> list[Pair]:
        rng = random.Random(seed)
        return [
            Pair(prompt, 100, slower * lognormal(rng), 100, lognormal(rng), block)
            for block in range(blocks)
            for slower in [rng.lognormvariate(0, 0.2)]
            for prompt in range(8)
        ]

    one, three, seven = cell(1, 1), cell(2, 3), cell(3, 7)
    assert speedup(one) is None
    assert speedup(three, noise=pool(map(block_noise, (one, three)))) is None
    pooled = pool(map(block_noise, (one, three, seven)))
    assert pooled.freedom == pytest.approx(2 + 6, rel=0.01)
    assert speedup(one, noise=pooled)
    assert half_width(one, pooled) > half_width(three, pooled) > half_width(seven, pooled)


def test_cells_whose_pairs_stray_more_tell_less_of_blocks() -> None:
    """Of 64 and of 4 at a time: alone the pairs of 4 stray more than blocks do, so both tell hardly more than 64."""
    rng = random.Random(1)

    def cell(of_pairs: float, freedom: int) -> BlockNoise:
        whole = (0.0005 + of_pairs) * sum(rng.gauss(0, 1) ** 2 for _ in range(freedom)) / freedom
        return BlockNoise(whole - of_pairs, whole, freedom)

    many = [cell(0.0002, 9) for _ in range(4000)]
    pooled = [pool([one, cell(0.003, 11)]) for one in many]
    estimates = [one.beyond_pairs for one in pooled]
    assert mean(estimates) == pytest.approx(0.0005, rel=0.05)
    assert stdev(estimates) < 1.05 * stdev(one.beyond_pairs for one in many)
    assert stdev(estimates) == pytest.approx(mean(one.whole * math.sqrt(2 / one.freedom) for one in pooled), rel=0.1)


def test_a_sum_of_which_one_cell_tells_nearly_all_has_its_degrees_of_freedom() -> None:
    pooled = pool([BlockNoise(1e-3, 1.001e-3, 3), BlockNoise(1e-3, 1.0, 100)])
    assert pooled.freedom == pytest.approx(3, rel=0.1)
    assert pooled.whole == pytest.approx(1.001e-3, rel=0.1)


def test_a_cell_that_never_strays_does_not_make_the_others_noise_known() -> None:
    assert pool([BlockNoise(0.0, 0.0, 3), BlockNoise(-0.1, 0.2, 8)]).whole == pytest.approx(0.2 * 8 / 11)


def test_arms_that_share_a_baseline_tell_less_of_blocks() -> None:
    assert pool([BlockNoise(0.1, 0.2, 6)] * 2, arms=2).freedom == pytest.approx(12 * 4 / 5)


def test_drift_of_blocks_is_narrowed_by_more_blocks_of_the_same_prompts() -> None:
    rng = random.Random(4)
    pairs = [
        Pair(prompt, 100, slower, 100, lognormal(rng) ** 0.1, block)
        for block in range(8)
        for slower in [rng.lognormvariate(0, 0.2)]
        for prompt in range(8)
    ]
    further = what_narrows(pairs, 0.05)
    assert further
    assert not further.other_prompts
    assert "in further blocks of the same prompts" in str(further)


def test_rounds_over_one_prompt_are_intervals_for_this_prompt() -> None:
    found = speedup([Pair("a", 100, seconds, 100, 2) for seconds in (0.9, 1.0, 1.1)])
    assert found
    assert 1.5 < found.low < 2 < found.high < 2.6


def test_two_prompts_asked_often_are_still_two_prompts() -> None:
    """Student's t with one degree of freedom is 12.7: more rounds do not tell of other prompts."""
    pairs = [Pair(prompt, 100, seconds, 100, 2) for prompt, seconds in (("a", 1.0), ("b", 1.2)) for _ in range(50)]
    found = speedup(pairs)
    assert found
    assert found.high / found.ratio == pytest.approx(math.exp(12.706 * abs(math.log(1.2)) / 2), rel=0.1)


def test_the_requests_that_are_still_needed_do_narrow_the_interval() -> None:
    rng = random.Random(5)
    pairs = some_rounds(rng, 400, 1, 1.4)
    further = what_narrows(pairs, 0.03)
    assert further
    assert further.other_prompts
    more = further.requests
    others = [replace(pair, cluster=("other", pair.cluster)) for pair in some_rounds(rng, more, 1, 1.4)]
    assert half_width(pairs + others) == pytest.approx(0.03, rel=0.15)


def test_nothing_more_is_needed_for_an_interval_that_is_narrow_enough() -> None:
    assert what_narrows(some_rounds(random.Random(5), 40, 3, 1.4), 0.5) == Further(0, False)


def test_an_interval_takes_a_moment_only() -> None:
    pairs = some_rounds(random.Random(1), 200, 10, 1.4)
    began = time.perf_counter()
    speedup(pairs)
    assert time.perf_counter() - began < 0.3


def test_acceptance_has_an_interval_over_prompts() -> None:
    answers = [
        result(prompt=number, acceptance=Acceptance((10, 10, steps))) for number, steps in enumerate((18, 20, 22))
    ]
    found = acceptance_length(answers)
    assert found
    assert found.ratio == pytest.approx(1 + (30 + 2 * 60) / 120)
    assert found.low < found.ratio < found.high


def test_percentiles_are_numpys() -> None:
    numpy = pytest.importorskip("numpy")
    values = [random.Random(1).random() for _ in range(137)]
    found = percentiles(values)
    assert found
    assert found.samples == 137
    assert (found.p50, found.p90, found.p99) == pytest.approx(tuple(numpy.percentile(values, (50, 90, 99))))


def test_below_a_hundred_samples_there_is_no_99th_percentile() -> None:
    known, unknown = percentiles([1.0] * 100), percentiles([1.0] * 99)
    assert known
    assert unknown
    assert (known.p99, unknown.p99) == (1.0, None)


def test_percentiles_of_nothing_are_unknown() -> None:
    assert percentiles([]) is None


def test_a_share_of_all_requests_is_not_certain() -> None:
    found = share(10, 10)
    assert (found.ratio, found.high) == (1, pytest.approx(1))
    assert found.low == pytest.approx(0.722, abs=0.001)


def test_concurrent_requests_keep_the_machine_busy_once() -> None:
    answers = [result(started=started, seconds=2) for started in (0, 1, 10)]
    assert busy_seconds(answers) == pytest.approx(3 + 2)


def test_throughput_leaves_out_a_blocks_end_as_the_speedup_does() -> None:
    """Two waves of two, of which the last answer of one arm is long: it runs alone at the end."""
    timed = {"base": [(0, 2), (0, 2), (2, 2), (2, 2)], "spec": [(0, 1), (0, 1), (1, 1), (1, 3)]}
    results = [
        result(arm=arm, load=2, block=0, prompt=number, started=started, seconds=seconds)
        for arm, requests in timed.items()
        for number, (started, seconds) in enumerate(requests)
    ]
    arms = summarise(results, [simulated("spec")], simulated("base")).arms
    base, spec = (row.output_tokens_per_second or 0.0 for row in arms)
    assert (base, spec) == (pytest.approx(100), pytest.approx(400 / 3))
    pairs = pairs_of(results, "spec", "base")
    assert spec / base == pytest.approx(
        (sum(pair.arm_tokens for pair in pairs) / sum(pair.arm_seconds for pair in pairs))
        / (sum(pair.baseline_tokens for pair in pairs) / sum(pair.baseline_seconds for pair in pairs))
    )


def test_a_block_of_fewer_requests_than_may_run_is_as_fast_as_it_was() -> None:
    assert steady_seconds([result(block=0, seconds=2.0)], 16) == pytest.approx(2.0)
    assert steady_seconds([result(block=block, seconds=2.0) for block in range(3)], 1) == pytest.approx(6.0)


def test_an_answer_without_its_counterpart_is_not_compared() -> None:
    answers = [
        result(arm="spec", prompt=0, seconds=1),
        result(arm="base", prompt=0, seconds=2),
        result(arm="spec", prompt=1, seconds=1),
        result(arm="base", prompt=1, seconds=9, outcome="failed"),
    ]
    assert [(pair.arm_seconds, pair.baseline_seconds) for pair in pairs_of(answers, "spec", "base")] == [(1, 2)]


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (1.5, 6.0167), (3, 3.1824), (10.5, 2.2138), (29.9, 2.0426), (60, 2.0003)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: float, quantile: float) -> None:
    """From scipy.stats.t.ppf(0.975, freedom)."""
    assert student(freedom) == pytest.approx(quantile, abs=1e-4)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 38.1885), (7, 3.1276), (40, 2.4989)])
def test_students_quantiles_at_other_levels(freedom: float, quantile: float) -> None:
    """From scipy.stats.t.ppf(1 - 0.025 / 3, freedom)."""
    assert student(freedom, 1 - 0.025 / 3) == pytest.approx(quantile, rel=1e-3)
