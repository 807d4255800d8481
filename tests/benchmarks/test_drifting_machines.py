"""How often intervals hold the truth and verdicts are right on machines that drift, by the product's own path.

RUNS is how often each kind of machine is measured (100), SECONDS how long (300, of the simulated clock). Prints, for
each kind and concurrency: coverage and half-width; then false verdicts, and how often a gain was found.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from statistics import median

import pytest
from drifting_machines import Outcome, Slowdown, drifting, neighboured, outcome, stepping

from toolkit.measure.design import Load

RUNS = int(os.environ.get("RUNS", "100"))
SECONDS = float(os.environ.get("SECONDS", "300"))
LOADS = (*map(Load, (1, 4, 16, 64)), Load(2, open_loop=True), Load(10, open_loop=True))
MACHINES: dict[str, Callable[[int], Slowdown]] = {
    **{
        f"drift of {deviation:.0%}, tau {tau} s": lambda seed, d=deviation, t=tau: drifting(seed, d, t)  # type: ignore[misc]
        for deviation in (0.03, 0.05, 0.1)
        for tau in (5, 20, 60)
    },
    "steps of 10 %, each 30 s": lambda seed: stepping(seed, 0.1, 30),
    "a neighbour of 20 %, each 15 s": lambda seed: neighboured(seed, 0.2, 15),
}
GAINS = (1.05, 1.15, 1.5)
# Binomial noise of RUNS on top of the nominal 5 and 2.5 %.
_LEAST_COVERAGE = 0.93 - 3 * math.sqrt(0.05 * 0.95 / RUNS)
_MOST_FALSE = 0.025 + 3 * math.sqrt(0.025 * 0.975 / RUNS)


@pytest.mark.timeout(36000)
@pytest.mark.parametrize("name", MACHINES)
def test_intervals_hold_and_verdicts_are_right(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    null = [outcome(seed, MACHINES[name](seed), loads=LOADS, seconds=SECONDS) for seed in range(RUNS)]
    coverage = {load: _coverage(null, load) for load in LOADS}
    false = sum(item.pays[0].holds is True for item in null) / RUNS
    shown = "  ".join(f"{_short(load)}: {coverage[load]:.2f} ±{_width(null, load):.1%}" for load in LOADS)
    power = {gain: _found(MACHINES[name], gain) for gain in GAINS}
    found = ", ".join(f"{gain}x {share:.0%}" for gain, share in power.items())
    with capsys.disabled():
        print(f"\n{name}: {shown}; false {false:.1%}; found {found}", flush=True)
    assert min(coverage.values()) >= _LEAST_COVERAGE
    assert false <= _MOST_FALSE


def _short(load: Load) -> str:
    return f"{load.value:g}/s" if load.open_loop else f"c={load.value:g}"


def _coverage(runs: list[Outcome], load: Load) -> float:
    found = [item.speedups[load] for item in runs if load in item.speedups]
    return sum(item.low <= 1 <= item.high for item in found) / len(found) if found else math.nan


def _width(runs: list[Outcome], load: Load) -> float:
    widths = [item.speedups[load].high / item.speedups[load].ratio - 1 for item in runs if load in item.speedups]
    return median(widths) if widths else math.nan


def _found(machine: Callable[[int], Slowdown], gain: float) -> float:
    runs = [outcome(seed, machine(seed), gain, LOADS, SECONDS) for seed in range(max(1, RUNS // 10))]
    return sum(item.pays[0].holds is True for item in runs) / len(runs)
