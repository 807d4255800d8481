"""Reports of measurements in the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from toolkit.cli.table import table, terminal_width
from toolkit.measure.break_even import break_even_in_words
from toolkit.measure.compare import ARM_COLUMNS, SPEEDUP_COLUMNS, Comparison, arm_rows, speedup_rows
from toolkit.measure.headline import comparable, headline, speedup_of
from toolkit.measure.measurement import WhatIf
from toolkit.measure.opinion import OPINIONS, opinion_in_words, opinion_rows
from toolkit.measure.report import BenchReport
from toolkit.measure.wording import (
    COLUMNS,
    LATENCIES,
    LEGEND,
    SATURATION,
    WHAT_IF,
    between_arms_in_words,
    break_even_acceptance_in_words,
    cells,
    drop_empty_columns,
    latencies,
    saturation_rows,
    sign,
    small_print,
    speedup_map,
    what_if_rows,
)
from toolkit.text import inert

_LONGEST_LINE = 120


def report_text(report: BenchReport, room: int | None = None) -> str:
    """The report, at most `room` characters wide: by default the terminal's width, or unlimited in a log or pipe."""
    room = terminal_width() if room is None else room
    short = headline(report)
    parts = [
        wrapped([f"{report.title}: {short.title}", *short.sentences], room),
        _verdicts(report, room),
        _where_it_pays(report, room),
        _saturation(report, room) if report.saturation else "",
        *(_figures(report, workload, room) for workload in dict.fromkeys(arm.workload for arm in report.arms)),
        wrapped([*between_arms_in_words(report), *break_even_in_words(report.speedups)], room)
        if comparable(report)
        else "",
        _what_if(report.what_if, room) if report.what_if and comparable(report) else "",
        _opinions(report, room) if report.opinions else "",
        wrapped([*small_print(report), "; ".join(LEGEND)], room),
    ]
    return "\n\n".join(filter(None, parts))


def comparison_text(comparison: Comparison, room: int | None = None) -> str:
    """Two reports side by side, as wide as a report."""
    room = terminal_width() if room is None else room
    speedups, arms = speedup_rows(comparison), arm_rows(comparison)
    parts = [
        wrapped([comparison.title], room),
        table(SPEEDUP_COLUMNS, speedups, room) if speedups else "",
        table(*drop_empty_columns(ARM_COLUMNS, arms), room) if arms else "",
        wrapped(comparison.notes(), room),
    ]
    return "\n\n".join(filter(None, parts))


def wrapped(texts: Iterable[str], room: int) -> str:
    """Texts below one another, each in lines of this width that can still be read with ease."""
    return "\n".join(textwrap.fill(inert(text), min(room, _LONGEST_LINE), subsequent_indent="  ") for text in texts)


def _verdicts(report: BenchReport, room: int) -> str:
    rows = [(sign(v.holds), v.claim, v.workload or "all", v.detail) for v in report.verdicts]
    return table(("holds", "claim", "workload", "detail"), rows, room) if rows else ""


def _where_it_pays(report: BenchReport, room: int) -> str:
    """The speedups of many workloads at several loads, as a map; empty where the tables below are as short."""
    rows = speedup_map(report)
    return f"Where it pays: speedup by load\n{table(*rows, room)}" if rows else ""


def _saturation(report: BenchReport, room: int) -> str:
    title = (
        f"Highest request rate within {report.setting['slo']}" if "slo" in report.setting else "Highest request rate"
    )
    return f"{inert(title)}\n{table(*drop_empty_columns(SATURATION, saturation_rows(report)), room)}"


def _what_if(answers: WhatIf, room: int) -> str:
    sentences = wrapped(break_even_acceptance_in_words(answers), room)
    return f"What if drafts were accepted otherwise\n{table(WHAT_IF, what_if_rows(answers), room)}\n\n{sentences}"


def _opinions(report: BenchReport, room: int) -> str:
    rows = table(OPINIONS, opinion_rows(report), room)
    title = f"A second opinion, at {report.opinions[0].concurrency} at a time"
    return f"{title}\n{rows}\n\n{wrapped(opinion_in_words(report), room)}"


def _figures(report: BenchReport, workload: str, room: int) -> str:
    arms = [arm for arm in report.arms if arm.workload == workload]
    speed = table(*drop_empty_columns(COLUMNS, [cells(arm, speedup_of(report, arm)) for arm in arms]), room)
    return (
        f"{inert(workload)}\n{speed}\n\n{table(*drop_empty_columns(LATENCIES, [latencies(arm) for arm in arms]), room)}"
    )
