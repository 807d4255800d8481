"""The order in which containers start where cores are few: side by side all of them would be slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# A start that takes longer keeps nobody waiting any more: it may be stuck.
_LONGEST_TURN_S = 120.0


class StartQueue:
    """Lets so many starts be under way `at_once`, in the order in which they entered."""

    def __init__(self, at_once: int, longest_s: float = _LONGEST_TURN_S) -> None:
        self._at_once, self._longest_s = at_once, longest_s
        self._changed = threading.Condition()
        self._entered: list[object] = []

    def enter(self) -> object:
        """Take a place; give it to `wait`, and to `leave` when the start is over."""
        place = object()
        with self._changed:
            self._entered.append(place)
        return place

    def wait(self, place: object, tell: Callable[[], None]) -> None:
        """Return when it is this one's turn, or those before it take too long. `tell` is called if it has to wait."""
        deadline = time.monotonic() + self._longest_s
        with self._changed:
            if self._is_behind(place):
                tell()
            self._changed.wait_for(lambda: not self._is_behind(place), deadline - time.monotonic())

    def leave(self, place: object) -> None:
        """Let the next one begin."""
        with self._changed:
            self._entered.remove(place)
            self._changed.notify_all()

    def _is_behind(self, place: object) -> bool:
        return self._entered.index(place) >= self._at_once
