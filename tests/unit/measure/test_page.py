"""The page of a report: its first lines, its figures, and what it needs."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from reports import example, verdict, what_if_example, with_verdicts

from toolkit.errors import UsageError
from toolkit.measure.figures import figures
from toolkit.measure.page import page_html, require_free
from toolkit.measure.report import BenchReport


class Outline(HTMLParser):
    """What a page consists of: its tags, its headings, and the text of its drawings."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.drawn: list[str] = []
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in ("h1", "h2"):
            self.headings.append(data)
        if self.tags and self.tags[-1] == "text":
            self.drawn.append(data)


@pytest.fixture(scope="module")
def outline() -> Outline:
    return Outline(page_html(example()))


def test_the_answer_comes_first_and_every_figure_is_drawn(outline: Outline) -> None:
    headings = [heading for heading in outline.headings if heading.strip()]
    assert headings == [
        "Speculation pays",
        "What was checked",
        "Where it pays",
        "Speedup",
        "Throughput",
        "Time per output token (TPOT)",
        "Inter-token latency (ITL)",
        "Acceptance per position",
        "Cost",
        "All figures",
        "How it was measured",
    ]
    assert outline.tags.count("svg") == 7


def test_the_break_even_map_has_each_speedup(outline: Outline) -> None:
    assert {"2.31x", "1.92x", "1.34x", "0.93x", "1.04x", "1.01x", "0.85x", "0.71x"} <= set(outline.drawn)


def test_drawings_share_no_ids(outline: Outline) -> None:
    assert len(outline.ids) == len(set(outline.ids))


def cell_colours(report: BenchReport) -> dict[str, int]:
    """How many cells of the break-even map have each colour."""
    drawing = page_html(report).split("Where it pays")[1].split("</svg>")[0]
    cells = re.findall(r'aria-roledescription="rect mark"[^>]*fill="var\(--(\w+)\)"', drawing)
    return {colour: cells.count(colour) for colour in cells}


def test_points_are_coloured_by_what_they_show() -> None:
    assert cell_colours(example()) == {"pays": 3, "unclear": 2, "costs": 3}


@pytest.mark.parametrize("claim", ["lossless", "baseline", "same-target"])
def test_a_comparison_that_means_nothing_is_not_drawn_as_a_success(claim: str) -> None:
    report = with_verdicts(verdict(claim, False, "why"), verdict("pays", True))  # type: ignore[arg-type]
    page = page_html(report)
    assert "why" in page
    assert "Where it pays" not in page
    assert "instead of $22.44" not in page


def test_a_report_without_measurements_is_a_page() -> None:
    page = page_html(replace(example(), arms=(), speedups=(), verdicts=(), noise=None))
    assert Outline(page).headings[0] == "Measured, without a comparison"
    assert "<svg" not in page


def test_one_load_and_no_prices() -> None:
    report = example()
    arms = tuple(replace(arm, price_per_million_output_tokens=None) for arm in report.arms[:2])
    headings = Outline(page_html(replace(report, arms=arms, speedups=report.speedups[:1]))).headings
    assert "Throughput" in headings
    assert "Cost" not in headings


def test_without_the_extra_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.delitem(sys.modules, "toolkit.measure.figures", raising=False)
    with pytest.raises(UsageError, match="an HTML report needs the package altair") as refusal:
        page_html(example())
    assert refusal.value.hint == "Run: pip install 'peagle-toolkit[bench]'"


def test_a_notebook_shows_a_report_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    shown = example()._repr_html_()
    assert shown.index("Speculation pays</b>") < shown.index("<table>")
    assert "2.31x (2.19-2.45)" in shown


def test_other_acceptance_is_on_the_page_and_in_the_notebook() -> None:
    report = what_if_example()
    page = page_html(report)
    assert "What if drafts were accepted otherwise" in Outline(page).headings
    for text in (page, report._repr_html_()):
        assert "steps per second" in text
        assert "speculation costs below an acceptance length of 2.00 (1.80-2.20)." in text
    assert "What if" not in page_html(example())


@pytest.mark.parametrize("title", ["Speedup", "Throughput"])
def test_a_point_without_an_interval_is_not_drawn(title: str) -> None:
    """64 concurrent requests on the open-ended workload: the baseline has the noise there, the arm nothing."""
    whole = replace(example(), points=8)
    fewer = replace(whole, speedups=whole.speedups[:-1])
    points = [
        next(item.svg for item in figures(report) if item.title == title).count('aria-roledescription="point"')
        for report in (whole, fewer)
    ]
    assert points[0] - points[1] == 1


def test_a_page_replaces_a_report_and_nothing_else(tmp_path: Path) -> None:
    page, other = tmp_path / "report.html", tmp_path / "notes.html"
    require_free(page)
    page.touch()
    require_free(page)
    page.write_text(page_html(example()))
    require_free(page)
    other.write_text("<p>mine</p>")
    with pytest.raises(UsageError, match="is not a report of the toolkit"):
        require_free(other)
