"""A report in a notebook: the verdict in colour and the figures as a table, without any package beyond the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.display import Fragment, Tone, bullets, card, folded, prose, table, toned, whole
from toolkit.measure.headline import CLAIMS, Answer, comparable, headline, speedup_of
from toolkit.measure.wording import (
    COLUMNS,
    LATENCIES,
    WHAT_IF,
    between_arms_in_words,
    break_even_acceptance_in_words,
    cells,
    filled,
    latencies,
    sign,
    small_print,
    what_if_rows,
)

if TYPE_CHECKING:
    from toolkit.measure.report import BenchReport

_TONES: dict[Answer, Tone] = {"yes": "good", "no": "bad", "mixed": "fair", "not shown": "soft"}
_SIGNS: dict[bool | None, Tone] = {True: "good", False: "bad", None: "soft"}


def report_html(report: BenchReport) -> str:
    found = headline(report)
    parts = (
        prose(*found.sentences),
        verdicts_html(report),
        figures_html(report),
        what_if_html(report),
        folded("how it was measured", bullets(small_print(report))),
    )
    return card(found.title, *parts, says=report.title, tone=_TONES[found.answer])


def verdicts_html(report: BenchReport) -> Fragment:
    rows = [
        (toned(sign(v.holds), _SIGNS[v.holds]), CLAIMS[v.claim], whole(v.workload or ""), v.detail)
        for v in report.verdicts
    ]
    return table(rows, ("", "claim", "workload", "detail"))


def figures_html(report: BenchReport) -> Fragment:
    rows = [(a.workload, *cells(a, speedup_of(report, a)), *latencies(a)[2:]) for a in report.arms]
    head, rows = filled(("workload", *COLUMNS, *LATENCIES[2:]), rows)
    between = bullets(between_arms_in_words(report) if comparable(report) else ())
    return Fragment(f"{table((map(whole, row) for row in rows), head)}{between}")


def what_if_html(report: BenchReport) -> Fragment:
    """What a drafter of other acceptance would do, as a table; empty if that was not asked."""
    if report.what_if is None or not comparable(report):
        return Fragment("")
    rows, words = what_if_rows(report.what_if), break_even_acceptance_in_words(report.what_if)
    return Fragment(f"<h2>What if drafts were accepted otherwise</h2>{table(rows, WHAT_IF)}{bullets(words)}")
