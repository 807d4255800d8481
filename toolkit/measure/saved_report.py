"""Read a report that was saved: what `toolkit bench --json` or `toolkit prove --json` printed."""

from __future__ import annotations

from pathlib import Path

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.measure.measurement import ArmSpeedup, Interval, Speedup, WhatIfSpeedup
from toolkit.measure.report import BenchReport

# Beyond what any measurement gives; reckoning with larger ratios could overflow.
_LARGEST_RATIO = 1e6


def read_report(path: Path) -> BenchReport:
    """The report in a file. Raises UsageError."""
    hint = "Give a file that `toolkit bench … --json > FILE` wrote."
    try:
        report = documents.parse(BenchReport, documents.read_file(path))
        _check_ratios(report)
    except documents.Unfit as error:
        raise UsageError(f"{path} is not a saved report: {error}", hint=hint) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=hint) from error
    return report


def _check_ratios(report: BenchReport) -> None:
    named: list[tuple[str, Speedup | ArmSpeedup | Interval | WhatIfSpeedup]] = [
        *((f"`speedups.{i}`", item) for i, item in enumerate(report.speedups)),
        *((f"`between_arms.{i}`", item) for i, item in enumerate(report.between_arms)),
        *(
            (f"`what_if.speedups.{i}`", item)
            for i, item in enumerate(report.what_if.speedups if report.what_if else ())
        ),
        *([("`noise`", report.noise)] if report.noise else []),
        *((f"`gains.{i}.decoding`", item.decoding) for i, item in enumerate(report.gains)),
        *((f"`gains.{i}.acceptance`", item.acceptance) for i, item in enumerate(report.gains)),
    ]
    for name, item in named:
        if not 1 / _LARGEST_RATIO < item.low <= item.ratio <= item.high < _LARGEST_RATIO:
            raise documents.Unfit(f"{name}: low, ratio and high should be positive and in this order")
