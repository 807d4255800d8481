"""Read a report that was saved: what `toolkit bench --json` or `toolkit prove --json` printed."""

from __future__ import annotations

from pathlib import Path

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.measure.report import BenchReport


def read_report(path: Path) -> BenchReport:
    """The report in a file. Raises UsageError."""
    hint = "Give a file that `toolkit bench … --json > FILE` wrote."
    try:
        return documents.parse(BenchReport, documents.read_file(path))
    except documents.Unfit as error:
        raise UsageError(f"{path} is not a saved report: {error}", hint=hint) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=hint) from error
