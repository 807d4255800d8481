"""Durations as they are typed."""

from __future__ import annotations

import pytest

from toolkit.cli.arguments import seconds_of


@pytest.mark.parametrize(
    ("typed", "seconds"), [("90s", 90), (" 2m ", 120), ("10 min", 600), ("1.5h", 5400), ("168h", 604_800)]
)
def test_a_duration_has_its_unit(typed: str, seconds: float) -> None:
    assert seconds_of(typed) == seconds
