"""One measured request: when its tokens arrived, and what came of it. A journal keeps them, for who carries on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from toolkit import documents
from toolkit.endpoint.generation import Acceptance, Arrival
from toolkit.errors import UsageError
from toolkit.files import set_mode
from toolkit.recipe.content import digest

Outcome = Literal["successful", "failed", "incomplete"]


@dataclass(frozen=True)
class RequestResult:
    """What came of one request. Times are in seconds.

    `prompt` is the prompt's index in its workload, `round` counts how often it was asked before, `started` is the time
    since the measurement began. `load` is the number of concurrent requests, or the requests per second with
    `open_loop`. An `incomplete` request was cut by the end of the measurement. `acceptance` is None if the engine
    reports no drafts for the request, and `cached_tokens` if it does not say how many of the prompt's were in its
    prefix cache. With `counts_chunks` the server told neither usage nor token ids, and a chunk counts as a token. What
    was asked together has the same `block` within its workload and load. Token
    ids and text are for comparing arms: they stay out of reports.
    """

    arm: str
    workload: str
    prompt: int
    round: int
    load: float
    started: float
    seconds: float
    outcome: Outcome
    arrivals: tuple[Arrival, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    counts_chunks: bool = False
    output_tokens: int = 0
    reasoning_tokens: int = 0
    finish_reason: str | None = None
    acceptance: Acceptance | None = None
    error: str | None = None
    open_loop: bool = False
    block: int | None = None
    prompt_token_ids: tuple[int, ...] = field(default=(), repr=False)
    token_ids: tuple[int, ...] = field(default=(), repr=False)
    text: str = field(default="", repr=False)
    reasoning: str = field(default="", repr=False)

    @property
    def request(self) -> tuple[str, int, int, float, bool]:
        """What tells this request from the others that its arm was asked."""
        return self.workload, self.prompt, self.round, self.load, self.open_loop

    @property
    def ttft(self) -> float | None:
        """Time to the first generated token of any kind; None if none arrived."""
        return self.arrivals[0].seconds if self.arrivals else None

    @property
    def gaps(self) -> tuple[float, ...]:
        """Inter-token latencies (ITL): the time between two arrivals of tokens."""
        return tuple(later.seconds - earlier.seconds for earlier, later in pairwise(self.arrivals))

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first; None for answers of fewer than two tokens."""
        if self.ttft is None or self.output_tokens < 2:
            return None
        return (self.arrivals[-1].seconds - self.ttft) / (self.output_tokens - 1)


def successful(results: Sequence[RequestResult]) -> list[RequestResult]:
    """The results that latencies are taken from: failures are counted, never averaged over."""
    return [result for result in results if result.outcome == "successful"]


_LIMITS = documents.Limits(size=1024**3)


class Journal:
    """The results of one measurement, readable by its owner only: they contain the answers' texts.

    `setting` is all that decides what is measured; a file with results of another setting is refused. Where the file
    cannot be written the measurement goes on, and `notes` says so.
    """

    def __init__(self, path: Path, setting: Mapping[str, Any]) -> None:
        self.path = path
        self.notes: tuple[str, ...] = ()
        self._head = {"setting": digest(setting)}

    def results(self) -> list[RequestResult]:
        """What was measured before. A last line that was cut short is removed. Raises UsageError."""
        try:
            if hasattr(os, "geteuid") and self.path.is_file() and self.path.stat().st_uid != os.geteuid():
                # Somebody else has made it, and would read the answers.
                raise UsageError(f"{self.path} belongs to another user", hint="Write to a file of your own.")
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

    def add(self, results: Sequence[RequestResult]) -> None:
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
