"""What was done, one JSON line per event, written before and after each action: a killed command leaves its story.

It is history only. A record that cannot be written or read never stops a command: it is said once, and all goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

from toolkit import documents
from toolkit.errors import PlatformError
from toolkit.files import for_owner, make_private_folder, write_whole
from toolkit.planning.plan import Action, Plan
from toolkit.recipe.starts import MeasuredStart
from toolkit.text import hide_secrets

# A longer record is cut to its newest half: some 25,000 events.
_MOST_BYTES = 8 * 1024**2

# No platform waits for a day.
_LONGEST_START = 86_400.0

Step = Literal["started", "done", "failed", "interrupted"]


@dataclass(frozen=True)
class Event:
    """One line of a record. `time` is UTC, ISO 8601; `recipe` is a file, empty where an endpoint was named instead.

    `detail` holds the error of a failure, and of a start how long its stages took. `place` is the platform with its
    account and region, or its cluster's namespace; empty in lines of older versions, which told none.
    """

    time: str
    plan: str
    kind: str
    name: str
    verb: str
    step: Step
    detail: str = ""
    recipe: str = ""
    place: str = ""


_utc_now = partial(datetime.now, UTC)


class Record:
    """The history of one endpoint in a file. `warn` is called once if the file cannot be written or read.

    Endpoints of that name in other places share the file; only events of `place` are told. A platform alone is a place.
    """

    def __init__(
        self, path: Path, warn: Callable[[str], object], now: Callable[[], datetime] = _utc_now, *, place: str = ""
    ) -> None:
        self.path = path
        self._place = place
        self._warn = warn
        self._now = now

    def write(self, plan: Plan, action: Action, step: Step, detail: str = "") -> None:
        """Append one event and force it to disk before anything else happens."""
        self._write(plan, action.kind, action.name, action.verb, step, detail)

    def _write(self, plan: Plan, kind: str, name: str, verb: str, step: Step, detail: str) -> None:
        time, made_from = self._now().isoformat(timespec="milliseconds"), plan.fingerprint[:12]
        event = Event(time, made_from, kind, name, verb, step, detail, plan.recipe, self._place)
        try:
            self._append(json.dumps(asdict(event)))
        except OSError as error:
            self._say(f"this command is not recorded in {self.path}: {error.strerror}. It goes on all the same")

    def write_start(self, plan: Plan, endpoint: str, start: MeasuredStart) -> None:
        """Append how long the endpoint's start took, once it is in service."""
        self._write(plan, "Start", endpoint, "start", "done", json.dumps(asdict(start)))

    def last_start(self, of: str) -> MeasuredStart | None:
        """The newest start of that, with its day."""
        for event in reversed(self.events()):
            if event.kind != "Start":
                continue
            with suppress(documents.Unfit):
                start = documents.parse(MeasuredStart, event.detail)
                if start.of == of and all(0 <= seconds <= _LONGEST_START for seconds in start.seconds.values()):
                    return replace(start, day=event.time[:10])
        return None

    def events(self) -> list[Event]:
        """All events of the place, and of what is in it, oldest first."""
        inside = f"{self._place}/"
        return [event for event in self._read() if not event.place or f"{event.place}/".startswith(inside)]

    def other_places(self) -> list[str]:
        """Where else there are events of endpoints of that name."""
        return sorted({event.place for event in self._read()} - {"", self._place})

    def _read(self) -> list[Event]:
        """Lines that are not events are left out, such as a last line that a crash cut short."""
        try:
            with self.path.open("rb") as stream:
                *lines, _unfinished = _newest(stream).split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            self._say(f"what was done before cannot be read in {self.path}: {error.strerror}")
            return []
        found = []
        for line in lines:
            with suppress(documents.Unfit):
                found.append(documents.parse(Event, line))
        if unread := len(lines) - len(found):
            self._say(f"{unread} of {len(lines)} lines of {self.path} are not events: they are ignored")
        return found

    def _append(self, line: str) -> None:
        """Write after the last whole line, and remove a partial one that a crash or a full disk caused."""
        make_private_folder(self.path.parent)
        self._cut()
        with open(self.path, "a+b", opener=for_owner) as stream:
            newest = _newest(stream)
            end = stream.tell()
            whole = end - len(newest) + newest.rfind(b"\n") + 1
            if whole < end:  # else a line would go that another process has written since
                stream.truncate(whole)
            stream.write(hide_secrets(line).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _cut(self) -> None:
        """Let the older half of a record go that has grown too long. A crash, or a full disk, leaves it as it was."""
        with suppress(FileNotFoundError, PlatformError):
            if self.path.stat().st_size <= _MOST_BYTES:
                return
            with self.path.open("rb") as stream:
                stream.seek(-_MOST_BYTES // 2, os.SEEK_END)
                _, _, newest = stream.read().partition(b"\n")
            write_whole(self.path, newest.decode(errors="replace"))

    def _say(self, text: str) -> None:
        self._warn(f"warning: {text}.")
        self._warn = lambda _: None


def _newest(stream: BinaryIO) -> bytes:
    """The end of a record, which is all of most; the stream is then at its end."""
    stream.seek(max(0, stream.seek(0, os.SEEK_END) - _MOST_BYTES))
    return stream.read()
