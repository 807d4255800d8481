"""An endpoint's recent metrics, from its platform and its engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from toolkit.display import bullets, card, facts
from toolkit.text import inert

Unit = Literal["Seconds", "Count", "Count/Second", "None"]

DIMENSIONS = ("Variant", "Workload", "Load")
"""What tells figures of one name apart: the arm, what it was asked, and how many requests at a time."""


@dataclass(frozen=True)
class Figure:
    """A figure for a platform's monitoring; `dimensions` tell it apart from others of its name."""

    name: str
    value: float
    unit: Unit
    dimensions: Mapping[str, str]


@dataclass(frozen=True)
class Percentiles:
    p50: float
    p99: float


@dataclass(frozen=True)
class EngineMetrics:
    """The engine's own metrics, over all its containers. Times are in seconds; the rate is a fraction of 1."""

    ttft: Percentiles | None = None
    itl: Percentiles | None = None
    output_tokens_per_second: float | None = None
    acceptance_length: float | None = None
    acceptance_rate: float | None = None


@dataclass(frozen=True)
class Metrics:
    """Metrics of the last `minutes`. Times are in seconds; unknown values are None, and `notes` say why.

    `client_errors` and `server_errors` count the container's 4xx and 5xx answers. `model_latency` is the container's
    time for whole requests, `overhead_latency` what SageMaker adds on average, `concurrent_requests` the maximum on one
    instance or copy, `gpu_utilization` the mean in percent, summed over the GPUs of an instance: four busy GPUs are
    400. If an endpoint has several variants, counts are added up, and the worst of the other values is given.
    """

    endpoint: str
    minutes: int
    invocations: int = 0
    client_errors: int = 0
    server_errors: int = 0
    model_latency: Percentiles | None = None
    overhead_latency: float | None = None
    concurrent_requests: int | None = None
    gpu_utilization: float | None = None
    engine: EngineMetrics = EngineMetrics()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit metrics --json`."""
        return asdict(self)

    def rows(self) -> Iterator[tuple[str, str]]:
        errors = f"{self.client_errors} with a 4xx and {self.server_errors} with a 5xx error"
        yield "requests", f"{self.invocations}, {errors}"
        yield from _known("model latency", self.model_latency)
        yield from _known("overhead", self.overhead_latency, "{:.3f} s")
        yield from _known("concurrent requests", self.concurrent_requests, "at most {}")
        yield from _known("GPU utilization", self.gpu_utilization, "{:.0f} %")
        yield from _known("TTFT", self.engine.ttft)
        yield from _known("ITL", self.engine.itl)
        yield from _known("output tokens/s", self.engine.output_tokens_per_second, "{:.1f}")
        yield from _known("acceptance length", self.engine.acceptance_length, "{:.2f} tokens per target step")
        yield from _known("acceptance rate", self.engine.acceptance_rate, "{:.0%} of draft tokens")

    def __repr__(self) -> str:
        lines = [f"  {name:20} {text}" for name, text in self.rows()]
        notes = [f"  {note}" for note in self.notes]
        return inert("\n".join([f"<Metrics {self.endpoint}: {self.minutes} minutes>", *lines, *notes]))

    def _repr_html_(self) -> str:
        return card(self.endpoint, facts(self.rows()), bullets(self.notes), says=f"the last {self.minutes} minutes")


def _known(name: str, value: Percentiles | float | None, form: str = "{}") -> Iterator[tuple[str, str]]:
    if isinstance(value, Percentiles):
        yield name, f"{value.p50:.3f} s median, {value.p99:.3f} s at the 99th percentile"
    elif value is not None:
        yield name, form.format(value)
