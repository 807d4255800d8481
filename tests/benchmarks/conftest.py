"""Benchmarks against AWS's stand-in use what the tests in tests/aws use."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "aws"))
