"""Benchmarks use what the tests against AWS's stand-in and on real engines use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("aws", "serving", "unit/measure")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, default=1.0, help="how long test_soak.py takes")
