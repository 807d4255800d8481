"""One measured request: when its tokens arrived, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from toolkit.endpoint.generation import Acceptance, Arrival

__all__ = ["Arrival", "Outcome", "RequestResult", "successful"]

Outcome = Literal["successful", "failed", "incomplete"]


@dataclass(frozen=True)
class RequestResult:
    """What came of one request. Times are in seconds.

    `prompt` is the prompt's index in its workload, `round` counts how often it was asked before, `started` is the time
    since the measurement began. `load` is the number of concurrent requests, or the requests per second with
    `open_loop`. An `incomplete` request was cut by the end of the measurement. `acceptance` is None if the engine
    reports no drafts for the request. Token ids and text are for comparing arms: they stay out of reports.
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
    output_tokens: int = 0
    reasoning_tokens: int = 0
    finish_reason: str | None = None
    acceptance: Acceptance | None = None
    error: str | None = None
    open_loop: bool = False
    prompt_token_ids: tuple[int, ...] = field(default=(), repr=False)
    token_ids: tuple[int, ...] = field(default=(), repr=False)
    text: str = field(default="", repr=False)
    reasoning: str = field(default="", repr=False)

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
