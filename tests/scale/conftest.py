"""Sizes of a year of use: a sample always, the whole with $TOOLKIT_SCALE. What they cost is held against budgets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in (".", "aws", "kubernetes", "unit/measure")]

from standin import StandIn  # noqa: E402


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """AWS, which this process talks to."""
    with StandIn() as standin:
        for name, value in standin.environment().items():
            monkeypatch.setenv(name, value)
        yield standin
