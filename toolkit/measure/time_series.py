"""A report as figures that a platform's monitoring keeps over time: by variant (the arm), workload and load."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.endpoint.metrics import DIMENSIONS, Figure, Unit
from toolkit.measure.measurement import ArmReport, Speedup
from toolkit.measure.report import BenchReport
from toolkit.measure.wording import load


def figures_of(report: BenchReport) -> list[Figure]:
    """What is known of each arm at each point, and its speedup over the baseline. Times are in seconds."""
    rows: list[ArmReport | Speedup] = [*report.arms, *report.speedups]
    return [
        Figure(name, value, unit, dict(zip(DIMENSIONS, (row.arm, row.workload, load(row)), strict=True)))
        for row in rows
        for name, value, unit in (_of_arm(row) if isinstance(row, ArmReport) else _of_speedup(row))
        if value is not None
    ]


_Named = tuple[str, float | None, Unit]


def _of_arm(row: ArmReport) -> Iterator[_Named]:
    yield "OutputTokensPerSecond", row.output_tokens_per_second, "Count/Second"
    latencies = {
        "TimeToFirstToken": row.ttft,
        "InterTokenLatency": row.itl,
        "TimePerOutputToken": row.tpot,
        "EndToEndLatency": row.e2e,
    }
    for name, times in latencies.items():
        if times:
            yield f"{name}P50", times.p50, "Seconds"
            if times.p99 is not None:
                yield f"{name}P99", times.p99, "Seconds"
    yield "AcceptanceLength", row.acceptance_length, "None"
    yield "Requests", row.requests, "Count"
    yield "FailedRequests", row.failed, "Count"
    yield "DollarsPerMillionOutputTokens", row.price_per_million_output_tokens, "None"


def _of_speedup(row: Speedup) -> Iterator[_Named]:
    yield "Speedup", row.ratio, "None"
    yield "SpeedupLow", row.low, "None"
    yield "SpeedupHigh", row.high, "None"
