"""A measurement as users see it: in the terminal, in a notebook, as JSON, as a table, and in their monitoring."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.display import Tone, bullets, card, data_frame, fold, prose
from toolkit.endpoint.metrics import DIMENSIONS, Figure, Unit
from toolkit.errors import UsageError, reason
from toolkit.measure.headline import Answer, headline, speedup_of
from toolkit.measure.measurement import ArmReport, Measurement, Percentiles, Ratio, Speedup
from toolkit.measure.tables import figures_html, opinions_html, saturation_html, verdicts_html, what_if_html
from toolkit.measure.wording import load, sign, small_print
from toolkit.text import inert

_TONES: dict[Answer, Tone] = {"yes": "good", "no": "bad", "mixed": "fair", "not shown": "soft"}


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
            saturation_html(self),
            figures_html(self),
            what_if_html(self),
            opinions_html(self),
            fold("how it was measured", bullets(small_print(self))),
        )
        return card(short.title, *parts, says=self.title, tone=_TONES[short.answer])

    def to_html(self) -> str:
        """A page with figures, as `toolkit bench --html` writes it. Raises MissingPackage without the extra `plots`."""
        from toolkit.measure.page import page_html  # brings what draws figures

        return page_html(self)

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each arm, workload and load, with times in seconds."""
        return data_frame(_row(arm, speedup_of(self, arm)) for arm in self.arms)


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


def load_report(path: str | os.PathLike[str]) -> BenchReport:
    """The report that `toolkit bench … --json` or `prove … --json` has saved in a file. Raises UsageError."""
    hint = "Give a file that `toolkit bench … --json > FILE` wrote."
    try:
        report = documents.parse(BenchReport, documents.read_file(Path(path)))
        _check_ratios(report)
    except documents.Unfit as error:
        raise UsageError(f"{path} is not a saved report: {error}", hint=hint) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {reason(error)}", hint=hint) from error
    return report


def _check_ratios(report: BenchReport) -> None:
    what_if = report.what_if.speedups if report.what_if else ()
    named: list[tuple[str, Ratio | None]] = [
        *((f"speedups.{i}", item) for i, item in enumerate(report.speedups)),
        *((f"between_arms.{i}", item) for i, item in enumerate(report.between_arms)),
        *((f"what_if.speedups.{i}", item) for i, item in enumerate(what_if)),
        *((f"rate_ratios.{i}", item) for i, item in enumerate(report.rate_ratios)),
        ("noise", report.noise),
        *((f"gains.{i}.decoding", item.decoding) for i, item in enumerate(report.gains)),
        *((f"gains.{i}.acceptance", item.acceptance) for i, item in enumerate(report.gains)),
    ]
    for name, item in named:
        if item and not 1 / _LARGEST_RATIO < item.low <= item.ratio <= item.high < _LARGEST_RATIO:
            raise documents.Unfit(f"`{name}`: low, ratio and high should be positive and in this order")


def figures_of(report: BenchReport) -> list[Figure]:
    """What a platform's monitoring keeps over time, by variant (the arm), workload and load. Times are in seconds."""
    rows: list[ArmReport | Speedup] = [*report.arms, *report.speedups]
    return [
        Figure(name, value, unit, dict(zip(DIMENSIONS, (row.arm, row.workload, load(row)), strict=True)))
        for row in rows
        for name, value, unit in (_of_arm(row) if isinstance(row, ArmReport) else _of_speedup(row))
        if value is not None
    ]


_Named = tuple[str, float | None, Unit]


def _of_arm(row: ArmReport) -> Iterator[_Named]:
    yield "OutputTokensPerSecond", row.output_tokens_per_second, "Count/Second"
    latencies = {
        "TimeToFirstToken": row.ttft,
        "InterTokenLatency": row.itl,
        "TimePerOutputToken": row.tpot,
        "EndToEndLatency": row.e2e,
    }
    for name, times in latencies.items():
        if times:
            yield f"{name}P50", times.p50, "Seconds"
            if times.p99 is not None:
                yield f"{name}P99", times.p99, "Seconds"
    yield "AcceptanceLength", row.acceptance_length, "None"
    yield "Requests", row.requests, "Count"
    yield "FailedRequests", row.failed, "Count"
    yield "DollarsPerMillionOutputTokens", row.price_per_million_output_tokens, "None"


def _of_speedup(row: Speedup) -> Iterator[_Named]:
    yield "Speedup", row.ratio, "None"
    yield "SpeedupLow", row.low, "None"
    yield "SpeedupHigh", row.high, "None"
