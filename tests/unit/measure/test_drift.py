"""Intervals hold on a machine that drifts: a small sample of `tests/benchmarks/test_drifting_machines.py`."""

from __future__ import annotations

from drifting_machines import drifting, outcome

RUNS = 12


def test_intervals_of_concurrent_requests_hold_on_a_machine_that_drifts() -> None:
    """An arm that is the baseline, a drift of 10 % with a time constant of 20 s: 24 intervals, at most 3 wrong."""
    found = [outcome(seed, drifting(seed, 0.1, 20), loads=(1, 4, 16), seconds=120, prompts=12) for seed in range(RUNS)]
    concurrent = [run.speedups[load] for run in found for load in (4, 16)]
    assert sum(item.low <= 1 <= item.high for item in concurrent) >= len(concurrent) - 3
    assert max(item.high / item.low for item in concurrent) < 1.6
    assert not any(run.pays[0].holds for run in found)
    assert all(run.seconds <= 1.2 * 120 for run in found)
