"""How long the tests of each folder took, printed after a run of several folders: where `make test` spends its time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter

import pytest


def by_folder(reports: Iterable[pytest.TestReport]) -> Mapping[str, float]:
    """Seconds of set-up, test and teardown by folder below `tests/`."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        seconds["/".join(report.nodeid.split("/")[:2])] += report.duration
    return seconds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Under xdist the sum of what its processes took."""
    reports = (item for items in terminalreporter.stats.values() for item in items)
    seconds = by_folder(item for item in reports if isinstance(item, pytest.TestReport))
    if len(seconds) > 1:
        terminalreporter.section("seconds by folder")
        for folder, took in sorted(seconds.items(), key=itemgetter(1), reverse=True):
            terminalreporter.write_line(f"{took:8.0f}  {folder}")
