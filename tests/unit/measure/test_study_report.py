"""AWS's study of Trainium: what it published, as it published it, beside what was measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from studied import RATIOS, studied

from toolkit.api.studying import setting_of, studied_recipe
from toolkit.loading import load
from toolkit.measure.read_workloads import read_workloads
from toolkit.measure.study import COLUMNS, WORKLOAD, StudyReport, published

PAIR = load("qwen3-32b/draft-model-trn2-eks")


def report(**changes: str) -> StudyReport:
    return StudyReport(studied(), {**setting_of(PAIR), **changes})


def row(name: str) -> dict[str, str]:
    rows = [dict(zip(COLUMNS, cells, strict=True)) for cells in report().rows()]
    return next(cells for cells in rows if cells["class"] == name)


def test_a_class_has_both_arms_medians_and_what_the_study_says_of_it() -> None:
    assert row("list-numbers") == {
        "class": "list-numbers",
        "ms/token": "16.1/45.0",
        "TTFT ms": "120/120",
        "E2E s": "4.21/11.62",
        "tokens out": "600/600",
        "speedup": "2.80x (2.72-2.88)",
        "published": "faster, no figure",
    }
    assert row("cat")["published"] == "no gain, no figure"
    assert row("json")["published"] == "not published"


def test_a_class_that_there_was_no_time_for_is_not_left_out() -> None:
    assert {row("shakespeare")[name] for name in COLUMNS[1:5]} == {"-/-"}
    assert row("shakespeare")["speedup"] == "-"


def test_what_the_study_says_is_of_its_classes() -> None:
    classes = {workload.name.removeprefix(f"{WORKLOAD}/") for workload in read_workloads(WORKLOAD)}
    assert set(published().classes) < classes
    assert {name.removeprefix(f"{WORKLOAD}/") for name in RATIOS} < classes


def test_the_pair_that_comes_with_the_toolkit_is_set_as_in_the_study() -> None:
    differing = [name for name, *_, differs in report().setting_rows() if differs]
    assert differing == ["asked by"]


def test_on_sagemaker_the_instance_type_differs_too() -> None:
    on_sagemaker = StudyReport(studied(), setting_of(load("qwen3-32b/draft-model-trn2")))
    assert "Measured otherwise than there: hardware, asked by." in on_sagemaker.notes()[0]


@pytest.mark.parametrize("name", published().recipes)
def test_every_recipe_of_the_pair_is_one_of_trn2(name: str) -> None:
    assert studied_recipe("qwen3-32b", "trn2", load(name).platform.name).name == load(name).name


def test_a_class_on_which_speculation_costs_is_no_failure() -> None:
    assert report()
    only_slower = replace(studied(), verdicts=tuple(one for one in studied().verdicts if not one.holds))
    assert not StudyReport(only_slower, setting_of(PAIR))


def test_the_json_document_has_what_was_measured_and_what_was_published() -> None:
    document = json.loads(json.dumps(report().to_dict()))
    assert document["ok"] is True
    assert len(document["rows"]) == 8
    assert document["published"]["figures"][0]["baseline"] is None
    assert len(document["report"]["arms"]) == 6


def test_the_page_has_the_table_before_the_figures_and_runs_nothing() -> None:
    page = report(drafter="<script>alert(1)</script>").to_html()
    assert page.index("16.1/45.0") < page.index("Where it pays")
    assert published().sources["post"] in page
    assert "<script>" not in page


def test_a_notebook_shows_the_table_and_what_differs() -> None:
    shown = report(K="5")._repr_html_()
    assert "16.1/45.0" in shown
    assert "Measured otherwise than there: K, asked by." in shown
    assert "list-numbers  16.1/45.0" in repr(report())
