"""A measurement as users see it: in the terminal, in a notebook, as JSON and as a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.display import Fragment, Tone, bullets, card, data_frame, fold, in_tone, on_one_line, prose, table
from toolkit.errors import UsageError
from toolkit.measure.headline import CLAIMS, Answer, comparable, headline, speedup_of
from toolkit.measure.measurement import ArmReport, Measurement, Percentiles, Ratio, Speedup
from toolkit.measure.wording import (
    COLUMNS,
    LATENCIES,
    WHAT_IF,
    between_arms_in_words,
    break_even_acceptance_in_words,
    cells,
    drop_empty_columns,
    latencies,
    sign,
    small_print,
    what_if_rows,
)
from toolkit.text import inert

_TONES: dict[Answer, Tone] = {"yes": "good", "no": "bad", "mixed": "fair", "not shown": "soft"}
_SIGNS: dict[bool | None, Tone] = {True: "good", False: "bad", None: "soft"}


@dataclass(frozen=True, repr=False)
class BenchReport(Measurement):
    """A measurement with its looks: a line for each claim, HTML for notebooks, a table."""

    def __repr__(self) -> str:
        short = headline(self)
        lines = [
            f"  {sign(v.holds):9} {v.claim}{f' ({v.workload})' if v.workload else ''}: {v.detail}"
            for v in self.verdicts
        ]
        head = f"<BenchReport {self.title}: {short.title}>"
        return inert("\n".join([head, *(f"  {sentence}" for sentence in short.sentences), *lines]))

    def _repr_html_(self) -> str:
        short = headline(self)
        parts = (
            prose(*short.sentences),
            verdicts_html(self),
            figures_html(self),
            what_if_html(self),
            fold("how it was measured", bullets(small_print(self))),
        )
        return card(short.title, *parts, says=self.title, tone=_TONES[short.answer])

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each arm, workload and load, with times in seconds."""
        return data_frame(_row(arm, speedup_of(self, arm)) for arm in self.arms)


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


def what_if_html(report: Measurement) -> Fragment:
    """What a drafter of other acceptance would do, as a table; empty if that was not asked."""
    if report.what_if is None or not comparable(report):
        return Fragment("")
    rows, words = what_if_rows(report.what_if), break_even_acceptance_in_words(report.what_if)
    return Fragment(f"<h2>What if drafts were accepted otherwise</h2>{table(rows, WHAT_IF)}{bullets(words)}")


def _row(arm: ArmReport, speedup: Speedup | None) -> dict[str, Any]:
    """The figures of an arm in one line: `ttft_p50`, `speedup_low` and the like."""
    times: dict[str, Percentiles | None] = {"ttft": arm.ttft, "itl": arm.itl, "tpot": arm.tpot, "e2e": arm.e2e}
    row = {key: value for key, value in asdict(arm).items() if key not in times}
    for name, percentiles in times.items():
        row |= {f"{name}_{key}": value for key, value in asdict(percentiles).items()} if percentiles else {}
    if speedup:
        row |= {"speedup": speedup.ratio, "speedup_low": speedup.low, "speedup_high": speedup.high}
    return row


# Beyond what any measurement gives; reckoning with larger ratios could overflow.
_LARGEST_RATIO = 1e6


def read_report(path: Path) -> BenchReport:
    """The report in a file. Raises UsageError."""
    hint = "Give a file that `toolkit bench … --json > FILE` wrote."
    try:
        report = documents.parse(BenchReport, documents.read_file(path))
        _check_ratios(report)
    except documents.Unfit as error:
        raise UsageError(f"{path} is not a saved report: {error}", hint=hint) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=hint) from error
    return report


def _check_ratios(report: BenchReport) -> None:
    what_if = report.what_if.speedups if report.what_if else ()
    named: list[tuple[str, Ratio | None]] = [
        *((f"speedups.{i}", item) for i, item in enumerate(report.speedups)),
        *((f"between_arms.{i}", item) for i, item in enumerate(report.between_arms)),
        *((f"what_if.speedups.{i}", item) for i, item in enumerate(what_if)),
        ("noise", report.noise),
        *((f"gains.{i}.decoding", item.decoding) for i, item in enumerate(report.gains)),
        *((f"gains.{i}.acceptance", item.acceptance) for i, item in enumerate(report.gains)),
    ]
    for name, item in named:
        if item and not 1 / _LARGEST_RATIO < item.low <= item.ratio <= item.high < _LARGEST_RATIO:
            raise documents.Unfit(f"`{name}`: low, ratio and high should be positive and in this order")
