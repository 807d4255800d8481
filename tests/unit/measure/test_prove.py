"""A proof: what holds, what does not, and the words in which it is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes import ScriptedEndpoints, answer_events, event_stream

from toolkit.errors import InvocationError
from toolkit.measure.prove import TABLE_HEAD, Proof, prove, table_row

PROMPTS = {"structured": ("one", "two", "three")}
TOKENS = (7, 8, 9)
GOOD = (0, 0, 3)  # every step accepted two of two draft tokens


def answer(tokens: Sequence[int] = TOKENS, histogram: Sequence[int] | None = None) -> bytes:
    return event_stream(answer_events(tokens, histogram))


def proof(
    speculative: bytes, baseline: bytes | None = None, first_choices: Sequence[int] = TOKENS, **options: float
) -> tuple[Proof, ScriptedEndpoints]:
    endpoints = ScriptedEndpoints({"e": speculative, "e-baseline": baseline or b""}, first_choices)
    return prove(endpoints, "e", "e-baseline" if baseline else None, PROMPTS, options), endpoints


def verdicts(found: Proof) -> dict[str, bool]:
    return {verdict.claim: verdict.holds for verdict in found.verdicts}


def detail(found: Proof, claim: str) -> str:
    return next(verdict.detail for verdict in found.verdicts if verdict.claim == claim)


def test_a_good_pair() -> None:
    found, _ = proof(answer(histogram=GOOD), answer(), structured=3.0)
    assert found
    assert {verdict.claim: verdict.detail for verdict in found.verdicts} == {
        "speculation is on": "9 target steps verified drafts",
        "drafts are accepted": "tokens per target step: structured 3.00",
        "acceptance on structured is as published": "3.00 measured, 3.00 in the recipe's evidence",
        "the output is the target's own": "3 of 3 greedy answers are those of e-baseline",
    }


def test_both_arms_are_measured_and_the_speedup_is_between_them() -> None:
    found, _ = proof(answer(histogram=GOOD), answer())
    speculative, baseline = found.arms
    assert (speculative.arm, baseline.arm) == ("speculative", "baseline")
    assert (speculative.requests, speculative.identical) == (3, 3)
    assert (speculative.acceptance_length, speculative.acceptance_per_position) == (3.0, (1.0, 1.0))
    assert speculative.speedup == pytest.approx(speculative.tokens_per_second / baseline.tokens_per_second)
    assert (baseline.acceptance_length, baseline.identical, baseline.speedup) == (None, None, None)


def test_what_a_million_tokens_cost_where_a_price_is_known() -> None:
    found, _ = proof(answer(histogram=GOOD), answer())
    assert found.costs == ()
    fast, slow = (replace(arm, tokens_per_second=speed) for arm, speed in zip(found.arms, (100.0, 40.0), strict=True))
    assert replace(found, arms=(fast, slow), price_per_hour=3.6).costs == (
        "structured, speculative: 10.00 $ per million output tokens with one request at a time",
        "structured, baseline: 25.00 $ per million output tokens with one request at a time",
    )


def test_arms_take_turns_in_going_first_after_a_warm_up() -> None:
    _, endpoints = proof(answer(histogram=GOOD), answer())
    assert endpoints.asked == [
        ("e", "warm up"),
        ("e-baseline", "warm up"),
        ("e", "one"),
        ("e-baseline", "one"),
        ("e-baseline", "two"),
        ("e", "two"),
        ("e", "three"),
        ("e-baseline", "three"),
    ]


def test_speculation_that_is_off_is_found_out() -> None:
    found, _ = proof(answer(), answer())
    assert verdicts(found) == {"speculation is on": False, "the output is the target's own": True}
    assert (
        detail(found, "speculation is on")
        == "the engine reports no draft tokens at all: check `speculation` and the engine's log"
    )
    assert not found


def mute(tokens: Sequence[int] = TOKENS) -> bytes:
    """As vLLM V0 answers: neither token ids nor drafts."""
    return answer(tokens).replace(b'"token_ids": [', b'"other_ids": [')


def mute_proof(speculative: bytes, baseline: bytes | None) -> Proof:
    endpoints = ScriptedEndpoints({"e": speculative, "e-baseline": baseline or b""})
    return prove(endpoints, "e", "e-baseline" if baseline else None, PROMPTS, reports_drafts=False)


def test_an_engine_that_reports_no_drafts_is_judged_by_its_speed() -> None:
    found = mute_proof(mute(), mute())
    speedup = found.arms[0].speedup
    assert speedup
    assert verdicts(found) == {"speculation is on": speedup >= 1.05, "the output is the target's own": True}
    assert detail(found, "speculation is on") == (
        f"the engine reports no draft tokens; tokens/s over the baseline's: structured {speedup:.2f}x"
    )


def test_without_a_baseline_an_engine_that_reports_no_drafts_proves_nothing() -> None:
    found = mute_proof(mute(), None)
    assert not any(verdicts(found).values())
    assert "no baseline exists to compare with" in detail(found, "speculation is on")
    assert "the engine returned no token ids to compare" in detail(found, "the output is the target's own")


def test_without_token_ids_the_texts_are_compared() -> None:
    found = mute_proof(mute((7, 5, 9)), mute())
    assert "structured prompt 1: differs from the baseline at character 5" in detail(
        found, "the output is the target's own"
    )


def test_drafts_of_which_none_is_accepted_are_found_out() -> None:
    found, _ = proof(answer(histogram=(3, 0, 0)), answer())
    assert verdicts(found)["speculation is on"]
    assert not verdicts(found)["drafts are accepted"]
    assert detail(found, "drafts are accepted") == "tokens per target step: structured 1.00"


@pytest.mark.parametrize(("published", "holds"), [(3.0, True), (4.9, True), (5.1, False), (2.0, True)])
def test_acceptance_may_be_two_fifths_below_what_was_published(published: float, holds: bool) -> None:
    found, _ = proof(answer(histogram=GOOD), answer(), structured=published)
    assert verdicts(found)["acceptance on structured is as published"] is holds


def test_evidence_on_workloads_that_were_not_asked_says_nothing() -> None:
    found, _ = proof(answer(histogram=GOOD), answer(), other=9.0)
    assert "acceptance on other is as published" not in verdicts(found)


@pytest.mark.parametrize(
    ("tokens", "position"), [((7, 5, 9), 2), ((7, 8), 3), ((7, 8, 9, 9), 4), ((5, 5, 5), 1)]
)  # fmt: skip
def test_the_first_token_that_differs_from_the_baseline_is_named(tokens: tuple[int, ...], position: int) -> None:
    found, _ = proof(answer(tokens, GOOD), answer())
    assert not verdicts(found)["the output is the target's own"]
    assert detail(found, "the output is the target's own") == (
        "0 of 3 greedy answers are those of e-baseline; "
        f"structured prompt 1: differs from the baseline at token {position}; "
        f"structured prompt 2: differs from the baseline at token {position}; "
        f"structured prompt 3: differs from the baseline at token {position}"
    )


def test_without_a_baseline_the_target_scores_the_output() -> None:
    found, endpoints = proof(answer(histogram=GOOD))
    assert found
    assert endpoints.asked[-2:] == [("e", "three"), ("e", "score")] or endpoints.asked.count(("e", "score")) == 3
    assert detail(found, "the output is the target's own") == "3 of 3 greedy answers are the target's own top choices"
    (arm,) = found.arms
    assert arm.speedup is None


def test_without_a_baseline_the_token_that_the_target_would_not_have_chosen_is_named() -> None:
    found, _ = proof(answer(histogram=GOOD), first_choices=(7, 8, 5))
    assert not verdicts(found)["the output is the target's own"]
    assert "structured prompt 1: token 3 is not the target's top choice" in detail(
        found, "the output is the target's own"
    )


def test_an_endpoint_that_says_nothing_is_an_error() -> None:
    with pytest.raises(InvocationError, match="the endpoint generated no tokens"):
        proof(answer(()), answer(()))


def test_a_proof_as_text_html_and_json() -> None:
    found, _ = proof(answer((5,), GOOD), answer())
    assert repr(found).startswith("<Proof e: FAILS>\n  yes speculation is on: 9 target steps verified drafts")
    assert "  NO  the output is the target's own: 0 of 3" in repr(found)
    assert "✘ the output is the target&#x27;s own" in found._repr_html_()
    assert found.to_dict()["ok"] is False
    assert [arm["arm"] for arm in found.to_dict()["arms"]] == ["speculative", "baseline"]


def test_a_row_of_the_table_has_a_cell_for_every_head() -> None:
    found, _ = proof(answer(histogram=GOOD), answer())
    for arm in found.arms:
        assert len(table_row(arm)) == len(TABLE_HEAD)
    assert table_row(found.arms[0])[-2:] == ("3.00", "3/3")
    assert table_row(found.arms[1])[-2:] == ("", "")


def test_a_method_that_drafts_now_and_then_says_in_how_many_steps() -> None:
    tokens = tuple(range(7, 17))
    now_and_then = answer(tokens, (1, 0, 1))  # two of eight steps had drafts, one accepted both of its two
    found = prove(
        ScriptedEndpoints({"e": now_and_then, "e-baseline": answer(tokens)}, tokens), "e", "e-baseline", PROMPTS
    )
    assert found
    assert detail(found, "speculation is on") == "6 of 24 target steps verified drafts"
    assert detail(found, "drafts are accepted") == "tokens per target step that verified drafts: structured 2.00"


def test_an_engine_that_found_nothing_to_draft_is_on_and_proves_nothing() -> None:
    found, _ = proof(answer(histogram=(0, 0, 0)), answer())
    assert verdicts(found) == {
        "speculation is on": True,
        "drafts are accepted": False,
        "the output is the target's own": True,
    }
    assert detail(found, "drafts are accepted") == "nothing was drafted in 3 answers"
    assert not found


class ByPrompt(ScriptedEndpoints):
    """Endpoints whose drafts are good for one prompt and useless for any other."""

    def stream(self, endpoint: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        good = body["messages"][0]["content"] == "one"
        yield answer(histogram=GOOD if good else (3, 0, 0))


@pytest.mark.parametrize(("prompts", "accepted"), [(("one", "two"), True), (("two", "three"), False)])
def test_drafts_that_are_accepted_on_one_workload_are_accepted(prompts: Sequence[str], accepted: bool) -> None:
    found = prove(ByPrompt({}), "e", "e-baseline", {prompt: (prompt,) for prompt in prompts})
    assert verdicts(found)["drafts are accepted"] is accepted
