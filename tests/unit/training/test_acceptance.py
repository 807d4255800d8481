"""The acceptance length of an engine's way through given answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.unit.training.heads import VOCAB, job_for, random_lesson, save_target
from toolkit.engines.registry import training_engine
from toolkit.measure.statistics import Pair, speedup
from toolkit.training.acceptance import Walk, acceptance_of, by_source, walk
from toolkit.training.card import card, report_of
from toolkit.training.head import build_head
from toolkit.training.loop import Result
from toolkit.training.trainer import learner_of
from toolkit.training.vocabulary import draft_vocabulary


def matrix(*runs: int, depths: int = 3) -> torch.Tensor:
    """Right drafts of each anchor up to its run; behind a wrong one they may be right again."""
    right = torch.ones(len(runs), depths, dtype=torch.bool)
    for anchor, run in enumerate(runs):
        right[anchor, run : run + 1] = False
    return right


def test_a_step_takes_what_is_right_up_to_the_first_wrong_draft_and_one_token_more() -> None:
    #                anchors:  0  1  2  3  4  5  6  7  8
    found = walk(matrix(2, 3, 3, 0, 1, 3, 2, 3, 3), torch.ones(9), drafted=3)
    # From 0: 2 right, on to 3; none right, on to 4; 1 right, on to 6; 2 right, and the answer ends.
    assert found == Walk(steps=4, accepted=(3, 2, 0))
    assert found.tokens == 9


def test_with_fewer_draft_tokens_it_stands_elsewhere() -> None:
    assert walk(matrix(3, 0, 3, 0, 3, 0, 3), torch.ones(7), drafted=1) == Walk(3, (3,))
    assert walk(matrix(3, 0, 3, 0, 3, 0, 3), torch.ones(7), drafted=2) == Walk(3, (2, 2))


def test_each_answer_starts_anew_and_a_draft_does_not_reach_into_the_next_one() -> None:
    mask = torch.tensor([0, 1, 1, 1, 0, 0, 1, 1, 1, 1])
    found = walk(matrix(*[3] * 10), mask, drafted=3)
    assert found == Walk(steps=2, accepted=(2, 2, 1))


def test_hard_positions_weigh_as_often_as_an_engine_stands_at_them() -> None:
    """Half of the positions are hard: a mean says 2.5 tokens a step, an engine has 1.6."""
    runs = ([3] * 4 + [0] * 4) * 50
    found = acceptance_of([walk(matrix(*runs), torch.ones(len(runs)), drafted=3)])
    assert found.length == pytest.approx(8 / 5, rel=0.01)
    assert found.per_depth == pytest.approx((0.2, 0.2, 0.2), abs=0.01)


def test_the_interval_is_that_of_a_measured_acceptance_length() -> None:
    """Samples of one conversation are one of its independent units."""
    walks = [Walk(10, (5, 2), 0), Walk(4, (4, 4), 0), Walk(14, (4, 0), 1), Walk(14, (9, 3), 2), Walk(0, (0, 0), 3)]
    found = acceptance_of(walks)
    wanted = speedup([Pair("a", 29, 14, 1, 1), Pair("b", 18, 14, 1, 1), Pair("c", 26, 14, 1, 1)])
    assert wanted
    assert found.conversations == 3
    assert (found.length, found.low, found.high) == pytest.approx((wanted.ratio, wanted.low, wanted.high))
    assert found.per_depth == pytest.approx((22 / 42, 9 / 42))


def test_one_conversation_has_no_interval_and_none_accepts_nothing() -> None:
    assert acceptance_of([Walk(4, (2,), 7)]).low is None
    assert acceptance_of([]).length == 1.0


def test_each_source_of_the_data_has_its_own() -> None:
    walks = [Walk(10, (5,), 0, "chats"), Walk(10, (0,), 1, "code"), Walk(10, (1,), 2, "chats")]
    assert {name: (one.length, one.conversations) for name, one in by_source(walks).items()} == {
        "chats": (1.3, 2),
        "code": (1.0, 1),
    }


@pytest.mark.parametrize("sources", [("chats", "code"), ("chats", "chats")])
def test_the_card_has_a_row_for_each_of_several_sources(sources: tuple[str, str]) -> None:
    walks = tuple(Walk(10, (5 + number % 2,), number, sources[number // 2]) for number in range(4))
    result = Result(3, 3, walks, 0.5, ((3, 1.55),), "", 100, 1.0)
    text = card(report_of(job_for(Path("target"), num_speculative_tokens=1), result), "", training_engine())
    assert re.search(r"at K=1 \| 1\.55 \(1\.4\d-1\.6\d\) \|\n\| held-out conversations \| 4 \|", text)
    rows = [line.rpartition(" | 1.55 (")[0] for line in text.splitlines() if line.startswith(("| chats |", "| code |"))]
    assert rows == (["| chats | 2", "| code | 2"] if "code" in sources else [])


@pytest.mark.parametrize("method", ["p-eagle", "eagle3"])
def test_a_token_that_the_draft_vocabulary_lacks_is_never_right(method: str, tmp_path: Path) -> None:
    """The head says one token everywhere, and the text has nothing else; drafting without that token, it is wrong."""
    target, said = save_target(tmp_path), 700
    sequence = random_lesson(40)
    sequence.input_ids[:] = said
    for lacking in (False, True):
        counts = torch.zeros(VOCAB, dtype=torch.long)
        counts[:said] = counts[said] = 1
        if lacking:
            counts[said], counts[said + 1] = 0, 2
        job = job_for(target, method=method, depth=3)
        head = build_head(job, draft_vocabulary(counts, said + 1, ()))
        # Whatever it reads, its best token is the last of its vocabulary: `said`, or the one after it.
        head.norm.weight.data.fill_(0)
        head.lm_head.weight.data[:] = 0
        head.lm_head = torch.nn.Linear(32, said + 1)
        head.lm_head.bias.data[-1] = 1e3
        found = learner_of(head, job, 40, torch.device("cpu")).evaluate(sequence)
        assert bool(found.right[4:30].any()) is not lacking
