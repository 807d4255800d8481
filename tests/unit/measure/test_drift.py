"""Intervals hold on a machine that drifts: a small sample of `tests/benchmarks/test_drifting_machines.py`."""

from __future__ import annotations

from drifting_machines import drifting, outcome

from toolkit.measure.design import Load

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
