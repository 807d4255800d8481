"""A report in the terminal: the verdict first, and tables that fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reports import example, verdict, what_if_example

from toolkit.cli.report_text import report_text


@pytest.mark.parametrize("room", [60, 80, 120])
def test_every_figure_is_in_a_table_that_fits(room: int) -> None:
    text = report_text(example(), room)
    assert text.startswith("gpt-oss-20b-p-eagle: Speculation pays\n")
    assert max(map(len, text.splitlines())) <= room
    assert text.count("load  arm       TTFT ms") == 2, "a table for each workload, with a row for each arm and load"
    assert sum(line.startswith("64    p-eagle ") for line in text.splitlines()) == 4


def test_the_table_in_a_wide_terminal() -> None:
    text = report_text(example(), 120)
    assert """structured
load  arm       tok/s  speedup            acceptance  same  $/M
----  --------  -----  -----------------  ----------  ----  ------
1     baseline  52                                          $22.44
1     p-eagle   120    2.31x (2.19-2.45)  5.01        97%   $9.71
""" in text  # fmt: skip
    assert "Noise, the baseline against itself: 1.01x (0.97-1.05)\nThe machine was idle.\n" in text
    assert "Measured with hardware: 1 x RTX PRO 6000, vllm: 0.32.0, date: 2026-11-22" in text


def test_the_concurrency_at_which_it_breaks_even_is_told() -> None:
    assert """
p-eagle on open-ended breaks even at about 4 concurrent requests.
p-eagle on structured breaks even at about 49 concurrent requests.
""" in report_text(example(), 120)


def test_failed_and_incomplete_requests_are_told() -> None:
    report = example()
    arms = (replace(report.arms[0], failed=3, incomplete=1), *report.arms[1:])
    lines = report_text(replace(report, arms=arms), 120).splitlines()
    assert "768 requests" in lines
    assert "structured, load 1, baseline: 3 failed, 1 incomplete of 48 requests; no figure has them" in lines


def test_open_loops_are_told_by_their_rate() -> None:
    report = example()
    arms = tuple(replace(arm, concurrency=None, rate=2.5) for arm in report.arms[:2])
    speedups = (replace(report.speedups[0], concurrency=None, rate=2.5),)
    text = report_text(replace(report, arms=arms, speedups=speedups), 120)
    assert "on structured, 2.5 requests per second" in text
    assert "2.5/s  p-eagle   120    2.31x" in text


def test_many_workloads_at_several_loads_are_a_map() -> None:
    report = example()
    third = tuple(replace(item, workload="structured, 8k") for item in report.speedups if item.workload == "structured")
    text = report_text(replace(report, speedups=(*report.speedups, *third)), 120)
    assert (
        """
Where it pays: speedup by load
workload        arm      1        4        16           64
--------------  -------  -------  -------  -----------  -----------
structured      p-eagle  2.31x    1.92x    1.34x        0.93x costs
open-ended      p-eagle  1.04x ?  1.01x ?  0.85x costs  0.71x costs
structured, 8k  p-eagle  2.31x    1.92x    1.34x        0.93x costs
"""
        in text
    )
    assert "Where it pays" not in report_text(report, 120)


def test_what_was_cut_short_is_shown_as_far_as_it_came() -> None:
    report = example()
    arms = (replace(report.arms[0], ttft=None, itl=None, tpot=None, e2e=None, output_tokens_per_second=None),)
    text = report_text(replace(report, arms=arms, speedups=(), verdicts=(), noise=None, setting={}), 80)
    assert "Measured, without a comparison" in text
    assert "1     baseline" in text


def test_other_acceptance_is_a_table_and_its_break_even_a_sentence() -> None:
    assert """
What if drafts were accepted otherwise
workload    load  acceptance  speedup            from
----------  ----  ----------  -----------------  ----------------
structured  1     2           1.00x (0.90-1.10)  steps per second
structured  1     3.5         1.75x (1.57-1.93)  steps per second
structured  16    2           0.50x (0.45-0.55)  steps per second
structured  16    3.5         0.88x (0.79-0.96)  steps per second

structured, one request at a time: speculation costs below an acceptance length of 2.00 (1.80-2.20).
structured, 16 concurrent requests: speculation costs, whatever the acceptance.
""" in report_text(what_if_example(), 120)


def test_a_report_on_garbage_claims_nothing_but_speed() -> None:
    report = replace(what_if_example(), verdicts=(verdict("baseline", True), verdict("lossless", None)))
    assert "What if: the speed at chosen acceptance lengths" in report_text(report, 120).splitlines()[0]
