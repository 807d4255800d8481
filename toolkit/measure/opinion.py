"""A second opinion: the platform's own benchmark of the same endpoints, beside what was measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.measure.headline import comparable
from toolkit.measure.measurement import ArmReport, Measurement, Opinion
from toolkit.measure.wording import interval

OPINIONS = ("workload", "arm", "by", "requests", "tok/s", "TTFT ms", "ITL ms", "E2E ms")
"""Columns of what both say, times at the median."""

_US = "toolkit"
_REQUESTS, _TOKENS = 100, 256
_SECONDS = {"ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9}


def settings_of(tokenizer: str, concurrency: int, max_tokens: int | None) -> dict[str, Any]:
    """What AIPerf is asked to do: synthetic prompts, as many at a time as were sent here."""
    return {
        "tokenizer": tokenizer,
        "concurrency": concurrency,
        "request_count": max(_REQUESTS, concurrency),
        "prompt_input_tokens_mean": _TOKENS,
        "output_tokens_mean": max_tokens or _TOKENS,
        "streaming": True,
    }


def opinion(arm: str, settings: Mapping[str, Any], profile: Mapping[str, Any]) -> Opinion:
    """What a profile of AIPerf says; None for what it leaves out, or gives in another unit."""
    return Opinion(
        arm=arm,
        by="aws",
        concurrency=settings["concurrency"],
        requests=_figure(profile, "request_count", "avg"),
        output_tokens_per_second=_figure(profile, "output_token_throughput", "avg"),
        ttft=_seconds(profile, "time_to_first_token"),
        itl=_seconds(profile, "inter_token_latency"),
        e2e=_seconds(profile, "request_latency"),
        profile=dict(settings),
    )


def _figure(profile: Mapping[str, Any], name: str, which: str) -> float | None:
    metric = profile.get(name)
    value = metric.get(which) if isinstance(metric, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


def _seconds(profile: Mapping[str, Any], name: str) -> float | None:
    value, metric = _figure(profile, name, "p50"), profile.get(name)
    unit = _SECONDS.get(str(metric.get("unit", "")).lower()) if isinstance(metric, Mapping) else None
    return None if value is None or unit is None else value * unit


def opinion_rows(report: Measurement) -> list[tuple[str, ...]]:
    """The rows below OPINIONS: of each arm what was measured here, by workload, and what the other benchmark says."""
    rows = []
    for told in report.opinions:
        ours = [arm for arm in report.arms if (arm.arm, arm.concurrency) == (told.arm, told.concurrency)]
        rows += [_own_row(arm) for arm in ours]
        times = (told.ttft, told.itl, told.e2e)
        figures = (_number(told.requests), _number(told.output_tokens_per_second), *map(_milliseconds, times))
        rows.append(("synthetic", told.arm, told.by, *figures))
    return rows


def _own_row(arm: ArmReport) -> tuple[str, ...]:
    times = [times.p50 if times else None for times in (arm.ttft, arm.itl, arm.e2e)]
    figures = (str(arm.requests), _number(arm.output_tokens_per_second), *map(_milliseconds, times))
    return (arm.workload, arm.arm, _US, *figures)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value * 1000:.1f}"


def opinion_in_words(report: Measurement) -> Iterator[str]:
    """Whether both agree on what speculation brings, and why their figures differ."""
    speeds = {told.arm: told.output_tokens_per_second for told in report.opinions}
    baseline = speeds.pop("baseline", None)
    for arm, speed in speeds.items():
        if speed and baseline and comparable(report):
            ours = [item for item in report.speedups if item.arm == arm]
            ours = [item for item in ours if item.concurrency == report.opinions[0].concurrency]
            said = ", ".join(f"{interval(item)} on {item.workload}" for item in ours) or "nothing"
            factor = f"{arm} gives {speed / baseline:.2f} times the baseline's tokens per second"
            yield f"AWS's benchmark: {factor}; measured here: {said}."
    if report.opinions:
        yield (
            "Why they differ: AWS asks with synthetic text, whose drafts are accepted more or less often than your "
            "prompts'; it measures one arm after the other, and gives no intervals; its client is in AWS, ours is "
            "where you are; it does not compare answers."
        )
