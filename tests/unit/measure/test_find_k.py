"""The best K is found with half of the measurements that trying all would take, and checks its neighbours."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from toolkit.measure.find_k import Measured, Point, find_k

KS = range(1, 11)
CHAT, EASY = ("chat", 1), ("easy", 1)


class Pair:
    """A pair whose drafts are accepted with some probability at each position, by workload.

    A target step takes `step` seconds, and `per_token` more for each token that is drafted: at each of `loads` as many
    times that; up to `flat` tokens for nothing.
    """

    def __init__(
        self,
        acceptance: Mapping[str, float],
        step: float,
        per_token: float,
        *,
        noise: float = 0.0,
        seed: int = 7,
        flat: int = 0,
        loads: Sequence[int] = (1,),
    ) -> None:
        self.acceptance, self.step, self.per_token, self.noise = acceptance, step, per_token, noise
        self.flat, self.loads = flat, loads
        self.measured: list[int] = []
        self._random = random.Random(seed)

    def seconds_per_token(self, k: int, point: Point = CHAT) -> float:
        workload, load = point
        accepted = [self.acceptance[workload] ** j for j in range(1, k + 1)]
        return (self.step + self.per_token * load * max(k - self.flat, 0)) / (1 + sum(accepted))

    def measure(self, k: int) -> dict[Point, Measured]:
        self.measured.append(k)
        return {
            (name, load): Measured(
                k,
                self.seconds_per_token(k, (name, load)) * (1 + self._random.uniform(-self.noise, self.noise)),
                tuple(rate**j for j in range(1, k + 1)),
            )
            for name, rate in self.acceptance.items()
            for load in self.loads
        }

    def best(self, point: Point = CHAT) -> int:
        return min(KS, key=lambda k: self.seconds_per_token(k, point))


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7, 0.85, 0.95])
def test_the_best_of_ten_is_found_with_five_measurements(rate: float) -> None:
    pair = Pair({"chat": rate}, step=0.020, per_token=0.002)

    found = find_k(KS, pair.measure)

    assert found.k == pair.best()
    assert len(pair.measured) <= 5
    assert {found.k - 1, found.k + 1} & {*KS} <= {*pair.measured}


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7, 0.85, 0.95])
@pytest.mark.parametrize("seed", range(20))
def test_with_noise_it_is_within_five_percent_of_the_best(rate: float, seed: int) -> None:
    pair = Pair({"chat": rate}, step=0.020, per_token=0.002, noise=0.02, seed=seed)

    found = find_k(KS, pair.measure)

    assert pair.seconds_per_token(found.k) <= 1.05 * pair.seconds_per_token(pair.best())


@pytest.mark.parametrize("flat", range(2, 9))
@pytest.mark.parametrize("rate", [0.7, 0.85, 0.95])
def test_where_steps_are_as_long_up_to_some_k_and_then_jump_it_is_found(flat: int, rate: float) -> None:
    """As with kernels whose tile is full. The line through the first two is up to 13 % off."""
    pair = Pair({"chat": rate}, step=0.020, per_token=0.010, flat=flat)

    assert find_k(KS, pair.measure).k == pair.best()


def test_at_each_load_the_best_and_its_neighbours_are_measured() -> None:
    pair = Pair({"chat": 0.8}, step=0.020, per_token=0.001, loads=(1, 16))

    find_k(KS, pair.measure)

    for load in (1, 16):
        best = pair.best(("chat", load))
        assert {best - 1, best, best + 1} & {*KS} <= {*pair.measured}


def test_what_was_predicted_stands_beside_what_was_measured() -> None:
    pair = Pair({"chat": 0.7}, step=0.020, per_token=0.002)

    first, second, *others = find_k(KS, pair.measure).trials

    assert (first.predicted, second.predicted) == (None, None)
    for trial in others:
        assert trial.predicted == pytest.approx(trial.speeds)


def test_workloads_count_alike() -> None:
    both = find_k(KS, Pair({"easy": 0.95, "hard": 0.2}, step=0.020, per_token=0.004).measure)
    easy = find_k(KS, Pair({"easy": 0.95}, step=0.020, per_token=0.004).measure)

    assert both.k < easy.k


def test_a_workload_with_longer_answers_counts_no_more() -> None:
    pair = Pair({"easy": 0.95, "hard": 0.2}, step=0.020, per_token=0.004)

    def slow_easy(k: int) -> dict[Point, Measured]:
        found = pair.measure(k)
        return {**found, EASY: replace(found[EASY], seconds_per_token=10 * found[EASY].seconds_per_token)}

    assert find_k(KS, slow_easy).k == find_k(KS, pair.measure).k


def test_a_workload_without_figures_for_one_k_is_left_out_of_the_choice() -> None:
    pair = Pair({"easy": 0.95, "hard": 0.2}, step=0.020, per_token=0.004)

    def cut_short(k: int) -> dict[Point, Measured]:
        found = pair.measure(k)
        return {EASY: found[EASY]} if k != max(KS) else found

    assert find_k(KS, cut_short).k == find_k(KS, Pair({"easy": 0.95}, step=0.020, per_token=0.004).measure).k


def test_without_a_workload_in_common_nothing_is_predicted() -> None:
    pair = Pair({"easy": 0.95, "hard": 0.2}, step=0.020, per_token=0.004)

    def cut_short(k: int) -> dict[Point, Measured]:
        return {point: found for point, found in pair.measure(k).items() if (point != EASY) == (k == max(KS))}

    found = find_k(KS, cut_short)
    assert (len(found.trials), found.predicted) == (3, {})


@pytest.mark.parametrize("seed", range(20))
def test_however_wrong_the_predictions_are_each_k_is_measured_once_and_the_best_of_them_taken(seed: int) -> None:
    pair = Pair({"chat": 0.6}, step=0.020, per_token=0.004, noise=0.5, seed=seed)

    found = find_k(KS, pair.measure)

    assert len(pair.measured) == len(set(pair.measured))
    assert found.k == min(found.trials, key=lambda trial: trial.speeds[CHAT]).k


@pytest.mark.parametrize("rate", [0.7, 0.99])
@pytest.mark.parametrize("ks", [[5], [3, 7], [1, 4, 6]])
def test_few_k_are_all_measured_even_where_the_first_seem_best(ks: list[int], rate: float) -> None:
    pair = Pair({"chat": rate}, step=0.020, per_token=0.002)

    find_k(ks, pair.measure)

    assert sorted(pair.measured) == ks
