"""A report that was saved is read again as it was."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from reports import example, what_if_example

import toolkit
from toolkit.errors import UsageError
from toolkit.measure.measurement import ArmSpeedup, Gain, Interval
from toolkit.measure.report import BenchReport, load_report


@pytest.mark.parametrize("report", [example(), what_if_example()], ids=["plain", "what if"])
def test_what_was_saved_is_read(tmp_path: Path, report: BenchReport) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report.to_dict()))
    assert load_report(path) == report


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not JSON"),
        ('{"title": "t", "arms": []}', "`verdicts`: field required"),
        ('{"title": "t", "verdicts": [], "arms": [{"arm": 1}]}', "`arms.0.arm`"),
        ('{"title": "t", "verdicts": [{"claim": "luck", "holds": true, "detail": ""}], "arms": []}', "claim"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=reason) as refusal:
        load_report(path)
    assert str(path) in str(refusal.value)
    assert "toolkit bench … --json > FILE" in refusal.value.hint


@pytest.mark.parametrize("change", [{"low": 0.0}, {"low": -1.0}, {"high": 1e300}, {"ratio": 9.0}])
def test_intervals_that_no_measurement_gives_are_refused(tmp_path: Path, change: dict[str, float]) -> None:
    document = example().to_dict()
    document["speedups"][3].update(change)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"`speedups\.3`: low, ratio and high should be positive and in this order"):
        load_report(path)


def test_so_are_those_of_what_if(tmp_path: Path) -> None:
    document = what_if_example().to_dict()
    document["what_if"]["speedups"][1]["low"] = 0.0
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"`what_if\.speedups\.1`: low, ratio and high should be positive"):
        load_report(path)


@pytest.mark.parametrize("place", ["noise", "between_arms.0", "gains.0.decoding", "gains.0.acceptance"])
def test_so_are_those_of_noise_arms_and_gains(tmp_path: Path, place: str) -> None:
    made = Interval(1.1, 1.0, 1.2)
    report = replace(
        example(),
        noise=made,
        between_arms=(ArmSpeedup("structured", 1, "p-eagle", "ngram", *astuple(made)),),
        gains=(Gain("structured", 1, "p-eagle", made, made),),
    )
    document = report.to_dict()
    found: Any = document
    for key in place.split("."):
        found = found[int(key) if key.isdecimal() else key]
    found["low"] = 0.0
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=rf"`{place}`: low, ratio and high should be positive and in this order"):
        load_report(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"report\.json cannot be read"):
        load_report(tmp_path / "report.json")


def test_a_saved_report_is_read_and_drawn_as_a_page() -> None:
    saved = Path(__file__).parents[3] / "notebooks" / "reports" / "tiny-p-eagle.json"
    report = toolkit.load_report(str(saved))
    assert isinstance(report, toolkit.BenchReport)
    page = report.to_html()
    assert page.startswith("<!doctype html>")
    assert "structured" in page
