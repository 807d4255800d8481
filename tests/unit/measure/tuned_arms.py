"""Reports of arms at some K whose speed follows a known law, so that the best K is known too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports import arm

from toolkit.measure.report import BenchReport, Noise, Speedup, Verdict

RATES = {"structured": 0.9, "open-ended": 0.5}


def speedup(k: int, rate: float, concurrency: int = 1) -> float:
    """Each draft token makes a step longer, and more so for many requests; it is accepted with `rate`."""
    length = 1 + sum(rate**position for position in range(1, k + 1))
    return length / (1.1 + 0.2 * concurrency**0.5 * k)


def report_at(
    k: int,
    rates: Mapping[str, float] = RATES,
    loads: Sequence[int] = (1,),
    faster: float = 1.0,
    verdicts: tuple[Verdict, ...] = (),
    complete: bool = True,
) -> BenchReport:
    """What `bench` reports of K draft tokens: exact but for an interval of 4 %."""
    points = [(name, load, rate) for name, rate in rates.items() for load in loads]
    speedups = tuple(
        Speedup(name, load, "speculative", ratio := faster * speedup(k, rate, load), ratio * 0.98, ratio * 1.02)
        for name, load, rate in points
    )
    arms = []
    for (name, load, rate), found in zip(points, speedups, strict=True):
        speculative = arm("speculative", name, load, 50.0 * load * found.ratio)
        positions = tuple(rate**position for position in range(1, k + 1))
        measured = {**vars(speculative), "acceptance_per_position": positions, "acceptance_length": 1 + sum(positions)}
        arms += [arm("baseline", name, load, 50.0 * load), type(speculative)(**measured)]
    return BenchReport(f"K={k}", verdicts, tuple(arms), speedups, Noise(1.0, 0.98, 1.02), complete=complete)
