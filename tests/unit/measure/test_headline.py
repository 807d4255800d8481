"""What a report says first: the answer and its reasons, for a reader who has never measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reports import example, verdict, with_verdicts

from toolkit.measure.headline import headline, speedup_class, speedup_of
from toolkit.measure.measurement import Claim, Speedup, Verdict

PAYS = verdict("pays", True, workload="structured")
COSTS = verdict("pays", False, workload="open-ended")
FAULTS: dict[Claim, str] = {
    "same-target": "No comparison: the arms serve different models",
    "baseline": "No comparison: the baseline speculates itself",
    "on": "Speculation is off",
    "accepted": "Speculation is on, but drafts are not accepted",
    "lossless": "Not lossless: answers differ from the target model's own",
    "pays": "Speculation does not pay",
    "expected": "Less than the recipe expects",
}


def test_the_best_point_its_price_and_the_worst_point_are_told() -> None:
    found = headline(example())
    assert (found.answer, found.title) == ("yes", "Speculation pays")
    assert found.sentences == (
        "p-eagle is 2.31x as fast as without speculation on structured, one request at a time "
        "(95 % interval 2.19x to 2.45x).",
        "A million output tokens then cost $9.71 instead of $22.44.",
        "It costs elsewhere: p-eagle is 0.71x as fast as without speculation on open-ended, 64 concurrent requests.",
        "2 of 8 points: no difference shown.",
        "Its answers are the target model's own.",
    )


@pytest.mark.parametrize(
    ("verdicts", "answer", "title"),
    [
        ([PAYS], "yes", "Speculation pays"),
        ([PAYS, COSTS], "mixed", "Speculation pays on structured, not on open-ended"),
        ([verdict("pays", None)], "not shown", "Not shown yet: measure longer to see whether speculation pays"),
        ([], "not shown", "Measured, without a comparison"),
    ],
)
def test_without_a_fault_the_title_says_where_speculation_pays(
    verdicts: list[Verdict], answer: str, title: str
) -> None:
    report = with_verdicts(*verdicts)
    found = headline(report)
    assert (found.answer, found.title) == (answer, title)
    assert report.ok is (answer in ("yes", "not shown"))


@pytest.mark.parametrize("basic", range(len(FAULTS)), ids=list(FAULTS))
def test_the_most_basic_fault_is_the_title(basic: int) -> None:
    """What is more basic holds, and what is less basic fails, too; whichever was judged first."""
    verdicts = [verdict(claim, number < basic) for number, claim in enumerate(FAULTS)]
    for judged in (verdicts, verdicts[::-1]):
        report = with_verdicts(*judged)
        assert (headline(report).answer, headline(report).title) == ("no", list(FAULTS.values())[basic])
        assert not report.ok


def test_a_fault_is_explained_first() -> None:
    report = with_verdicts(verdict("lossless", False, "token 7 of prompt 3 is another", "structured"), PAYS)
    assert headline(report).sentences[0] == "structured: token 7 of prompt 3 is another"


@pytest.mark.parametrize(("pays", "found"), [(True, "pays"), (False, "costs"), (None, "not shown")])
def test_a_point_pays_or_costs_or_neither_is_shown(pays: bool | None, found: str) -> None:
    assert speedup_class(Speedup("w", 1, "a", 1.3, 1.2, 1.4, pays=pays)) == found


def test_the_cheapest_point_within_the_slo_is_named() -> None:
    report = example()
    arms = tuple(replace(arm, meets_slo=arm.concurrency in (1, 4)) for arm in report.arms)
    cheapest = "The cheapest point within the SLO is p-eagle on structured, 4 concurrent requests: $3.07 per million"
    assert any(sentence.startswith(cheapest) for sentence in headline(replace(report, arms=arms)).sentences)
    assert not any("SLO" in sentence for sentence in headline(report).sentences)


def test_a_title_does_not_speak_for_points_without_figures() -> None:
    report = example()
    assert headline(replace(report, points=len(report.speedups))).title == "Speculation pays"
    assert headline(replace(report, points=12)).title == "Speculation pays (8 of 12 points measured)"


def test_a_busy_machine_stands_beside_the_title() -> None:
    busy = "this machine was busy before: a load of 9.0 on 2 CPUs"
    assert busy in headline(replace(example(), machine=(busy,))).sentences


def test_without_prices_none_is_told() -> None:
    report = example()
    unpriced = tuple(replace(arm, price_per_million_output_tokens=None) for arm in report.arms)
    assert not any("$" in sentence for sentence in headline(replace(report, arms=unpriced)).sentences)


def test_the_speedup_of_an_arm_in_an_open_loop_is_that_at_its_own_rate() -> None:
    measured = example()
    arm = next(arm for arm in measured.arms if speedup_of(measured, arm))
    speedup = speedup_of(measured, arm)
    assert speedup
    arms = [replace(arm, concurrency=None, rate=rate) for rate in (1.0, 2.0)]
    speedups = tuple(replace(speedup, concurrency=None, rate=rate, ratio=1 + rate) for rate in (1.0, 2.0))
    report = replace(measured, arms=tuple(arms), speedups=speedups)
    assert tuple(speedup_of(report, arm) for arm in arms) == speedups
