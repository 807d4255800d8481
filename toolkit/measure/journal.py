"""Results of a measurement in a file, one JSON line each, so that an interrupted one can be continued."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.files import set_mode
from toolkit.measure.result import RequestResult

_LIMITS = documents.Limits(size=1024**3)


class Journal:
    """The results of one measurement, readable by its owner only: they contain the answers' texts.

    `setting` is all that decides what is measured; a file with results of another setting is refused. Where the file
    cannot be written the measurement goes on, and `notes` says so.
    """

    def __init__(self, path: Path, setting: Mapping[str, Any]) -> None:
        self.path = path
        self.notes: tuple[str, ...] = ()
        self._head = {"setting": hashlib.sha256(json.dumps(setting, sort_keys=True).encode()).hexdigest()}

    def results(self) -> list[RequestResult]:
        """What was measured before. A last line that was cut short is removed. Raises UsageError."""
        try:
            self._must_be_ours()
            content = documents.read_file(self.path, _LIMITS)
            if not content:
                return []
            head, *lines = content.split(b"\n")
            if documents.parse(dict[str, str], head) != self._head:
                hint = "Repeat the command that began it, or write to another file."
                raise UsageError(f"{self.path} holds the results of a measurement with another setting", hint=hint)
            cut = lines.pop() if lines else head
            found = [documents.parse(RequestResult, line) for line in lines]
            if cut:
                os.truncate(self.path, len(content) - len(cut))
            return found
        except FileNotFoundError:
            return []
        except (OSError, documents.Unfit) as error:
            hint = "Write to another file to measure from the start."
            raise UsageError(f"{self.path} cannot be continued: {error}", hint=hint) from error

    def _must_be_ours(self) -> None:
        """Raise UsageError for a file that somebody else has made: they would read the answers."""
        if hasattr(os, "geteuid") and self.path.is_file() and self.path.stat().st_uid != os.geteuid():
            raise UsageError(f"{self.path} belongs to another user", hint="Write to a file of your own.")

    def add(self, results: Sequence[RequestResult]) -> None:
        """Append results."""
        if self.notes:
            return
        lines = [asdict(item) for item in results]
        try:
            self.path.touch(mode=0o600)
            with self.path.open("ab") as stream:
                if stream.tell() == 0:
                    set_mode(stream, self.path, 0o600)
                    lines = [self._head, *lines]
                stream.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
        except OSError as error:
            self.notes = (f"results were not saved to {self.path}: {error.strerror}",)
