"""Intervals hold on a machine that drifts: a small sample of `tests/benchmarks/test_drifting_machines.py`."""

from __future__ import annotations

from drifting_machines import drifting, outcome
from simulated_arms import arm, result

from toolkit.measure.design import Load
from toolkit.measure.result import RequestResult
from toolkit.measure.summary import summarise

RUNS = 12
SHARED = (Load(4), Load(16), Load(5, open_loop=True))


def test_intervals_of_requests_that_share_a_drift_hold() -> None:
    """The arm is the baseline, a drift has 10 % and 20 s: 4 of 36 intervals may be wrong, and 1 of 12 verdicts."""
    loads = (Load(1), *SHARED)
    found = [outcome(seed, drifting(seed, 0.1, 20), loads=loads, seconds=160, prompts=12) for seed in range(RUNS)]
    shared = [run.speedups[load] for run in found for load in SHARED]
    assert sum(item.low <= 1 <= item.high for item in shared) >= len(shared) - 4
    assert max(item.high / item.low for item in shared) < 1.6
    assert sum(run.pays[0].holds is True for run in found) <= 1
    assert all(run.seconds <= 1.2 * 160 for run in found)


def in_blocks(load: float, open_loop: bool, stray: float) -> list[RequestResult]:
    """Eight blocks of four requests by two arms. Every second block of the arm takes so many times as long."""
    return [
        result(
            arm=which,
            load=load,
            open_loop=open_loop,
            block=block,
            round=block,
            prompt=prompt,
            seconds=1.0 + prompt / 10 * (stray if which == "spec" and block % 2 else 1.0),
        )
        for block in range(8)
        for which in ("base", "spec")
        for prompt in range(4)
    ]


def test_blocks_of_open_and_of_closed_loops_are_not_pooled() -> None:
    steady, straying = in_blocks(4, False, 1.1), in_blocks(5, True, 9.0)
    both, closed, opened = (
        summarise(results, [arm("spec")], arm("base")).blocks for results in ([*steady, *straying], steady, straying)
    )
    assert (both[False], both[True]) == (closed[False], opened[True])
    assert both[True].whole > 10 * both[False].whole > 0
