"""A report in a notebook: the verdict in colour and the figures as a table, without any package beyond the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.measure.headline import CLAIMS, Answer, comparable, headline, speedup_of
from toolkit.measure.wording import (
    COLUMNS,
    LATENCIES,
    WHAT_IF,
    break_even_acceptance_in_words,
    cells,
    filled,
    latencies,
    sign,
    small_print,
    what_if_rows,
)
from toolkit.text import html, html_list, html_table

if TYPE_CHECKING:
    from toolkit.measure.report import BenchReport

# Legible on the light and on the dark background of a notebook.
_COLOURS: dict[Answer, str] = {"yes": "#1a9850", "no": "#d73027", "mixed": "#d98c00", "not shown": "#808080"}


def report_html(report: BenchReport) -> str:
    """The report as HTML that needs neither style sheet nor script."""
    found = headline(report)
    frame = f"border-left:6px solid {_COLOURS[found.answer]};padding:4px 12px;margin:4px 0"
    said = "".join(f"<div>{html(sentence)}</div>" for sentence in found.sentences)
    head = f'<div style="{frame}"><b style="font-size:1.3em">{html(found.title)}</b>{said}</div>'
    parts = (
        f"<div>{html(report.title)}</div>",
        head,
        verdicts_html(report),
        figures_html(report),
        what_if_html(report),
        html_list(small_print(report)),
    )
    return f"<div>{''.join(parts)}</div>"


def verdicts_html(report: BenchReport) -> str:
    """The verdicts as a table."""
    rows = [(sign(v.holds), CLAIMS[v.claim], v.workload or "", v.detail) for v in report.verdicts]
    return html_table(rows, ("", "claim", "workload", "detail"))


def figures_html(report: BenchReport) -> str:
    """All figures as a table."""
    rows = [(a.workload, *cells(a, speedup_of(report, a)), *latencies(a)[2:]) for a in report.arms]
    head, rows = filled(("workload", *COLUMNS, *LATENCIES[2:]), rows)
    return html_table(rows, head)


def what_if_html(report: BenchReport) -> str:
    """What a drafter of other acceptance would do, as a table; empty if that was not asked."""
    if report.what_if is None or not comparable(report):
        return ""
    rows, words = what_if_rows(report.what_if), break_even_acceptance_in_words(report.what_if)
    return f"<h2>What if drafts were accepted otherwise</h2>{html_table(rows, WHAT_IF)}{html_list(words)}"
