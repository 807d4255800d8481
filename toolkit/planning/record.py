"""What was done, one JSON line per event, written before and after each action: a killed command leaves its story."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from toolkit import documents
from toolkit.planning.plan import Action, Plan

_LONGEST_LINE = 1024**2

Step = Literal["started", "done", "failed", "interrupted"]


@dataclass(frozen=True)
class Event:
    """One line of a record. `time` is UTC, ISO 8601; `detail` holds the error of a failure."""

    time: str
    plan: str
    kind: str
    name: str
    verb: str
    step: Step
    detail: str = ""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Record:
    """The history of one endpoint in a file. Losing it loses the story only: the platform is the truth."""

    def __init__(self, path: Path, now: Callable[[], datetime] = _utc_now) -> None:
        self.path = path
        self._now = now

    def write(self, plan: Plan, action: Action, step: Step, detail: str = "") -> None:
        """Append one event and force it to disk before anything else happens."""
        event = Event(
            self._now().isoformat(timespec="milliseconds"),
            plan.fingerprint[:12],
            action.kind,
            action.name,
            action.verb,
            step,
            detail,
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(("" if self._ends_with_a_whole_line() else "\n") + json.dumps(asdict(event)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _ends_with_a_whole_line(self) -> bool:
        return self.path.read_bytes()[-1:] in (b"", b"\n")

    def last(self) -> Event | None:
        """The newest event, None when there is none."""
        return next(iter(deque(self.events(), maxlen=1)), None)

    def events(self) -> Iterator[Event]:
        """All events, oldest first. What is not one is left out, such as a line cut short by a crash."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as stream:
            while line := stream.readline(_LONGEST_LINE):
                with suppress(documents.Unfit):
                    yield documents.parse(Event, line)
