"""Wait for what a control plane does by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.02


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(_LOOK_SECONDS)
