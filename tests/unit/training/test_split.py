"""The split into training and held-out data: what is nearly one question stands on one side of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from toolkit.training.conversations import Conversation, held_out, rank
from toolkit.training.shares import mixed, split

SHARE, SEED = 0.1, 0
STORY = "Tell me what happened when the old lighthouse keeper number {} met a fox from the hills near the sea at night"


def asked(texts: Iterable[str]) -> list[Conversation]:
    return [Conversation(({"role": "user", "content": text},), f"data.jsonl:{n}") for n, text in enumerate(texts)]


def others(count: int) -> list[str]:
    return [f"{word} {word[::-1]} {n * 7919}" for n in range(count) for word in (f"w{n}x",)]


def test_nearly_the_same_question_is_never_on_both_sides() -> None:
    texts = [text for n in range(60) for text in (f"w{n} q{n} z{n} y{n} k{n}", f"W{n}: q{n} z{n}, y{n} k{n} please")]
    conversations = asked(texts)
    sides = split(conversations, SHARE, SEED)
    aside = held_out([sides.of(one.question) for one in conversations], SHARE, SEED)
    on = [sides.of(one.question) in aside for one in conversations]
    assert on[::2] == on[1::2]
    assert 0 < sum(on) < len(on)


def test_questions_that_differ_in_what_they_ask_are_told_apart() -> None:
    capitals = asked(f"What is the capital of {land}?" for land in ("France", "Spain", "Peru"))
    assert split([*capitals, *asked(others(40))], SHARE, SEED).firsts == {}


def test_the_form_that_most_questions_have_tells_none_apart() -> None:
    """Else such traffic would be held out whole, or not at all."""
    conversations = asked([*(STORY.format(n) for n in range(50)), *others(50)])
    assert split(conversations, SHARE, SEED).firsts == {}


def test_data_that_is_added_behind_moves_no_question() -> None:
    before = asked([*others(30), STORY.format(1)])
    after = [*before, *asked([STORY.format("1,") + " please", *others(60)[30:]])]
    old, new = split(before, SHARE, SEED), split(after, SHARE, SEED)
    assert [old.is_aside(one.question) for one in before] == [new.is_aside(one.question) for one in before]
    assert new.of(after[31].question) == before[30].question


@pytest.mark.parametrize(
    ("counts", "shares", "stay"),
    [
        ((70, 100), (None, 0.3), (70, 30)),
        ((70, 10), (None, 0.3), (70, 10)),  # too few: all of them
        ((40, 60, 500), (0.5, 0.3, 0.2), (40, 24, 16)),  # the scarcest decides
        ((50, 50, 90), (None, None, 0.1), (50, 50, 11)),
    ],
)
def test_each_source_stays_up_to_its_share(counts: Sequence[int], shares: Sequence[float | None], stay: object) -> None:
    sources = [source for source, count in enumerate(counts) for _ in range(count)]
    ranks = [rank(str(number), SEED) for number in range(len(sources))]
    kept = mixed(sources, shares, ranks)
    assert tuple(sum(sources[number] == source for number in kept) for source in range(len(counts))) == stay
    for source in range(len(counts)):  # by the lowest ranks, so that data which is added moves few
        own = sorted(number for number in range(len(sources)) if sources[number] == source)
        left = [ranks[number] for number in own if number not in kept]
        assert not left or max(ranks[number] for number in own if number in kept) < min(left)
