"""Two reports side by side."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import exp

import pytest
from reports import example, verdict

from toolkit.cli.report_text import comparison_text
from toolkit.errors import UsageError
from toolkit.measure.compare import SpeedupChange, compare
from toolkit.measure.measurement import Speedup
from toolkit.measure.report import BenchReport


def faster(report: BenchReport, factor: float, title: str = "new") -> BenchReport:
    """The report with the speedups on structured text so many times higher."""
    speedups = tuple(
        replace(item, ratio=item.ratio * factor, low=item.low * factor, high=item.high * factor)
        if item.workload == "structured"
        else item
        for item in report.speedups
    )
    return replace(report, title=title, speedups=speedups)


def test_a_report_against_itself_shows_nothing() -> None:
    found = compare(example(), example())
    assert found.ok
    assert {change.better for change in found.speedups} == {None}
    assert list(found.notes()) == []
    assert "of 8 points 0 faster, 0 slower, 8 without a difference that is shown" in found.title


@pytest.mark.parametrize(("factor", "better", "ok"), [(1.5, True, True), (1.02, None, True), (0.7, False, False)])
def test_a_speedup_is_compared_by_interval(factor: float, better: bool | None, ok: bool) -> None:
    found = compare(example(), faster(example(), factor, "with another head"))
    assert (found.before, found.after) == (example().title, "with another head")
    assert {change.better for change in found.speedups if change.after.workload == "structured"} == {better}
    assert {change.better for change in found.speedups if change.after.workload == "open-ended"} == {None}
    assert found.ok is ok


def test_the_interval_of_a_change_covers_the_truth() -> None:
    """Two measurements of the same speedup: 95 of 100 intervals contain 1."""
    rng = random.Random(7)

    def measured() -> Speedup:
        middle, reach = rng.gauss(0.5, 0.05), 1.96 * 0.05
        return Speedup("w", 1, "a", *(2.718281828**x for x in (middle, middle - reach, middle + reach)))

    shown = sum(SpeedupChange(measured(), measured()).better is not None for _ in range(2000))
    assert 0.035 < shown / 2000 < 0.065


def test_many_points_make_no_more_false_alarms_than_one() -> None:
    rng, reach = random.Random(7), 0.05

    def measured() -> BenchReport:
        logs = [rng.gauss(0.5, reach / 1.96) for _ in range(12)]
        rows = [Speedup("w", n + 1, "a", exp(x), exp(x - reach), exp(x + reach)) for n, x in enumerate(logs)]
        report: BenchReport = replace(example(), speedups=tuple(rows), verdicts=())
        return report

    alarms = sum(not compare(measured(), measured()) for _ in range(1000))
    assert 0.01 < alarms / 1000 < 0.04


def test_a_verdict_that_fails_now_is_worse() -> None:
    before = replace(example(), verdicts=(verdict("lossless", True), verdict("pays", None, workload="structured")))
    after = replace(example(), verdicts=(verdict("lossless", False), verdict("pays", True, workload="structured")))
    found = compare(before, after)
    assert not found
    assert list(found.notes()) == ["lossless: yes before, NO now", "pays (structured): not shown before, yes now"]
    assert compare(after, before).ok, "what was not shown before is no loss"


def test_other_settings_and_points_of_one_report_are_told() -> None:
    after = replace(example(), setting={**example().setting, "vllm": "0.33.0"}, arms=example().arms[1:])
    assert list(compare(example(), after).notes()) == [
        "vllm: 0.32.0 before, 0.33.0 now",
        "only the first report has baseline on structured at load 1",
    ]
    assert list(compare(after, example()).notes()) == [
        "vllm: 0.33.0 before, 0.32.0 now",
        "only the second report has baseline on structured at load 1",
    ]


def test_reports_without_a_common_point_are_not_said_to_be_as_good() -> None:
    others = replace(
        example(),
        speedups=tuple(replace(item, concurrency=99) for item in example().speedups),
        arms=tuple(replace(item, concurrency=99) for item in example().arms),
    )
    without_speedups = replace(example(), speedups=())
    for before, after in ((example(), others), (example(), without_speedups), (without_speedups, example())):
        with pytest.raises(UsageError, match="have no point, or no speedup, in common"):
            compare(before, after)
    assert compare(without_speedups, without_speedups).arms


def test_it_is_shown_in_tables_that_fit() -> None:
    found = compare(example(), faster(example(), 1.5))
    assert max(map(len, comparison_text(found, 80).splitlines())) <= 80
    text = comparison_text(found, 120)
    assert text.startswith("new against gpt-oss-20b-p-eagle: of 8 points 4 faster, 0 slower, 4 without")
    assert "1.50x (1.39-1.62), faster" in text
    assert "52 → 52" in text


def test_it_is_json_and_html() -> None:
    found = compare(example(), faster(example(), 0.7))
    document = json.loads(json.dumps(found.to_dict()))
    assert document["ok"] is False
    assert document["speedups"][0]["better"] is False
    assert document["speedups"][0]["ratio"] == pytest.approx(0.7)
    assert "4 slower" in repr(found)
    assert "0.70x (0.65-0.76), slower" in found._repr_html_()
