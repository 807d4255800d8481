"""Of many results the answers of some are kept; figures of all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from simulated_arms import result

from toolkit.endpoint.generation import Arrival
from toolkit.measure.journal import Journal
from toolkit.measure.lossless import count_identical, pair_answers, sample
from toolkit.measure.result import RequestResult
from toolkit.measure.same_target import other_tokens
from toolkit.measure.thinning import Thinned

ARRIVALS = (Arrival(0.5, 1), Arrival(0.75, 2), Arrival(1.5, 2))


def answered(arm: str, number: int, text: str = "") -> RequestResult:
    answer = {"text": text or f"answer {number}", "token_ids": (number, 7), "arrivals": ARRIVALS, "output_tokens": 5}
    return result(arm=arm, prompt=number % 50, round=number // 50, **answer)


def thinned(count: int, most: int, *, other: int = -1) -> list[RequestResult]:
    """Two arms by turns, whose answers to request `other` differ."""
    kept = Thinned(most)
    for number in range(count):
        kept.add([answered("a", number), answered("b", number, "else" if number == other else "")])
    return kept.results


def test_few_are_kept_as_they_are() -> None:
    assert thinned(20, 40) == [answered(arm, number) for number in range(20) for arm in ("a", "b")]


def test_of_many_those_of_both_arms_to_the_same_requests_are_kept_from_first_to_last() -> None:
    results = thinned(1000, 100)
    assert len(results) == 2000
    whole = [[item.request for item in results if item.arm == arm and not item.digest] for arm in ("a", "b")]
    assert whole[0] == whole[1]
    assert 20 < len(whole[0]) <= 50
    assert min(item[2] for item in whole[0]) < 5
    assert max(item[2] for item in whole[0]) > 14


def test_times_and_counts_are_those_of_the_whole_answer() -> None:
    whole = answered("a", 3)
    thin = whole.thinned()
    assert (thin.ttft, thin.tpot, thin.output_tokens, thin.seconds) == (0.5, 0.25, 5, whole.seconds)
    assert (thin.text, thin.token_ids, thin.gaps) == ("", (), ())
    assert (thin.told, thin.thinned()) == (whole.told, thin)
    assert replace(whole, arrivals=ARRIVALS[:1]).thinned().ttft == 0.5
    assert replace(whole, arrivals=()).thinned().ttft is None


def test_all_answers_are_compared() -> None:
    for other, identical in ((-1, 1000), (3, 999), (997, 999)):
        results = thinned(1000, 100, other=other)
        ours, theirs = ([item for item in results if item.arm == arm] for arm in ("a", "b"))
        assert count_identical(pair_answers(ours, theirs)) == identical


def test_only_answers_that_are_kept_are_judged() -> None:
    chosen = sample(thinned(1000, 100))
    assert len(chosen) == 32
    assert all(item.token_ids for item in chosen)


def test_tokens_of_the_same_texts_are_counted_of_all() -> None:
    results = thinned(1000, 100)
    ours = [replace(item, output_tokens=9) for item in results if item.arm == "a"]
    assert "it counts 9000 tokens" in other_tokens(ours, [item for item in results if item.arm == "b"])


def test_a_journal_has_all_answers_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.jsonl", {})
    journal.add([answered("a", number) for number in range(30)])
    assert list(Journal(tmp_path / "run.jsonl", {}).results()) == [answered("a", number) for number in range(30)]
