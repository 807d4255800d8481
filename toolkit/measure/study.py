"""AWS's study of speculative decoding on Trainium: its table, as measured here, beside what it published."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from toolkit.display import Fragment, bullets, card, on_one_line, prose, table
from toolkit.measure.headline import headline, speedup_of
from toolkit.measure.measurement import ArmReport, Percentiles
from toolkit.measure.read_workloads import read_workloads
from toolkit.measure.report import BenchReport
from toolkit.measure.wording import interval
from toolkit.text import html, inert

WORKLOAD = "study"
"""The workload that has its eight classes of prompts, each named `study/…`."""

CONCURRENCY = 4
"""The study's concurrent requests."""

COLUMNS = ("class", "ms/token", "TTFT ms", "E2E s", "tokens out", "speedup", "published")
"""Columns of the table."""

LEGEND = "Medians, with speculation/without it; tokens out: the mean"
"""What the table's figures are."""

PUBLISHED = ("published: prompt", "ms/token")
"""Columns of the figures that the study has in its text."""

SETTING = ("setting", "the study", "here", "")
"""Columns of what was measured with, there and here."""

_MILLISECONDS = 1000


@dataclass(frozen=True)
class PublishedFigure:
    """Milliseconds per token of a prompt, in round numbers; None where the text has none."""

    prompt: str
    speculative: int
    baseline: int | None


@dataclass(frozen=True)
class Published:
    """What the study published. `recipes` are those of its pair, by name; `classes` what it says of one in words."""

    title: str
    date: str
    sources: Mapping[str, str]
    recipes: tuple[str, ...]
    setting: Mapping[str, str]
    figures: tuple[PublishedFigure, ...]
    classes: Mapping[str, str]
    notes: tuple[str, ...]


@cache
def published() -> Published:
    """The study's own figures."""
    data = json.loads(Path(__file__).with_name("study_published.json").read_text(encoding="utf-8"))
    figures = tuple(PublishedFigure(**figure) for figure in data.pop("figures"))
    return Published(**{**data, "figures": figures, "recipes": tuple(data["recipes"]), "notes": tuple(data["notes"])})


@dataclass(frozen=True, repr=False)
class StudyReport:
    """The study, measured. Truthy if no claim fails, but that speculation need not pay on every class.

    `setting` is what was measured with, by the names of the published setting; `remains` says what of the arms may
    remain, where removing them failed.
    """

    report: BenchReport
    setting: Mapping[str, str]
    remains: str = ""

    @property
    def ok(self) -> bool:
        return self.report.ok or headline(self.report).answer == "mixed"

    def __bool__(self) -> bool:
        return self.ok

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The rows below COLUMNS, one for each class; what there was no time to measure is a `-`."""
        for workload in read_workloads(WORKLOAD):
            name = workload.name.removeprefix(f"{WORKLOAD}/")
            at = {arm.arm: arm for arm in self.report.arms if arm.workload == workload.name}
            ours, theirs = at.get("speculative"), at.get("baseline")
            found = speedup_of(self.report, ours) if ours else None
            figures = map(_both, _figures(ours), _figures(theirs))
            yield (name, *figures, interval(found) if found else "-", published().classes.get(name, "not published"))

    def setting_rows(self) -> list[tuple[str, ...]]:
        """The rows below SETTING."""
        return [
            (name, theirs, here := self.setting[name], "" if here == theirs else "differs")
            for name, theirs in published().setting.items()
        ]

    def notes(self) -> list[str]:
        """What a reader of the table has to know."""
        differing = [name for name, *_, differs in self.setting_rows() if differs]
        compares = (
            f"Measured otherwise than there: {', '.join(differing)}. Figures of one setting say nothing of another."
        )
        return [compares, *published().notes, *([self.remains] if self.remains else [])]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit study --json`. Times of the report are in seconds."""
        return {
            "ok": self.ok,
            "rows": [dict(zip(COLUMNS, row, strict=True)) for row in self.rows()],
            "setting": dict(self.setting),
            "published": asdict(published()),
            "report": self.report.to_dict(),
            "remains": self.remains,
        }

    def __repr__(self) -> str:
        short = headline(self.report)
        lines = ["  ".join(row) for row in self.rows()]
        return inert("\n".join([f"<StudyReport {self.report.title}: {short.title}>", *(f"  {line}" for line in lines)]))

    def _repr_html_(self) -> str:
        short = headline(self.report)
        return card(short.title, prose(*short.sentences), self._tables(), says=self.report.title)

    def to_html(self) -> str:
        """The measurement's page, the study's table first. Raises MissingPackage without the extra `bench`."""
        from toolkit.measure.page import page_html  # brings what draws figures

        return page_html(self.report, self._tables())

    def _tables(self) -> Fragment:
        rows = [map(on_one_line, row) for row in self.rows()]
        head = f"<h2>{html(published().title)}, {html(published().date)}</h2>"
        parts = (
            prose(LEGEND),
            table(rows, COLUMNS),
            table(figure_rows(), PUBLISHED),
            table(self.setting_rows(), SETTING),
            bullets([*self.notes(), *source_lines()]),
        )
        return Fragment(head + "".join(f'<div class="scroll">{part}</div>' for part in parts))


def source_lines() -> list[str]:
    """Where the study is."""
    return [f"{name}: {address}" for name, address in published().sources.items()]


def figure_rows() -> list[tuple[str, ...]]:
    """The rows below PUBLISHED."""
    return [(figure.prompt, _both(figure.speculative, figure.baseline or "-")) for figure in published().figures]


def _both(speculative: object, baseline: object) -> str:
    return f"{speculative}/{baseline}"


def _figures(arm: ArmReport | None) -> tuple[str, ...]:
    """Milliseconds per token, TTFT, time and tokens of an answer; `-` for what there is not."""
    if arm is None:
        return ("-",) * 4
    tokens = "-" if arm.answer_tokens is None else f"{arm.answer_tokens:.0f}"
    return _median(arm.tpot, _MILLISECONDS, 1), _median(arm.ttft, _MILLISECONDS, 0), _median(arm.e2e, 1, 2), tokens


def _median(times: Percentiles | None, unit: float, digits: int) -> str:
    return f"{times.p50 * unit:.{digits}f}" if times else "-"
