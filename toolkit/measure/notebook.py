"""A report in a notebook: the verdict in colour and the figures as a table, without any package beyond the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.measure.headline import CLAIMS, Answer, headline, speedup_of
from toolkit.measure.wording import COLUMNS, LATENCIES, cells, filled, latencies, sign, small_print
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
