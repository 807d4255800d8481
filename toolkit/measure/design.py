"""What is measured: loads, arms and workloads, and when it is enough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from toolkit.measure.arm import Arm, Workload
from toolkit.measure.load import Ask, Timing
from toolkit.measure.result import RequestResult
from toolkit.measure.trace import Trace
from toolkit.recipe.schema import Slo

Cache = Literal["cold", "warm"]
"""Whether requests find prompts in the engines' prefix caches that were sent before: `cold` if they do not."""


@dataclass(frozen=True)
class Load:
    """The number of concurrent requests; with `open_loop` the requests per second."""

    value: float
    open_loop: bool = False

    def __str__(self) -> str:
        if self.open_loop:
            return f"{self.value:g} requests/s"
        return "one request at a time" if self.is_single else f"{self.value:g} concurrent requests"

    @property
    def is_single(self) -> bool:
        """Whether requests run one after the other."""
        return self.value == 1 and not self.open_loop


@dataclass(frozen=True)
class Design:
    """What to measure, and when to stop.

    `requests` are asked of each arm for every workload and load; None: as many as it takes for intervals of
    ±`precision` (0.05 is 5 %). No block begins that would end long after `seconds`, the warm-up included. `max_tokens`
    limits the answers of prompts without a
    limit of their own; None: 256, or up to 1,024 if the model reasons before it answers. `seed` decides in which order
    prompts are asked after the first round, and at what moments open loops ask. On a machine that all arms share, an
    engine that has just answered slows the others down for `settle_seconds`: another arm is asked after that time, with
    more in a row. With an `slo` there are no `loads`: the highest request rate within it is searched for, to
    ±`precision`. With a `trace` that is what is asked, `speed` times as fast as it was recorded; its prompts are made
    of the workloads' texts, and an `slo` is what its requests are held against. With `prompt_tokens` the workloads are
    measured at each of these lengths.
    """

    arms: tuple[Arm, ...]
    workloads: tuple[Workload, ...]
    baseline: Arm | None = None
    loads: tuple[Load, ...] = (Load(1),)
    precision: float = 0.05
    seconds: float = 60.0
    requests: int | None = None
    max_tokens: int | None = None
    seed: int = 0
    cache: Cache = "cold"
    settle_seconds: float = 0.0
    slo: Slo | None = None
    trace: Trace | None = None
    speed: float = 1.0
    prompt_tokens: tuple[int, ...] = ()

    @property
    def all_arms(self) -> tuple[Arm, ...]:
        return (*filter(None, [self.baseline]), *self.arms)


Send = Callable[[Arm, Sequence[Ask], Load, Timing], Awaitable[list[RequestResult]]]
"""Sends requests under a load: a result for each that was sent, failures too. It ends early once `stop` is set."""


@dataclass(frozen=True)
class Progress:
    """How far a measurement is: `requests` of each arm, of about `of`. `remaining` estimates the seconds still needed.

    `ratio` is the first arm's speedup on `doing` so far; None if there are too few answers, or no baseline.
    """

    requests: int
    seconds: float
    remaining: float
    doing: str
    of: int = 0
    ratio: float | None = None

    def __str__(self) -> str:
        of = f" of about {self.of}" if self.of > self.requests else ""
        ratio = f", {self.ratio:.2f}x so far" if self.ratio else ""
        return f"{self.doing}: {self.requests} requests{of}{ratio}, about {self.remaining:.0f} s to go"


LeftOut = tuple[str, float, bool, str]
"""Workload, load, whether it is an open loop, and arm."""


@dataclass(frozen=True)
class Measured:
    """Results; of very many a share of the blocks, see `result.py`.

    `left_out` counts the other answers. `complete` is False if the measurement was interrupted. `machine` tells what
    disturbed it here.
    """

    results: tuple[RequestResult, ...]
    left_out: Mapping[LeftOut, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    complete: bool = True
    machine: tuple[str, ...] = ()
