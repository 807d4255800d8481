"""The figures of a report, drawn by Altair and rendered to SVG: no script, no font and no data from elsewhere.

Colours are variables of the page's style sheet, so that one drawing is right on a light and on a dark background.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from toolkit.measure.headline import SpeedupClass, baseline_at, speedup_class, speedup_of
from toolkit.measure.measurement import ArmReport, Measurement, Percentiles, Speedup
from toolkit.measure.wording import load, ratio
from toolkit.text import inert

ARM_COLOURS = 7
"""How many colours the style sheet has for arms: `--arm-0` for the baseline, then `--arm-1` and so on."""

_CLASSES: tuple[SpeedupClass, ...] = ("pays", "not shown", "costs")
_VARIABLES = ["var(--pays)", "var(--unclear)", "var(--costs)"]
_COLUMNS = 3
_WIDE_SPAN = 10
_MANY_CELLS = 16
_WIDTHS = {1: 560, 2: 300}
_NARROW = 190
_HEIGHT = 190
_LABEL_PIXELS = 260
_MILLISECONDS = 1000

_TPOT = "Mean time per token after the first. Line: median of the requests; band: up to their 90th percentile."
_ITL = "Time between two arrivals: with speculation several tokens arrive at once. Median to 90th percentile."
_COST = "US dollars per million output tokens at this load, from the price per hour and the throughput."

Row = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A drawing as an SVG element, with what it shows."""

    title: str
    caption: str
    svg: str


def figures(report: Measurement) -> Iterator[Figure]:
    """The figures for which there are measurements."""
    drawn = (
        _speedups(report),
        _throughput(report),
        _by_load(report, "Time per output token (TPOT)", _TPOT, "ms", lambda arm: _spread(arm.tpot)),
        _by_load(report, "Inter-token latency (ITL)", _ITL, "ms", lambda arm: _spread(arm.itl)),
        _acceptance(report),
        _by_load(report, "Cost", _COST, "$ per million tokens", _cost),
    )
    return filter(None, drawn)


def break_even_map(report: Measurement) -> Figure | None:
    """Speedup over load and workload, for each arm: where speculation pays, and where it starts to cost."""
    rows = [
        {
            "load": load(item),
            "workload": inert(item.workload),
            "arm": inert(item.arm),
            "class": speedup_class(item),
            "ratio": ratio(item.ratio),
        }
        for item in report.speedups
    ]
    if not rows:
        return None
    loads = _loads(report.speedups)
    cells = alt.Chart().encode(
        x=alt.X("load:O", title=_load_title(report.speedups), sort=loads, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("workload:N", title=None, sort=_names(rows, "workload")),
    )
    colour = alt.Color("class:N", title=None, scale=alt.Scale(domain=[*_CLASSES], range=_VARIABLES))
    layers = [
        cells.mark_rect(cornerRadius=4, stroke="var(--card)", strokeWidth=3).encode(color=colour),
        cells.mark_text(fontSize=14, fontWeight="bold", color="var(--on-colour)").encode(text="ratio:N"),
    ]
    caption = "How many times as fast as without speculation, by workload and load."
    drawn = _facets(layers, rows, "arm", alt.Step(64), alt.Step(40 if len(rows) < _MANY_CELLS else 28), 2)
    return Figure("Where it pays", caption, _svg(drawn, max(len(row["workload"]) for row in rows)))


def _speedups(report: Measurement) -> Figure | None:
    """The baseline's own band is the noise."""
    noise = report.noise

    def row(arm: ArmReport) -> Row | None:
        if speedup := speedup_of(report, arm):
            return {"middle": speedup.ratio, "low": speedup.low, "high": speedup.high}
        itself = noise if baseline_at(report, arm) is arm else None
        return {"middle": itself.ratio, "low": itself.low, "high": itself.high} if itself else None

    if not report.speedups:
        return None
    caption = "Times as fast as the baseline, with 95 % intervals. The baseline against itself is the noise."
    return _by_load(report, "Speedup", caption, "times", row)


def _throughput(report: Measurement) -> Figure | None:
    """The band is the speedup's interval times the baseline's throughput; for the baseline it is the noise."""

    def row(arm: ArmReport) -> Row | None:
        tokens = arm.output_tokens_per_second
        if tokens is None:
            return None
        speedup, baseline = speedup_of(report, arm), baseline_at(report, arm)
        if speedup and baseline and baseline.output_tokens_per_second:
            reference = baseline.output_tokens_per_second
            return {"middle": tokens, "low": speedup.low * reference, "high": speedup.high * reference}
        if report.points and (baseline is not arm or report.noise is None):
            return None  # without an interval
        low, high = (report.noise.low, report.noise.high) if report.noise else (1.0, 1.0)
        return {"middle": tokens, "low": tokens * low, "high": tokens * high}

    caption = "Output tokens per second of all requests together. Bands: 95 % intervals; for the baseline, the noise."
    return _by_load(report, "Throughput", caption, "tokens/s", row)


def _cost(arm: ArmReport) -> Row | None:
    price = arm.price_per_million_output_tokens
    return None if price is None else {"middle": price, "low": price, "high": price}


def _acceptance(report: Measurement) -> Figure | None:
    rows = [
        {"workload": inert(arm.workload), "arm": inert(arm.arm), "position": position, "share": share}
        for arm in _lowest_load(report.arms)
        for position, share in enumerate(arm.acceptance_per_position, 1)
    ]
    if not rows:
        return None
    base = alt.Chart().encode(
        x=alt.X("position:O", title="position of the draft token", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("share:Q", title="accepted", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        color=_arm_colour(report),
    )
    caption = "Share of steps in which the draft token at each position was accepted, at the lowest load."
    layers = [base.mark_line(strokeWidth=2.5), base.mark_point(filled=True, size=50, opacity=1)]
    return Figure("Acceptance per position", caption, _svg(_by_workload(layers, rows)))


def _lowest_load(arms: Sequence[ArmReport]) -> list[ArmReport]:
    """The first measurement of each arm on each workload that has acceptance: it hardly depends on the load."""
    lowest: dict[tuple[str, str], ArmReport] = {}
    for arm in arms:
        if arm.acceptance_per_position:
            lowest.setdefault((arm.workload, arm.arm), arm)
    return [*lowest.values()]


def _by_load(
    report: Measurement, title: str, caption: str, unit: str, figure_of: Callable[[ArmReport], Row | None]
) -> Figure | None:
    """A line with a band for each arm over the load, one panel for each workload."""
    rows = [
        {"workload": inert(arm.workload), "arm": inert(arm.arm), "load": load(arm), **figure}
        for arm in report.arms
        if (figure := figure_of(arm)) is not None
    ]
    if not rows:
        return None
    loads = _loads(report.arms)
    base = alt.Chart().encode(
        x=alt.X("load:O", title=_load_title(report.arms), sort=loads, axis=alt.Axis(labelAngle=0)),
        color=_arm_colour(report),
    )
    scale, axis = _scale(rows)
    # An area needs two loads.
    band = base.mark_area(opacity=0.25) if len(loads) > 1 else base.mark_rule(strokeWidth=8, opacity=0.3)
    middle = base.encode(y=alt.Y("middle:Q", title=unit, scale=scale, axis=axis))
    layers = [
        band.encode(y=alt.Y("low:Q", title=unit, scale=scale, axis=axis), y2="high:Q"),
        middle.mark_line(strokeWidth=2.5),
        middle.mark_point(filled=True, size=50, opacity=1),
    ]
    return Figure(title, caption, _svg(_by_workload(layers, rows)))


def _scale(rows: Sequence[Row]) -> tuple[alt.Scale, alt.Axis]:
    """Logarithmic where the figures span more than a power of ten: small ones would be one line on a linear scale."""
    least, most = min(row["low"] for row in rows), max(row["high"] for row in rows)
    if not 0 < least * _WIDE_SPAN < most:
        return alt.Scale(zero=True), alt.Axis()
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return alt.Scale(type="log", nice=False), alt.Axis(values=[tick for tick in ticks if least <= tick <= most])


def _facets(
    layers: Sequence[alt.Chart],
    rows: Sequence[Row],
    by: str,
    width: int | alt.Step,
    height: int | alt.Step,
    columns: int,
) -> alt.FacetChart:
    """A panel for each workload or arm."""
    header = alt.Header(labelFontSize=13, labelFontWeight="bold", labelColor="var(--ink)", labelLimit=_LABEL_PIXELS)
    panel = alt.Facet(f"{by}:N", title=None, sort=_names(rows, by), header=header)
    sized = alt.LayerChart(layer=[*layers], width=width, height=height)
    return sized.facet(facet=panel, columns=columns, data=alt.InlineData(values=[*rows]))


def _by_workload(layers: Sequence[alt.Chart], rows: Sequence[Row]) -> alt.FacetChart:
    width = _WIDTHS.get(len(_names(rows, "workload")), _NARROW)
    return _facets(layers, rows, "workload", width, _HEIGHT, _COLUMNS)


def _names(rows: Sequence[Row], key: str) -> list[str]:
    """In the order of their first appearance."""
    return [*dict.fromkeys(row[key] for row in rows)]


def _spread(times: Percentiles | None) -> Row | None:
    if times is None:
        return None
    median, most = times.p50 * _MILLISECONDS, times.p90 * _MILLISECONDS
    return {"middle": median, "low": median, "high": most}


def _arm_colour(report: Measurement) -> alt.Color:
    """Grey for the baseline, a colour for each other arm."""
    compared = {speedup.arm for speedup in report.speedups}
    arms = sorted(dict.fromkeys(arm.arm for arm in report.arms), key=lambda name: name in compared)
    colours = [
        f"var(--arm-{index if index < ARM_COLOURS else 1 + index % (ARM_COLOURS - 1)})" for index in range(len(arms))
    ]
    return alt.Color("arm:N", title=None, scale=alt.Scale(domain=[inert(arm) for arm in arms], range=colours))


def _loads(items: Sequence[ArmReport | Speedup]) -> list[str]:
    by_size = sorted(items, key=lambda item: (item.concurrency is None, item.concurrency or 0, item.rate or 0))
    return [*dict.fromkeys(load(item) for item in by_size)]


def _load_title(items: Sequence[ArmReport | Speedup]) -> str:
    return "requests per second" if all(item.concurrency is None for item in items) else "concurrent requests"


def _svg(chart: alt.FacetChart, longest_label: int = 0) -> str:
    """The drawing. Labels on the left get a pixel more for each character: a reader's font may be wider than ours."""
    room = {"left": 4 + longest_label, "top": 4, "right": 4, "bottom": 4}
    styled = (
        chart.configure(background="transparent", font="Arial, Helvetica, sans-serif", padding=room)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor="var(--ink)",
            titleColor="var(--soft)",
            titleFontWeight="normal",
            gridColor="var(--line)",
            domainColor="var(--line)",
            tickColor="var(--line)",
            labelFontSize=12,
            titleFontSize=12,
            labelLimit=_LABEL_PIXELS,
        )
        .configure_legend(
            labelColor="var(--ink)",
            labelFontSize=12,
            orient="top",
            symbolType="square",
            symbolOpacity=1,
            columnPadding=24,
        )
    )
    drawn: str = vl_convert.vegalite_to_svg(styled.to_dict())
    return drawn
