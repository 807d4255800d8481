"""Of many results the answers of some are kept and figures of all; of very many, those of some blocks."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

from simulated_arms import SimulatedMachine, arm, result, workload

from toolkit.endpoint.generation import Arrival
from toolkit.measure.design import Design
from toolkit.measure.journal import Journal
from toolkit.measure.lossless import count_identical, pair_answers, sample
from toolkit.measure.result import RequestResult, Thinned
from toolkit.measure.run import run
from toolkit.measure.same_target import other_tokens
from toolkit.measure.summary import summarise
from toolkit.recipe.schema import Slo

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


def in_blocks(count: int, size: int = 4) -> list[RequestResult]:
    """Two arms, so many requests of each: the second is 1.2 to 1.4 times as fast."""
    return [
        result(
            arm=name, prompt=n % 50, round=n // 50, seconds=1.2 + n % 3 / 10 if name == "a" else 1.0, block=n // size
        )
        for first in range(0, count, size)
        for name in ("a", "b")
        for n in range(first, first + size)
    ]


def test_of_very_many_whole_blocks_of_both_arms_are_kept_from_first_to_last() -> None:
    failed = [result(arm="a", outcome="failed", output_tokens=0, block=block) for block in range(10)]
    results, kept = in_blocks(4000), Thinned(20, most=1000)
    kept.add(failed)
    for item in results:
        kept.add([item])
    assert 500 < len(kept.results) <= 1000
    assert [(item.outcome, item.block) for item in kept.results[:10]] == [("failed", block) for block in range(10)]
    held = Counter(item.arm for item in kept.results[10:])
    assert held["a"] == held["b"]
    assert {name: held[name] + kept.left_out[name] for name in ("a", "b")} == {"a": 4000, "b": 4000}
    of_blocks = Counter(item.block for item in kept.results[10:])
    assert set(of_blocks.values()) == {8}
    assert min(of_blocks) < 30
    assert max(of_blocks) > 970
    assert sum(not item.digest for item in kept.results) <= 20


def test_up_to_the_bound_nothing_is_left_out() -> None:
    kept = Thinned(most=2000)
    kept.add(in_blocks(1000))
    assert (kept.results, kept.left_out.total()) == (in_blocks(1000), 0)


def test_what_is_left_out_is_counted_and_figures_are_those_of_the_rest() -> None:
    kept, limit = Thinned(most=1000), {"mine": Slo(e2e=1.3)}
    results = in_blocks(4000)
    kept.add(results)
    others = {("mine", 1, False, name): count for name, count in kept.left_out.items()}
    whole = summarise(results, [arm("b")], arm("a"), limit)
    found = summarise(kept.results, [arm("b")], arm("a"), limit, others)
    assert [row.requests for row in found.arms] == [row.requests for row in whole.arms] == [4000, 4000]
    assert [row.meets_slo for row in found.arms] == [row.meets_slo for row in whole.arms] == [False, True]
    assert all(row.e2e and 250 < row.e2e.samples <= 500 for row in found.arms)
    assert found.speedups[0].low < whole.speedups[0].ratio < found.speedups[0].high


def test_a_long_measurement_is_carried_on_with_a_share_of_its_blocks(tmp_path: Path) -> None:
    """A hundred cells have the room of one together, so that few results are too many here."""
    Journal(tmp_path / "run.jsonl", {}).add([replace(item, workload="w0") for item in in_blocks(1500)])
    works = tuple(workload(50 if number == 0 else 1, f"w{number}") for number in range(100))
    design, machine = Design((arm("b"),), works, arm("a"), seconds=1000, requests=30), SimulatedMachine(1, {})
    found = asyncio.run(run(design, machine.send, journal=Journal(tmp_path / "run.jsonl", {}), clock=machine))
    held = [item for item in found.results if item.workload == "w0"]
    assert 1000 < len(held) <= 2000
    assert len(held) + sum(found.left_out.values()) == 3000
    assert {name[:3] for name in found.left_out} == {("w0", 1, False)}
    note = next(note for note in found.notes if note.startswith("figures are of"))
    assert f" of {len(found.results) + sum(found.left_out.values()):,} answers" in note
