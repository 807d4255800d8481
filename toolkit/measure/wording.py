"""Figures as people read them, the same in the terminal, in a notebook and on the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.measure.measurement import (
    ArmReport,
    ArmSpeedup,
    Measurement,
    Percentiles,
    Ratio,
    Saturation,
    Source,
    Speedup,
    WhatIf,
)
from toolkit.recipe.schema import Slo

_MILLISECONDS = 1000.0
_SIGNS = {True: "yes", False: "NO", None: "not shown"}


def sign(holds: bool | None) -> str:
    """Whether a claim holds, in a word."""
    return _SIGNS[holds]


def ratio(value: float) -> str:
    """A speedup: `2.31x`."""
    return f"{value:.2f}x"


def interval(item: Ratio) -> str:
    """A speedup with its 95 % interval: `2.31x (2.10-2.55)`."""
    return f"{ratio(item.ratio)} ({item.low:.2f}-{item.high:.2f})"


def load(item: ArmReport | Speedup | ArmSpeedup) -> str:
    """A load as a table has it: `4` for four concurrent requests, `2/s` for an open loop of two requests per second."""
    return f"{item.rate:g}/s" if item.concurrency is None and item.rate is not None else str(item.concurrency or "")


def load_in_words(item: ArmReport | Speedup | ArmSpeedup) -> str:
    return _concurrent(item.concurrency) if item.concurrency else f"{load(item)[:-2]} requests per second"


def _concurrent(requests: int) -> str:
    return "one request at a time" if requests == 1 else f"{requests} concurrent requests"


def milliseconds(times: Percentiles | None) -> str:
    """Median and 99th percentile of a time: `12.5/40.1` milliseconds, `12.5/-` without one; empty if not measured."""
    if times is None:
        return ""
    p99 = "-" if times.p99 is None else _short(times.p99 * _MILLISECONDS)
    return f"{_short(times.p50 * _MILLISECONDS)}/{p99}"


def dollars(price: float | None) -> str:
    """A price in US dollars; empty if unknown."""
    return "" if price is None else f"${price:.2f}" if price >= 0.01 else f"${price:.2g}"


def setting(values: Mapping[str, Any]) -> str:
    """What was measured with, on one line: `hardware: …, vllm: …`."""
    return ", ".join(f"{key}: {value}" for key, value in values.items())


def between_arms_in_words(report: Measurement) -> Iterator[str]:
    """A sentence for each workload, load and other arm."""
    for item in report.between_arms:
        yield f"{item.workload}, {load_in_words(item)}: {item.arm} is {interval(item)} as fast as {item.other}."


_FEWEST_FOR_A_MAP = 3
_MARKS = {True: "", False: " costs", None: " ?"}


def speedup_map(report: Measurement) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """A table of workloads (of turns, of lengths) by loads, for each arm; None for few of them.

    A question mark stands where no difference is shown.
    """
    loads = list(dict.fromkeys(load(item) for item in report.speedups))
    points = list(dict.fromkeys((item.workload, item.arm) for item in report.speedups))
    if len(loads) < 2 or len({workload for workload, _ in points}) < _FEWEST_FOR_A_MAP:
        return None
    cells = {
        (item.workload, item.arm, load(item)): f"{ratio(item.ratio)}{_MARKS[item.pays]}" for item in report.speedups
    }
    rows = [(*point, *(cells.get((*point, at), "") for at in loads)) for point in points]
    return ("workload", "arm", *loads), rows


COLUMNS = ("load", "arm", "tok/s", "speedup", "acceptance", "same", "$/M", "J/token", "goodput", "in SLO", "reasoning")
"""Columns of figures on speed."""

LATENCIES = ("load", "arm", "TTFT ms", "ITL ms", "TPOT ms", "E2E ms")
"""Columns of latencies: the median, and the 99th percentile where there are a hundred samples."""

LEGEND = (
    "load: concurrent requests, or requests/s",
    "speedup: over the baseline, with its 95 % interval",
    "acceptance: tokens per target step",
    "same: answers that equal the baseline's",
    "$/M: US dollars per million output tokens",
    "goodput: requests/s within the SLO",
    "in SLO: share of the requests within it",
    "reasoning: share of the output tokens",
    "ms: median/99th percentile, which takes 100 samples",
)
"""What the columns mean."""


def cells(arm: ArmReport, speedup: Speedup | None) -> tuple[str, ...]:
    """An arm's figures in the order of COLUMNS; empty where there is none."""
    return (
        load(arm),
        arm.arm,
        "" if arm.output_tokens_per_second is None else f"{arm.output_tokens_per_second:.0f}",
        interval(speedup) if speedup else "",
        "" if arm.acceptance_length is None else f"{arm.acceptance_length:.2f}",
        "" if arm.identical is None else f"{arm.identical:.0%}",
        dollars(arm.price_per_million_output_tokens),
        "" if arm.joules_per_output_token is None else f"{arm.joules_per_output_token:.3g}",
        "" if arm.goodput is None else f"{arm.goodput:.3g}",
        "" if arm.within_slo is None else f"{arm.within_slo:.0%}",
        "" if arm.reasoning_share is None else f"{arm.reasoning_share:.0%}",
    )


def latencies(arm: ArmReport) -> tuple[str, ...]:
    """An arm's figures in the order of LATENCIES; empty where there is none."""
    return (load(arm), arm.arm, *map(milliseconds, (arm.ttft, arm.itl, arm.tpot, arm.e2e)))


SATURATION = ("workload", "arm", "requests/s", "range", "over the baseline", "misses first", "blocks")
"""Columns of the highest request rates within an SLO."""


def saturation_rows(report: Measurement) -> list[tuple[str, ...]]:
    """The rows below SATURATION."""
    ratios = {(item.arm, item.workload): interval(item) for item in report.rate_ratios}
    return [
        (
            item.workload,
            item.arm,
            f"{item.rate:.3g}" if item.rate else "none" if item.blocks else "not known",
            _range(item),
            ratios.get((item.arm, item.workload), ""),
            f"{item.missed_first} at {item.unmet:.3g}/s" if item.missed_first and item.unmet else "",
            f"{item.blocks}" if item.settled else f"{item.blocks}, not enough",
        )
        for item in report.saturation
    ]


def _range(item: Saturation) -> str:
    low, high = (None if rate is None else f"{rate:.3g}" for rate in (item.low, item.high))
    return f"{low}-{high}" if low and high else f"at least {low}" if low else f"below {high}" if high else ""


def slo_in_words(slo: Slo) -> str:
    """Such as `ttft 500 ms, tpot 30 ms for 90% of the requests`."""
    limits = (("ttft", slo.ttft), ("tpot", slo.tpot), ("e2e", slo.e2e))
    shown = ", ".join(f"{name} {limit * _MILLISECONDS:g} ms" for name, limit in limits if limit)
    return f"{shown} for {f'{slo.share:.1%}'.replace('.0%', '%')} of the requests"


WHAT_IF = ("workload", "load", "acceptance", "speedup", "from")
"""Columns of what a drafter of other acceptance would do."""

_SOURCES: dict[Source, str] = {"synthetic": "drafts accepted by chance", "steps": "steps per second"}


def what_if_rows(answers: WhatIf) -> list[tuple[str, ...]]:
    """The rows below WHAT_IF, by workload and load."""
    rows = sorted(answers.speedups, key=lambda row: (row.workload, row.concurrency, row.acceptance_length))
    return [
        (row.workload, str(row.concurrency), f"{row.acceptance_length:g}", interval(row), _SOURCES[row.source])
        for row in rows
    ]


def break_even_acceptance_in_words(answers: WhatIf) -> Iterator[str]:
    """A sentence for each workload and load."""
    for row in answers.break_even:
        at = f"{row.workload}, {_concurrent(row.concurrency)}"
        if row.acceptance_length is None:
            yield f"{at}: speculation costs, whatever the acceptance."
            continue
        ends = f"{row.low:.2f}-{row.high:.2f}" if row.low and row.high else "unknown"
        yield f"{at}: speculation costs below an acceptance length of {row.acceptance_length:.2f} ({ends})."


def drop_empty_columns(
    head: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A table without the columns that are empty in every row."""
    kept = [index for index in range(len(head)) if any(row[index] for row in rows)]
    return tuple(head[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]


def losses(arms: Sequence[ArmReport]) -> Iterator[str]:
    """How many requests were sent, and at which points some of them are in no figure."""
    yield f"{sum(arm.requests for arm in arms)} requests"
    for arm in arms:
        if arm.failed or arm.incomplete:
            lost = f"{arm.failed} failed, {arm.incomplete} incomplete of {arm.requests} requests; no figure has them"
            yield f"{arm.workload}, load {load(arm)}, {arm.arm}: {lost}"


def small_print(report: Measurement) -> list[str]:
    """What stands below the figures: requests, the noise, the notes and what was measured with."""
    noise = [f"Noise, the baseline against itself: {interval(report.noise)}"] if report.noise else []
    measured = [f"Measured with {setting(report.setting)}"] if report.setting else []
    return [*losses(report.arms), *noise, *_cached(report.arms), *_energy(report.arms), *report.notes, *measured]


def _cached(arms: Sequence[ArmReport]) -> Iterator[str]:
    shares = [arm.cached_share for arm in arms if arm.cached_share is not None]
    if shares:
        least, most = (f"{share(shares):.0%}" for share in (min, max))
        yield f"Tokens of prompts that were in a prefix cache: {least if least == most else f'{least} to {most}'}"


def _energy(arms: Sequence[ArmReport]) -> Iterator[str]:
    if any(arm.joules_per_output_token is not None for arm in arms):
        yield "J/token: what all GPUs of this machine used while the arm was asked, idle ones too, per output token"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"
