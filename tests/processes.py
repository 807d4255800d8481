"""Processes that a test has started, and what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Seen = TypeVar("Seen")


def until(look: Callable[[], Seen], timeout_s: float = 60.0) -> Seen:
    """What `look()` gives, once that is true."""
    deadline = time.monotonic() + timeout_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"nothing within {timeout_s} s"
        time.sleep(0.01)
    return seen


def processes_in(folder: Path) -> list[int]:
    """Ids of the processes that work in that folder or below."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if cwd.readlink().is_relative_to(folder):
                found.append(int(cwd.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
