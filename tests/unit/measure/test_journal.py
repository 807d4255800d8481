"""The file of a measurement's results: each prompt's token ids stand in it once, and it is read as it was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from toolkit.endpoint.generation import Acceptance, Arrival
from toolkit.errors import UsageError
from toolkit.measure.journal import Journal, Same
from toolkit.measure.result import Arrivals, RequestResult

RESULT = RequestResult(
    "speculative",
    "chat",
    prompt=3,
    round=1,
    load=4.0,
    started=1.25,
    seconds=2.5,
    outcome="successful",
    arrivals=(Arrival(0.5, 1), Arrival(0.75, 3)),
    prompt_tokens=3,
    output_tokens=4,
    finish_reason="stop",
    acceptance=Acceptance((1, 0, 2)),
    block=7,
    prompt_token_ids=(1000, 2000, 3000),
    token_ids=(400, 500, 600, 700),
    text="two words",
)
FAILED = RequestResult("baseline", "chat", 4, 0, 2.0, 1.0, 1.0, "failed", error="no answer", open_loop=True)


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    other = replace(RESULT, prompt_token_ids=(9, 8), prompt=5)
    journal = Journal(path, {"seed": 1})
    journal.add([RESULT, FAILED])
    journal.add([other, RESULT])
    assert list(Journal(path, {"seed": 1}).results()) == [RESULT, FAILED, other, RESULT]


def test_a_prompt_stands_in_the_file_once_also_when_it_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Journal(path, {}).add([RESULT, RESULT])
    again = Journal(path, {})
    list(again.results())
    again.add([RESULT, replace(RESULT, prompt_token_ids=(5, 6))])
    text = path.read_text()
    assert text.count("[1000, 2000, 3000]") == 1
    assert text.count("[5, 6]") == 1
    found = list(Journal(path, {}).results())
    assert [item.prompt_token_ids for item in found] == [(1000, 2000, 3000)] * 3 + [(5, 6)]
    assert found[0].prompt_token_ids is found[2].prompt_token_ids


def test_of_two_measurements_with_one_file_only_one_saves_there_and_the_other_says_so(tmp_path: Path) -> None:
    first, second = Journal(tmp_path / "run.jsonl", {}), Journal(tmp_path / "run.jsonl", {})
    assert [*first.results(), *second.results()] == []
    first.add([RESULT])
    second.add([replace(RESULT, prompt_token_ids=(5, 6))])
    first.add([FAILED])
    assert list(Journal(tmp_path / "run.jsonl", {}).results()) == [RESULT, FAILED]
    assert "another process has changed it" in second.notes[0]
    assert not first.notes


@pytest.mark.parametrize("number", ["1", "-1", "true", '"0"', "0.0"])
def test_a_number_of_no_prompt_is_refused(tmp_path: Path, number: str) -> None:
    path = tmp_path / "run.jsonl"
    Journal(path, {}).add([replace(RESULT, prompt_token_ids=(1,))])
    path.write_text(path.read_text().replace('"prompt_ids": 0', f'"prompt_ids": {number}'))
    with pytest.raises(UsageError, match="no prompt before has that number"):
        list(Journal(path, {}).results())


@pytest.mark.parametrize("cut", ["{", '{"arm": "speculative"', '{"prompt_token_ids": [1, 2'])
def test_a_line_that_was_cut_short_is_removed(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "run.jsonl"
    Journal(path, {}).add([RESULT])
    whole = path.read_text()
    path.write_text(whole + cut)
    assert list(Journal(path, {}).results()) == [RESULT]
    assert path.read_text() == whole


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Journal(path, {}).add([RESULT])
    with path.open("ab") as stream:
        stream.truncate(20 * 1024**2)
    with pytest.raises(UsageError, match="a line is longer than"):
        list(Journal(path, {}).results())


def test_arrivals_are_what_they_were_as_objects() -> None:
    arrivals = Arrivals([Arrival(0.5, 1), Arrival(0.75, 3), Arrival(1.0, 2)])
    assert arrivals == (Arrival(0.5, 1), Arrival(0.75, 3), Arrival(1.0, 2))
    assert (arrivals[-1], arrivals[1:]) == (Arrival(1.0, 2), (Arrival(0.75, 3), Arrival(1.0, 2)))
    assert (RESULT.ttft, RESULT.gaps, RESULT.tpot) == (0.5, (0.25,), 0.25 / 3)
    assert replace(RESULT, block=8).arrivals is RESULT.arrivals


def test_answers_that_are_equal_are_the_same_objects() -> None:
    same = Same()
    first, second, other = (
        same.share(replace(RESULT, text=" ".join(["two", "words"]), token_ids=(10**6, 10**6 + number), arm=arm))
        for number, arm in ((1, "speculative"), (1, "baseline"), (2, "baseline"))
    )
    assert first.text is second.text is other.text
    assert first.token_ids is second.token_ids
    assert (other.token_ids, second.arm) == ((10**6, 10**6 + 2), "baseline")
    assert other.token_ids[0] is first.token_ids[0]
    assert Arrivals([Arrival(0.5, 1000)])[0] == Arrival(0.5, 1000)
