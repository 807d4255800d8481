"""A measurement's tables as HTML, for notebooks and for its page."""

from __future__ import annotations

from toolkit.display import Fragment, Tone, bullets, in_tone, on_one_line, table
from toolkit.measure.headline import CLAIMS, comparable, speedup_of
from toolkit.measure.measurement import Measurement
from toolkit.measure.opinion import OPINIONS, opinion_in_words, opinion_rows
from toolkit.measure.wording import (
    COLUMNS,
    LATENCIES,
    SATURATION,
    WHAT_IF,
    between_arms_in_words,
    break_even_acceptance_in_words,
    cells,
    drop_empty_columns,
    latencies,
    saturation_rows,
    sign,
    what_if_rows,
)

_SIGNS: dict[bool | None, Tone] = {True: "good", False: "bad", None: "soft"}


def verdicts_html(report: Measurement) -> Fragment:
    rows = [
        (in_tone(sign(v.holds), _SIGNS[v.holds]), CLAIMS[v.claim], on_one_line(v.workload or ""), v.detail)
        for v in report.verdicts
    ]
    return table(rows, ("", "claim", "workload", "detail"))


def figures_html(report: Measurement) -> Fragment:
    rows = [(a.workload, *cells(a, speedup_of(report, a)), *latencies(a)[2:]) for a in report.arms]
    head, rows = drop_empty_columns(("workload", *COLUMNS, *LATENCIES[2:]), rows)
    between = bullets(between_arms_in_words(report) if comparable(report) else ())
    return Fragment(f"{table((map(on_one_line, row) for row in rows), head)}{between}")


def saturation_html(report: Measurement) -> Fragment:
    """The highest request rates within an SLO, as a table; empty if none was searched for."""
    if not report.saturation:
        return Fragment("")
    head, rows = drop_empty_columns(SATURATION, saturation_rows(report))
    return Fragment(f"<h2>Highest request rate</h2>{table((map(on_one_line, row) for row in rows), head)}")


def opinions_html(report: Measurement) -> Fragment:
    """What another benchmark says of the same arms, as a table; empty if none was asked."""
    if not report.opinions:
        return Fragment("")
    rows = [tuple(map(on_one_line, row)) for row in opinion_rows(report)]
    return Fragment(f"<h2>A second opinion</h2>{table(rows, OPINIONS)}{bullets(opinion_in_words(report))}")


def what_if_html(report: Measurement) -> Fragment:
    """What a drafter of other acceptance would do, as a table; empty if that was not asked."""
    if report.what_if is None or not comparable(report):
        return Fragment("")
    rows, words = what_if_rows(report.what_if), break_even_acceptance_in_words(report.what_if)
    return Fragment(f"<h2>What if drafts were accepted otherwise</h2>{table(rows, WHAT_IF)}{bullets(words)}")
