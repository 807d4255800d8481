"""Each claim: when it holds, when it does not, and when the measurement does not show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from simulated_arms import arm, result

from toolkit.endpoint.generation import Acceptance, Arrival
from toolkit.measure.arm import Arm, Expected
from toolkit.measure.measurement import Verdict
from toolkit.measure.result import RequestResult
from toolkit.measure.summary import summarise
from toolkit.measure.verdicts import slos, verdicts
from toolkit.recipe.schema import Expect, Slo

SPEC, BASE = arm("spec"), replace(arm("base"), speculative=False)
ACCEPTED = Acceptance((10, 10, 20))  # 2.25 tokens per step
PAYS = (0.5, 0.52, 0.48, 0.51)
COSTS = (2.0, 2.1, 1.9, 2.0)
ALIKE = (1.0, 1.01, 0.99, 1.0)
NOISY = (0.5, 1.6, 0.9, 0.7)


def answers(
    name: str, seconds: Sequence[float], acceptance: Acceptance | None = None, workload: str = "mine", load: float = 1
) -> list[RequestResult]:
    return [
        result(
            arm=name,
            workload=workload,
            prompt=prompt,
            load=load,
            started=prompt * 10.0,
            seconds=each,
            arrivals=(Arrival(each / 10, 1), Arrival(each, 99)),
            acceptance=acceptance,
        )
        for prompt, each in enumerate(seconds)
    ]


def measured(spec: Sequence[float] = PAYS, acceptance: Acceptance | None = ACCEPTED) -> list[RequestResult]:
    return answers("spec", spec, acceptance) + answers("base", (1.0,) * len(spec))


def judged(
    results: Sequence[RequestResult],
    claim: str,
    arms: Sequence[Arm] = (SPEC,),
    baseline: Arm | None = BASE,
) -> list[Verdict]:
    found = verdicts(results, summarise(results, arms, baseline), arms, baseline)
    return [verdict for verdict in found if verdict.claim == claim]


def expecting(expected: Expected) -> Arm:
    return replace(SPEC, expected=expected)


def only(found: Sequence[Verdict]) -> Verdict:
    (verdict,) = found
    return verdict


@pytest.mark.parametrize(
    ("seconds", "holds", "word"),
    [(PAYS, True, "pays"), (COSTS, False, "costs"), (ALIKE, False, "gains nothing"), (NOISY, None, "not shown")],
)
def test_an_arm_pays_costs_or_it_is_not_shown(seconds: Sequence[float], holds: bool | None, word: str) -> None:
    found = only(judged(measured(seconds), "pays"))
    assert (found.holds, found.workload) == (holds, "mine")
    assert f"spec {word}:" in found.detail


def test_a_verdict_that_is_not_shown_says_what_would_show_it() -> None:
    assert "more requests of each arm" in only(judged(measured(NOISY), "pays")).detail


@pytest.mark.parametrize(
    ("ours", "theirs", "holds"), [(0, 0, True), (2, 2, True), (2, 3, True), (3, 2, None), (2, 0, None)]
)
def test_an_arm_that_fails_more_often_than_the_baseline_is_not_shown_to_pay(
    ours: int, theirs: int, holds: bool | None
) -> None:
    """A prompt that is too long fails on both: that is no fault of the arm's. What it alone fails may be the harder."""
    lost = [(SPEC.name, ours), (BASE.name, theirs)]
    failed = [result(arm=name, prompt=10 + n, outcome="failed") for name, number in lost for n in range(number)]
    found = only(judged([*measured(), *failed], "pays"))
    assert found.holds is holds
    assert ("more of its requests failed than of the baseline's" in found.detail) is (holds is None)


def test_an_arm_at_half_the_speed_never_holds() -> None:
    """A ratio of 0.45 passed the proof before intervals were judged."""
    results = measured([1 / 0.45] * 4)
    assert only(judged(results, "pays")).holds is False


def test_it_is_enough_to_pay_at_one_load() -> None:
    at_16 = answers("spec", COSTS, ACCEPTED, load=16) + answers("base", (1.0,) * 4, load=16)
    found = only(judged(measured() + at_16, "pays"))
    assert found.holds is True
    assert "spec costs: 0.50x" in found.detail


def test_no_needs_every_point() -> None:
    results = measured(COSTS)
    summary = summarise(results, [SPEC], BASE)
    for points, holds in ((1, False), (2, None)):
        found = verdicts(results, summary, [SPEC], BASE, {"mine": points})
        assert [item.holds for item in found if item.claim == "pays"] == [holds]


def test_a_workload_that_was_not_measured_is_not_shown() -> None:
    results = measured(COSTS)
    found = verdicts(results, summarise(results, [SPEC], BASE), [SPEC], BASE, {"mine": 1, "other": 1})
    assert [(item.workload, item.holds) for item in found if item.claim == "pays"] == [("mine", False), ("other", None)]


def test_too_few_blocks_are_not_shown_and_what_is_missing_is_said() -> None:
    one_block = [replace(item, load=4, block=0) for item in measured()]
    found = only(judged(one_block, "pays"))
    assert found.holds is None
    assert "has 0.0 degrees of freedom, at least 4 are needed" in found.detail


def test_what_pays_at_one_load_may_be_chance_among_three() -> None:
    """1.31x, whose interval begins at 1.05 for one look and at 0.98 for three."""
    seconds = [math.exp(-0.3 + stray) for stray in (0.25, -0.25) * 4]

    def at(load: float) -> list[RequestResult]:
        return answers("spec", seconds, ACCEPTED, load=load) + answers("base", (1.0,) * 8, load=load)

    assert only(judged(at(1), "pays")).holds is True
    assert only(judged(at(1) + at(4) + at(16), "pays")).holds is None


def test_each_workload_is_judged() -> None:
    other = answers("spec", COSTS, ACCEPTED, "other") + answers("base", (1.0,) * 4, workload="other")
    assert [(found.workload, found.holds) for found in judged(measured() + other, "pays")] == [
        ("mine", True),
        ("other", False),
    ]


def test_a_baseline_that_drafts_is_none() -> None:
    results = answers("spec", PAYS, ACCEPTED) + answers("base", ALIKE, ACCEPTED)
    found = only(judged(results, "baseline"))
    assert found.holds is False
    assert "base speculates itself" in found.detail


def test_a_baseline_drafts_nothing() -> None:
    assert only(judged(measured(), "baseline")).holds is True
    silent = replace(BASE, reports_drafts=False)
    assert only(judged(measured(), "baseline", baseline=silent)).holds is None
    assert judged(measured(), "baseline", baseline=None) == []


@pytest.mark.parametrize(("acceptance", "on"), [(ACCEPTED, True), (Acceptance(()), True), (None, False)])
def test_speculation_is_on_if_the_engine_counts_drafts(acceptance: Acceptance | None, on: bool) -> None:
    assert only(judged(measured(acceptance=acceptance), "on")).holds is on


@pytest.mark.parametrize(("seconds", "on"), [(PAYS, True), (COSTS, None), (ALIKE, None), (NOISY, None)])
def test_an_engine_that_counts_no_drafts_is_judged_by_its_speed(seconds: Sequence[float], on: bool | None) -> None:
    """One that is slow may be slow because it drafts in vain."""
    silent = replace(SPEC, reports_drafts=False)
    assert only(judged(measured(seconds, None), "on", [silent])).holds is on
    assert judged(measured(seconds, None), "accepted", [silent]) == []


def test_drafts_that_cannot_be_seen_are_not_shown_whatever_the_speed() -> None:
    """A faster machine makes a fast arm, too."""
    unseen = replace(SPEC, reports_drafts=None)
    found = only(judged(measured(PAYS, None), "on", [unseen]))
    assert (found.holds, judged(measured(PAYS, None), "accepted", [unseen])) == (None, [])
    assert "cannot be seen" in found.detail


def test_figures_in_the_answers_are_seen_without_counters() -> None:
    assert only(judged(measured(), "on", [replace(SPEC, reports_drafts=None)])).holds is True


@pytest.mark.parametrize(
    ("acceptance", "holds"),
    [(ACCEPTED, True), (Acceptance((960, 40)), False), (Acceptance((999, 1)), False), (Acceptance((0,)), False)],
)
def test_drafts_are_accepted_or_not(acceptance: Acceptance, holds: bool) -> None:
    assert only(judged(measured(acceptance=acceptance), "accepted")).holds is holds


def test_without_answers_it_is_open_whether_drafts_are_accepted() -> None:
    assert only(judged([], "accepted", [replace(SPEC, reports_drafts=True)])).holds is None


def test_drafts_are_accepted_where_the_best_workload_accepts_them() -> None:
    hopeless = answers("spec", PAYS, Acceptance((999, 1)), "other")
    assert only(judged(measured() + hopeless, "accepted")).holds is True
    unclear = [replace(item, acceptance=Acceptance((60, item.prompt // 3 * 40))) for item in answers("spec", PAYS)]
    assert only(judged(unclear, "accepted")).holds is None
    assert only(judged(unclear + hopeless, "accepted")).holds is None


def test_one_of_several_arms_that_does_not_draft_is_named() -> None:
    off = arm("off")
    found = only(judged(measured() + answers("off", ALIKE), "on", [SPEC, off]))
    assert found.holds is False
    assert "off: the engine reports no draft tokens" in found.detail


def with_lengths(*steps: int) -> list[RequestResult]:
    """Answers whose acceptance length differs by prompt."""
    lengths = [Acceptance((10, 10, count)) for count in steps]
    spec = [replace(item, acceptance=lengths[item.prompt]) for item in answers("spec", PAYS)]
    return spec + answers("base", (1.0,) * 4)


@pytest.mark.parametrize(("published", "holds"), [(2.2, True), (2.3, True), (1.5, True), (2.9, False)])
def test_acceptance_is_held_against_the_evidence_by_its_interval(published: float, holds: bool) -> None:
    arm = expecting(Expected(published={"mine": published}))
    found = only(judged(with_lengths(18, 20, 22, 20), "expected", [arm]))
    assert found.holds is holds


def test_prompts_that_differ_a_lot_are_no_evidence_against_a_published_length() -> None:
    found = only(judged(with_lengths(0, 5, 40, 80), "expected", [expecting(Expected(published={"mine": 2.9}))]))
    assert found.holds is True


def test_the_evidence_of_one_recipe_is_none_against_another_drafter() -> None:
    results = with_lengths(18, 20, 22, 20)
    other = [replace(item, arm="other", acceptance=Acceptance((10, 1))) for item in results if item.arm == "spec"]
    arms = [expecting(Expected(published={"mine": 2.2})), arm("other")]
    assert only(judged([*results, *other], "expected", arms)).holds is True


@pytest.mark.parametrize(
    ("expect", "holds"),
    [
        (Expect(speedup=1.5), True),
        (Expect(speedup=2.0), None),
        (Expect(speedup=3.0), False),
        (Expect(acceptance_length=2.0), True),
        (Expect(acceptance_length=2.5), False),
        (Expect(slo=Slo(e2e=0.4, share=0.9)), False),
        (Expect(slo=Slo(e2e=0.6, share=0.3)), True),
        (Expect(slo=Slo(e2e=0.6, share=0.9)), None),
        (Expect(slo=Slo(ttft=0.06, tpot=0.01, share=0.3)), True),
        (Expect(slo=Slo(ttft=0.01, tpot=0.01, share=0.9)), False),
        (Expect(slo=Slo(ttft=0.06, tpot=0.001, share=0.9)), False),
        (Expect(speedup=1.5, concurrency=4), None),
    ],
)
def test_what_a_recipe_expects_becomes_a_verdict(expect: Expect, holds: bool | None) -> None:
    found = only(judged(measured(), "expected", [expecting(Expected({"mine": expect}))]))
    assert (found.holds, found.workload) == (holds, "mine")


def test_goodput_counts_the_requests_within_the_slo() -> None:
    limits = slos([expecting(Expected({"mine": Expect(slo=Slo(e2e=0.505))}))])
    rows = {row.arm: row.goodput for row in summarise(measured(), [SPEC], BASE, limits).arms}
    assert rows["base"] == 0
    assert rows["spec"] == pytest.approx(2 / sum(PAYS))
