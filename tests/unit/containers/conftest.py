"""Tests of single functions import what the containers share as the containers do: by its own name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "containers" / "shared"))
