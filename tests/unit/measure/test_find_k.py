"""The best K is found with a third of the measurements that trying all would take."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from toolkit.measure.find_k import Measured, find_k

KS = range(1, 11)


class Pair:
    """A pair whose drafts are accepted with some probability at each position; a step takes longer with each token."""

    def __init__(
        self, acceptance: Mapping[str, float], step: float, per_token: float, noise: float = 0.0, seed: int = 7
    ) -> None:
        self.acceptance, self.step, self.per_token, self.noise = acceptance, step, per_token, noise
        self.measured: list[int] = []
        self._random = random.Random(seed)

    def seconds_per_token(self, k: int, workload: str) -> float:
        accepted = [self.acceptance[workload] ** j for j in range(1, k + 1)]
        return (self.step + self.per_token * k) / (1 + sum(accepted))

    def measure(self, k: int) -> dict[str, Measured]:
        self.measured.append(k)
        return {
            name: Measured(
                k,
                self.seconds_per_token(k, name) * (1 + self._random.uniform(-self.noise, self.noise)),
                tuple(rate**j for j in range(1, k + 1)),
            )
            for name, rate in self.acceptance.items()
        }

    def best(self) -> int:
        return min(KS, key=lambda k: self.seconds_per_token(k, next(iter(self.acceptance))))


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7, 0.85, 0.95])
def test_the_best_of_ten_is_found_with_three_measurements(rate: float) -> None:
    pair = Pair({"chat": rate}, step=0.020, per_token=0.002)

    found = find_k(KS, pair.measure)

    assert found.k == pair.best()
    assert len(pair.measured) <= 3


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7, 0.85, 0.95])
def test_with_noise_it_is_within_five_percent_of_the_best(rate: float) -> None:
    pair = Pair({"chat": rate}, step=0.020, per_token=0.002, noise=0.02)

    found = find_k(KS, pair.measure)

    assert pair.seconds_per_token(found.k, "chat") <= 1.05 * pair.seconds_per_token(pair.best(), "chat")


def test_what_was_predicted_stands_beside_what_was_measured() -> None:
    pair = Pair({"chat": 0.7}, step=0.020, per_token=0.002)

    *first, confirmed = find_k(KS, pair.measure).trials

    assert [trial.predicted for trial in first] == [None, None]
    assert confirmed.predicted == pytest.approx(confirmed.speeds)


def test_workloads_count_alike() -> None:
    both = find_k(KS, Pair({"easy": 0.95, "hard": 0.2}, step=0.020, per_token=0.004).measure)
    easy = find_k(KS, Pair({"easy": 0.95}, step=0.020, per_token=0.004).measure)

    assert both.k < easy.k


def test_a_workload_with_longer_answers_counts_no_more() -> None:
    pair = Pair({"easy": 0.95, "hard": 0.2}, step=0.020, per_token=0.004)

    def slow_easy(k: int) -> dict[str, Measured]:
        found = pair.measure(k)
        return {**found, "easy": replace(found["easy"], seconds_per_token=10 * found["easy"].seconds_per_token)}

    assert find_k(KS, slow_easy).k == find_k(KS, pair.measure).k


def test_a_workload_without_figures_for_one_k_is_left_out_of_the_choice() -> None:
    pair = Pair({"easy": 0.95, "hard": 0.2}, step=0.020, per_token=0.004)

    def cut_short(k: int) -> dict[str, Measured]:
        found = pair.measure(k)
        return {"easy": found["easy"]} if k != max(KS) else found

    assert find_k(KS, cut_short).k == find_k(KS, Pair({"easy": 0.95}, step=0.020, per_token=0.004).measure).k


def test_without_a_workload_in_common_nothing_is_predicted() -> None:
    pair = Pair({"easy": 0.95, "hard": 0.2}, step=0.020, per_token=0.004)

    def cut_short(k: int) -> dict[str, Measured]:
        return {name: found for name, found in pair.measure(k).items() if (name == "hard") == (k == max(KS))}

    found = find_k(KS, cut_short)
    assert (len(found.trials), found.predicted) == (3, {})


@pytest.mark.parametrize("seed", range(20))
def test_a_third_is_measured_at_most_however_wrong_the_predictions_are(seed: int) -> None:
    pair = Pair({"chat": 0.6}, step=0.020, per_token=0.004, noise=0.5, seed=seed)

    find_k(range(1, 10), pair.measure)

    assert len(pair.measured) <= 3


@pytest.mark.parametrize("rate", [0.7, 0.99])
@pytest.mark.parametrize("ks", [[5], [3, 7], [1, 4, 6]])
def test_few_k_are_all_measured_even_where_the_first_seem_best(ks: list[int], rate: float) -> None:
    pair = Pair({"chat": rate}, step=0.020, per_token=0.002)

    find_k(ks, pair.measure)

    assert sorted(pair.measured) == ks
