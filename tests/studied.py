"""A report of AWS's study as it might be measured: structured classes gain, the others do not."""

from __future__ import annotations

from dataclasses import replace

from reports import arm, verdict

from toolkit.measure.measurement import Speedup
from toolkit.measure.report import BenchReport
from toolkit.measure.study import CONCURRENCY

RATIOS = {"study/list-numbers": 2.8, "study/json": 1.6, "study/cat": 0.9}


def studied(complete: bool = True) -> BenchReport:
    """88.9 tokens a second of the four requests together are 45 ms for each token of one."""
    arms = [
        replace(arm(name, workload, CONCURRENCY, 4 / 0.045 * factor), answer_tokens=600.0)
        for workload, ratio in RATIOS.items()
        for name, factor in (("baseline", 1.0), ("speculative", ratio))
    ]
    speedups = tuple(
        Speedup(workload, CONCURRENCY, "speculative", ratio, ratio * 0.97, ratio * 1.03, pays=ratio > 1)
        for workload, ratio in RATIOS.items()
    )
    pays = tuple(verdict("pays", ratio > 1, workload=workload) for workload, ratio in RATIOS.items())
    verdicts = (verdict("lossless", True), *pays)
    return BenchReport("sd against sd-baseline", verdicts, tuple(arms), speedups, complete=complete)
