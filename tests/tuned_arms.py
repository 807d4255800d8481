"""Reports of arms at some K whose speed follows a known law, so that the best K is known too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports import arm

from toolkit.measure.measurement import Interval, Speedup, Verdict
from toolkit.measure.report import BenchReport
from toolkit.measure.tune_report import TuneReport, TuneRow

RATES = {"structured": 0.9, "open-ended": 0.5}


def speedup(k: int, rate: float, concurrency: int = 1) -> float:
    """Each draft token makes a step longer, and more so for many requests; it is accepted with `rate`."""
    length = 1 + sum(rate**position for position in range(1, k + 1))
    return float(length / (1.1 + 0.2 * concurrency**0.5 * k))


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
    return BenchReport(f"K={k}", verdicts, tuple(arms), speedups, Interval(1.0, 0.98, 1.02), complete=complete)


def tuned() -> TuneReport:
    """K=4 is better than K=1, from which K=2 is predicted."""
    rows = (
        TuneRow("K=1", "structured", 1, None, 1.46, 1.41, 1.51, 1.9),
        TuneRow("K=4", "structured", 1, 2.1, 2.16, 2.09, 2.22, 4.1),
        TuneRow("K=2", "structured", 1, 1.81),
    )
    setting = {"hardware": "2 CPU cores", "engine": "vllm 0.32.0", "date": "2026-11-22"}
    title = "tiny: 2 settings against the baseline"
    keys = {"method": "p-eagle", "num_speculative_tokens": 4}
    return TuneReport(title, "latency", rows, "K=4", keys, 2, setting=setting, written="mine.yaml")
