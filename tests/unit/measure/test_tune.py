"""Which of several measured settings is best, for what is wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reports import verdict
from tuned_arms import report_at

from toolkit.errors import PlatformError
from toolkit.measure.measurement import Claim
from toolkit.measure.report import BenchReport
from toolkit.measure.tune import Aim, Candidate, choose, find_schedule, perhaps_as_good, read_curves, schedule_pays
from toolkit.measure.tune_report import TuneReport, evidence, measurement_notes, tune_rows
from toolkit.recipe.schema import Slo


def at_k(k: int, report: BenchReport | None = None) -> Candidate:
    return Candidate(f"K={k}", k, report_at(k) if report is None else report, {"num_speculative_tokens": k})


def test_the_fastest_over_all_workloads_is_the_best() -> None:
    best = choose([at_k(1), at_k(4), at_k(10)], Aim())

    assert best
    assert best.k == 4


@pytest.mark.parametrize("claim", ["on", "lossless", "baseline", "same-target"])
def test_a_setting_whose_output_is_not_the_targets_does_not_count(claim: Claim) -> None:
    wrong = at_k(4, report_at(4, verdicts=(verdict(claim, False),)))

    best = choose([at_k(1), wrong], Aim())

    assert best
    assert best.k == 1


def test_nothing_is_best_where_all_is_slower_than_the_baseline() -> None:
    assert choose([at_k(k, report_at(k, faster=0.3)) for k in (1, 4)], Aim()) is None


def test_a_gain_within_the_noise_is_not_shown() -> None:
    barely = at_k(1, report_at(1, {"chat": 0.314}))  # 1.01x, with an interval of 2 % to each side

    assert 1 < barely.speedups["chat", 1].ratio < 1.02
    assert choose([barely], Aim()) is None


def test_under_an_slo_only_settings_that_meet_it_count() -> None:
    candidates = [at_k(1), at_k(4)]
    # Both have a TPOT of 1/tokens per second, and a p90 of 1.3 times that.
    between = 1.3 / 50 / min(item.ratio for item in candidates[1].speedups.values()) - 1e-9

    assert choose(candidates, Aim(slo=Slo(tpot=1.0))) is candidates[1]
    assert choose([candidates[1]], Aim(slo=Slo(tpot=between))) is None


@pytest.mark.parametrize("limit", ["ttft", "tpot", "e2e"])
def test_each_limit_of_an_slo_counts(limit: str) -> None:
    assert choose([at_k(4)], Aim(slo=Slo(**{limit: 1e-6}))) is None


@pytest.mark.parametrize("limit", ["ttft", "tpot", "e2e"])
def test_a_limit_on_what_was_not_measured_is_not_met(limit: str) -> None:
    """Such as the time per token of answers of one token."""
    report = report_at(4)
    unmeasured = replace(report, arms=tuple(replace(arm, **{limit: None}) for arm in report.arms))

    assert choose([at_k(4, unmeasured)], Aim(slo=Slo(**{limit: 1e6}))) is None


def test_for_cost_a_setting_is_judged_at_the_concurrency_that_suits_it_best() -> None:
    slow_alone = at_k(1, report_at(1, {"chat": 0.7}, loads=(1, 32)))
    fast_alone = at_k(3, report_at(3, {"chat": 0.7}, loads=(1, 32)))
    assert slow_alone.speedups["chat", 1].ratio < fast_alone.speedups["chat", 1].ratio

    none_pays_at_32 = choose([slow_alone, fast_alone], Aim("cost"))
    low_latency = choose([slow_alone, fast_alone], Aim("cost", Slo(tpot=1.3 / 50 - 1e-9)))

    assert none_pays_at_32 is None  # the baseline's 32 requests at a time are cheapest
    assert low_latency is fast_alone


def test_for_cost_every_workload_must_meet_the_slo_at_the_concurrency_that_counts() -> None:
    one = at_k(4)
    rows = [one.row(point) for point in one.speedups]
    faster, slower = sorted(row.tpot.p90 for row in rows if row and row.tpot)

    assert choose([one], Aim("cost", Slo(tpot=slower))) is one
    assert choose([one], Aim("cost", Slo(tpot=(faster + slower) / 2))) is None


def test_a_dearer_instance_must_be_faster_by_as_much() -> None:
    report = report_at(4, {"chat": 0.7})
    dearer = [
        row if row.arm == "baseline" else type(row)(**{**vars(row), "price_per_million_output_tokens": 100.0})
        for row in report.arms
    ]
    costly = at_k(4, BenchReport(report.title, (), tuple(dearer), report.speedups))

    assert choose([costly], Aim("latency")) is costly
    assert choose([costly], Aim("cost")) is None


def test_settings_whose_intervals_overlap_everywhere_may_be_as_good() -> None:
    candidates = [at_k(k, report_at(k, {"chat": 0.8})) for k in (1, 3, 4)]

    assert perhaps_as_good(candidates[2], candidates) == ["K=3"]  # 1.74x and 1.77x, each with 2 % to both sides


def test_notes_on_the_machine_are_told_once_and_the_noise_for_each() -> None:
    busy = [at_k(k, replace(report_at(k), notes=("the machine was busy",))) for k in (1, 3)]

    noise, *notes = measurement_notes(busy)

    assert noise == "Noise, the baseline against itself: K=1 1.00x (0.98-1.02); K=3 1.00x (0.98-1.02)"
    assert notes == ["the machine was busy"]


def test_speeds_are_in_units_of_the_baselines() -> None:
    found = read_curves(report_at(4), 4)[("structured", 1)]

    assert found.seconds_per_token == pytest.approx(1 / report_at(4).speedups[0].ratio)
    assert len(found.acceptance_per_position) == 4


def test_too_few_answers_are_an_error() -> None:
    with pytest.raises(PlatformError, match="too few answers"):
        read_curves(BenchReport("K=4", (), ()), 4)


LOADS = (1, 8, 64)


def several_k() -> list[Candidate]:
    return [at_k(k, report_at(k, {"chat": 0.8}, LOADS)) for k in (1, 3, 6)]


def test_a_k_by_batch_size_follows_from_several_concurrencies() -> None:
    found = find_schedule(several_k(), most_requests=128)

    assert found[0][0] == 1
    assert found[-1][1:] == (128, 0)  # with many requests speculation costs
    assert [k for _, _, k in found] == sorted((k for _, _, k in found), reverse=True)


def test_one_k_for_all_is_no_schedule() -> None:
    assert find_schedule([at_k(3, report_at(3, {"chat": 0.9}, (1, 2)))], most_requests=4) == ()


def by_batch(ratios: tuple[float, ...]) -> Candidate:
    report = report_at(6, {"chat": 0.8}, LOADS)
    changed = tuple(
        type(item)(item.workload, item.concurrency, item.arm, ratio, ratio * 0.98, ratio * 1.02)
        for item, ratio in zip(report.speedups, ratios, strict=True)
    )
    return Candidate("K by batch size", 6, BenchReport("s", (), report.arms, changed), schedule=((1, 8, 6), (9, 64, 0)))


def test_a_schedule_must_beat_the_fixed_k_and_the_baseline_at_every_concurrency() -> None:
    fixed = at_k(3, report_at(3, {"chat": 0.8}, LOADS))

    assert schedule_pays(by_batch((1.74, 1.08, 0.99)), fixed)[0]  # 0.99 is not shown to be slower
    pays, why = schedule_pays(by_batch((1.74, 1.08, 0.9)), fixed)
    assert not pays
    assert "slower at chat, 64 at a time (0.90x, and the baseline 1.00x)" in why
    pays, why = schedule_pays(by_batch((1.5, 1.3, 1.0)), fixed)
    assert not pays
    assert "chat, 1 at a time (1.50x, and K=3" in why


def report() -> TuneReport:
    candidates = [
        at_k(4),
        Candidate("K=2", 2, report_at(2), predicted={("structured", 1): 1.55, ("open-ended", 1): 1.3}),
    ]
    rows = tune_rows(candidates, Aim(), {"K=3": {("structured", 1): 1.9}, "K=4": {("structured", 1): 2.0}})
    return TuneReport("tiny: 2 settings", "latency", rows, "K=4", {"num_speculative_tokens": 4}, 2)


def test_predictions_stand_beside_what_was_measured() -> None:
    rows = {(row.setting, row.workload): row for row in report().rows}

    assert list(dict.fromkeys(row.setting for row in report().rows)) == ["K=2", "K=3", "K=4"]
    assert rows["K=2", "structured"].predicted == 1.55
    assert rows["K=2", "structured"].ratio == pytest.approx(report_at(2).speedups[0].ratio)
    assert rows["K=4", "structured"].predicted is None  # the others are predicted from it
    assert (rows["K=3", "structured"].predicted, rows["K=3", "structured"].ratio) == (1.9, None)


def test_the_report_is_shown_as_text_json_and_html() -> None:
    found = report()

    assert found.answer.startswith("K=4 has the lowest latency: ")
    assert "K=3, structured, 1, 1.90x" in repr(found)
    assert found.to_dict()["winner"] == "K=4"
    assert "<td>K=2</td>" in found._repr_html_()
    assert "speculation: {'num_speculative_tokens': 4}" in repr(found)


def test_figures_become_evidence() -> None:
    setting = {"hardware": "2 CPU cores", "engine": "vllm 0.32.0", "toolkit": "0.1.0", "date": "2026-11-22"}

    found = evidence(at_k(4, replace(report_at(4), setting=setting)), "toolkit tune")

    assert [item.workload for item in found] == ["structured", "open-ended"]
    assert (found[0].num_speculative_tokens, found[0].concurrency, found[0].hardware) == (4, 1, "2 CPU cores")
    assert found[0].source == "toolkit tune 0.1.0: 2.16x (2.11-2.20)"
    assert found[0].speedup == round(report_at(4).speedups[0].ratio, 2)
