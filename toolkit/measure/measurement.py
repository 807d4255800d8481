"""What came of a measurement, as data: figures, verdicts, speedups. `report.py` shows it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Claim = Literal["on", "accepted", "lossless", "pays", "baseline", "same-target", "expected"]
Source = Literal["synthetic", "steps"]
Missed = Literal["failed", "ttft", "tpot", "e2e"]


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of a time in seconds, of so many `samples`. `p99` is None for fewer than a hundred of them."""

    p50: float
    p90: float
    p99: float | None
    samples: int


@dataclass(frozen=True)
class Verdict:
    """A claim, and whether it holds; None: the measurement does not show it. `workload` is None for all of them."""

    claim: Claim
    holds: bool | None
    detail: str
    workload: str | None = None


@dataclass(frozen=True)
class ArmReport:
    """One arm on one workload at one load.

    `concurrency` is the number of concurrent requests, None in an open loop, where `rate` is the requests per second.
    `requests` counts all, `failed` and `incomplete` those that no figure includes. `identical` is the share of answers
    that equal the baseline's token for token; `within_slo` is the share of requests within an SLO, and `meets_slo`
    whether that is enough, both None without one. `acceptance_length_low` and `_high`
    are its 95 % interval. `cached_share` is the share of the prompts' tokens that were in the engine's prefix cache,
    None if it does not say. `prompt_tokens` and `answer_tokens` are means. `price_per_million_output_tokens` is in US
    dollars. `joules_per_output_token` counts all GPUs of the endpoint's machine, None where that is not this one.
    """

    arm: str
    workload: str
    concurrency: int | None
    requests: int
    failed: int
    incomplete: int
    ttft: Percentiles | None
    itl: Percentiles | None
    tpot: Percentiles | None
    e2e: Percentiles | None
    output_tokens_per_second: float | None
    rate: float | None = None
    reasoning_share: float | None = None
    acceptance_length: float | None = None
    acceptance_per_position: tuple[float, ...] = ()
    identical: float | None = None
    goodput: float | None = None
    meets_slo: bool | None = None
    price_per_million_output_tokens: float | None = None
    cached_share: float | None = None
    acceptance_length_low: float | None = None
    acceptance_length_high: float | None = None
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    joules_per_output_token: float | None = None
    within_slo: float | None = None


@dataclass(frozen=True)
class Opinion:
    """What the platform's own benchmark says of an arm: rates a second, and times in seconds at the median.

    `profile` are the settings that it was asked with. A figure is None where it does not tell.
    """

    arm: str
    by: str
    concurrency: int
    requests: float | None
    output_tokens_per_second: float | None
    ttft: float | None
    itl: float | None
    e2e: float | None
    profile: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Speedup:
    """How many times faster an arm is than the baseline, with a 95 % interval.

    `pays` is True if it pays, False if it costs, None if neither is shown (`pays.py`).
    """

    workload: str
    concurrency: int | None
    arm: str
    ratio: float
    low: float
    high: float
    rate: float | None = None
    pays: bool | None = None


@dataclass(frozen=True)
class ArmSpeedup:
    """How many times faster the first arm is than another one, with a 95 % interval: both were asked the same."""

    workload: str
    concurrency: int | None
    arm: str
    other: str
    ratio: float
    low: float
    high: float
    rate: float | None = None


@dataclass(frozen=True)
class Interval:
    """A ratio with its 95 % interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Gain:
    """How much better an arm drafts than a baseline that drafts, too; above 1 is better.

    `decoding` is the ratio of the tokens per second after each answer's first, which is 1/TPOT. `acceptance` is the
    ratio of the acceptance lengths. The intervals of all points hold together in 95 % of all cases (Bonferroni).
    """

    workload: str
    concurrency: int | None
    arm: str
    decoding: Interval
    acceptance: Interval
    rate: float | None = None


@dataclass(frozen=True)
class WhatIfSpeedup:
    """How many times faster than the baseline an arm would be at an acceptance length, with a 95 % interval.

    `source` says how that is known: measured with drafts that are accepted by chance (`synthetic`), or computed from
    the measured `steps` per second of an arm whose acceptance is another.
    """

    workload: str
    concurrency: int
    arm: str
    acceptance_length: float
    ratio: float
    low: float
    high: float
    source: Source


@dataclass(frozen=True)
class BreakEvenAcceptance:
    """The acceptance length below which an arm is slower than the baseline, with a 95 % interval.

    All three are computed from the arm's measured steps per second. None: no acceptance length is large enough.
    """

    workload: str
    concurrency: int
    arm: str
    acceptance_length: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class RateRatio:
    """How many times the baseline's highest rate within the SLO an arm's is, as far as both ranges reach."""

    workload: str
    arm: str
    ratio: float
    low: float
    high: float


Ratio = Interval | Speedup | ArmSpeedup | WhatIfSpeedup | RateRatio
"""What has a ratio and the ends of its 95 % interval."""


@dataclass(frozen=True)
class WhatIf:
    """What a drafter of other acceptance would do."""

    speedups: tuple[WhatIfSpeedup, ...]
    break_even: tuple[BreakEvenAcceptance, ...]


@dataclass(frozen=True)
class Saturation:
    """The highest rate of requests, per second, at which an arm meets an SLO on a workload.

    None: the SLO is met at no rate that was asked. Every block of requests up to the rate `low` met it, and none from
    `high` on; each is None if there is no such rate. `unmet` is the lowest rate that does not meet it, None if all do;
    `missed_first` is what most of the requests missed there. It is not `settled` if the time was up before the rates
    were as close as was asked.
    """

    arm: str
    workload: str
    rate: float | None
    low: float | None
    high: float | None
    unmet: float | None
    missed_first: Missed | None
    blocks: int
    settled: bool


@dataclass(frozen=True)
class Measurement:
    """What came of a measurement. Truthy if no verdict fails.

    `complete` is False if it ended early: Ctrl-C `interrupted` it, or an arm broke off while its answers were judged.
    `points` is how many speedups were to be measured; fewer may have come of it. `machine` tells what disturbed the one
    that measured. `noise` is the baseline against itself: how far a ratio strays on this machine, this hour, with
    nothing to measure. `opinions` are those of another benchmark, if one was asked. `saturation` and `rate_ratios` are
    what a search for the highest rate within an SLO found.
    """

    title: str
    verdicts: tuple[Verdict, ...]
    arms: tuple[ArmReport, ...]
    speedups: tuple[Speedup, ...] = ()
    noise: Interval | None = None
    notes: tuple[str, ...] = ()
    setting: dict[str, Any] = field(default_factory=dict)
    complete: bool = True
    interrupted: bool = False
    what_if: WhatIf | None = None
    gains: tuple[Gain, ...] = ()
    between_arms: tuple[ArmSpeedup, ...] = ()
    points: int = 0
    machine: tuple[str, ...] = ()
    opinions: tuple[Opinion, ...] = ()
    saturation: tuple[Saturation, ...] = ()
    rate_ratios: tuple[RateRatio, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no verdict fails; one that is not shown does not."""
        return all(verdict.holds is not False for verdict in self.verdicts)

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit bench --json` and `toolkit prove --json`. Times are in seconds."""
        return {"ok": self.ok, **asdict(self)}
