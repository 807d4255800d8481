"""The table of where the tests' time went."""

from __future__ import annotations

import pytest
from folder_times import by_folder


def report(nodeid: str, when: str, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(nodeid, (nodeid, 0, ""), {}, "passed", None, when, duration=seconds)  # type: ignore[arg-type]


def test_set_up_and_test_count_for_the_folder_below_tests() -> None:
    reports = [
        report("tests/serving/test_a.py::test_b", "setup", 3.0),
        report("tests/serving/deep/test_c.py::test_d", "call", 0.5),
        report("tests/unit/recipe/test_e.py::test_f[a/b]", "call", 0.25),
    ]
    assert by_folder(reports) == {"tests/serving": 3.5, "tests/unit": 0.25}
