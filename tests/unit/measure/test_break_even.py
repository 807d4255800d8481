"""Where speculation stops paying, and the schedule that follows."""

from __future__ import annotations

import pytest

from toolkit.measure.break_even import break_even_in_words, schedule
from toolkit.measure.measurement import Speedup


def speedup(arm: str, concurrency: int, ratio: float, workload: str = "chat") -> Speedup:
    return Speedup(workload, concurrency, arm, ratio, ratio - 0.1, ratio + 0.1)


def test_the_break_even_lies_between_the_last_that_pays_and_the_first_that_costs() -> None:
    (found,) = break_even_in_words([speedup("K=7", 1, 2.0), speedup("K=7", 4, 2.0), speedup("K=7", 16, 0.5)])

    # 2.0 and 0.5 are equally far from 1, and so is 8 from 4 and 16
    assert found == "K=7 on chat breaks even at about 8 concurrent requests."


@pytest.mark.parametrize(("ratios", "words"), [((1.5, 1.2), "does not break even"), ((0.9, 1.2), "is slower at the")])
def test_an_arm_may_always_pay_or_never(ratios: tuple[float, float], words: str) -> None:
    (found,) = break_even_in_words([speedup("K=7", 1, ratios[0]), speedup("K=7", 8, ratios[1])])

    assert words in found


def test_it_is_told_where_several_concurrencies_were_measured() -> None:
    points = {"a": (2.0, 0.5), "b": (1.5, 1.2), "c": (0.9, 0.8)}
    found = [
        speedup(arm, load, ratio) for arm, ratios in points.items() for load, ratio in zip((1, 4), ratios, strict=True)
    ]
    assert break_even_in_words([*found, speedup("d", 1, 2.0)]) == [
        "a on chat breaks even at about 2 concurrent requests.",
        "b on chat does not break even up to 4 concurrent requests, the most that was measured: it is faster.",
        "c on chat is slower at the lowest concurrency already.",
    ]


def test_the_schedule_takes_the_best_k_at_each_batch_size() -> None:
    measured = [
        *(speedup("K=7", *point) for point in [(1, 3.0), (4, 2.0), (16, 0.8)]),
        *(speedup("K=2", *point) for point in [(1, 2.0), (4, 1.9), (16, 1.2)]),
    ]

    assert schedule(measured, {"K=7": 7, "K=2": 2}, 64) == ((1, 8, 7), (9, 64, 2))


def test_where_every_k_costs_nothing_is_drafted() -> None:
    measured = [speedup("K=7", 1, 1.5), speedup("K=7", 16, 0.8)]

    assert schedule(measured, {"K=7": 7}, 16) == ((1, 4, 7), (5, 16, 0))


def test_workloads_count_alike() -> None:
    measured = [
        speedup("K=7", 1, 4.0, "structured"),
        speedup("K=7", 1, 0.2, "open-ended"),
        speedup("K=2", 1, 1.5, "structured"),
        speedup("K=2", 1, 1.1, "open-ended"),
    ]

    assert schedule(measured, {"K=7": 7, "K=2": 2}, 8) == ((1, 8, 2),)


def test_other_methods_and_larger_batches_are_left_out() -> None:
    measured = [speedup("ngram", 1, 9.0), speedup("K=7", 1, 1.5), speedup("K=2", 64, 3.0)]

    assert schedule(measured, {"K=7": 7, "K=2": 2}, 8) == ((1, 8, 7),)
