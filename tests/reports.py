"""Reports of measurements that never took place, for tests of how they are shown."""

from __future__ import annotations

from dataclasses import replace

from toolkit.measure.measurement import (
    ArmReport,
    BreakEvenAcceptance,
    Claim,
    Interval,
    Percentiles,
    Speedup,
    Verdict,
    WhatIf,
    WhatIfSpeedup,
)
from toolkit.measure.pays import verdict_pays
from toolkit.measure.report import BenchReport

NOISE = Interval(1.01, 0.97, 1.05)
LOADS = (1, 4, 16, 64)
# Structured text pays up to 16 requests at a time, open-ended text hardly ever.
RATIOS = {"structured": (2.31, 1.92, 1.34, 0.93), "open-ended": (1.04, 1.01, 0.85, 0.71)}
BASELINE_TOKENS = (52.0, 198.0, 702.0, 1890.0)
PRICE_PER_HOUR = 4.20


def times(median: float) -> Percentiles:
    return Percentiles(median, median * 1.3, median * 2.1, 200)


def arm(name: str, workload: str, concurrency: int, tokens_per_second: float) -> ArmReport:
    """An arm whose latencies follow from its throughput. The baseline accepts no drafts."""
    tpot, speculative = concurrency / tokens_per_second, name != "baseline"
    positions = tuple(0.86**k if workload == "structured" else 0.45**k for k in range(1, 8)) if speculative else ()
    return ArmReport(
        arm=name,
        workload=workload,
        concurrency=concurrency,
        requests=48,
        failed=0,
        incomplete=0,
        ttft=times(0.08 + 0.01 * concurrency),
        itl=times(tpot * (1 + sum(positions))),
        tpot=times(tpot),
        e2e=times(0.1 + 256 * tpot),
        output_tokens_per_second=tokens_per_second,
        acceptance_length=1 + sum(positions) if speculative else None,
        acceptance_per_position=positions,
        identical=0.97 if speculative else None,
        price_per_million_output_tokens=PRICE_PER_HOUR / (tokens_per_second * 3600) * 1e6,
    )


def verdict(claim: Claim, holds: bool | None, detail: str = "as it should be", workload: str | None = None) -> Verdict:
    return Verdict(claim, holds, detail, workload)


def example() -> BenchReport:
    """A full report of one head on two workloads at four loads: it pays for one of them."""
    points = [
        (workload, *point)
        for workload, ratios in RATIOS.items()
        for point in zip(LOADS, BASELINE_TOKENS, ratios, strict=True)
    ]
    arms = [
        arm(name, workload, load, tokens * factor)
        for workload, load, tokens, ratio in points
        for name, factor in (("baseline", 1.0), ("p-eagle", ratio))
    ]
    return BenchReport(
        title="gpt-oss-20b-p-eagle",
        verdicts=(
            verdict("on", True, "1,204 target steps verified drafts"),
            verdict("lossless", True, "none of 12,288 tokens is further from the target's first choice than its own"),
            verdict("pays", True, "1.34x to 2.31x up to 16 concurrent requests", "structured"),
            verdict("pays", None, "1.04x with one request at a time is within the noise", "open-ended"),
        ),
        arms=tuple(arms),
        speedups=tuple(
            Speedup(workload, load, "p-eagle", *interval, pays=verdict_pays(Interval(*interval), NOISE))
            for workload, load, _, ratio in points
            for interval in [(ratio, ratio * 0.95, ratio * 1.06)]
        ),
        noise=NOISE,
        notes=("The machine was idle.",),
        setting={"hardware": "1 x RTX PRO 6000", "vllm": "0.32.0", "date": "2026-11-22"},
    )


def with_verdicts(*verdicts: Verdict) -> BenchReport:
    return replace(example(), verdicts=verdicts)


def with_text(text: str) -> BenchReport:
    """The example with each of its texts replaced, or extended where they tell arms and workloads apart."""
    report = example()
    return BenchReport(
        text,
        tuple(replace(verdict, detail=text, workload=text) for verdict in report.verdicts),
        tuple(replace(arm, arm=arm.arm + text, workload=arm.workload + text) for arm in report.arms),
        tuple(replace(item, arm=item.arm + text, workload=item.workload + text) for item in report.speedups),
        report.noise,
        (text,),
        {text: text},
    )


def what_if_example() -> BenchReport:
    """The example, with what heads of other acceptance would do."""
    rows = [
        WhatIfSpeedup(
            "structured", load, "p-eagle", length, length / even, length / even * 0.9, length / even * 1.1, "steps"
        )
        for load, even in ((1, 2.0), (16, 4.0))
        for length in (2.0, 3.5)
    ]
    even = BreakEvenAcceptance("structured", 1, "p-eagle", 2.0, 1.8, 2.2)
    never = BreakEvenAcceptance("structured", 16, "p-eagle", None, None, None)
    return replace(example(), what_if=WhatIf(tuple(rows), (even, never)))
