"""Conversations from rows, without duplicates, and split so that no question stands on both sides."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest

from toolkit.errors import UsageError
from toolkit.recipe.rows import rows
from toolkit.training.conversations import (
    COLUMNS,
    Conversation,
    Skipped,
    conversation_of,
    distinct,
    held_out,
    parts_of,
)

USER = {"role": "user", "content": "Hi"}
ANSWER = {"role": "assistant", "content": "Hello."}


def captured(request: Any, answer: Any = None, encoding: str = "JSON") -> dict[str, Any]:
    def payload(value: Any) -> dict[str, str]:
        text = value if isinstance(value, str) else json.dumps(value)
        return {
            "data": base64.b64encode(text.encode()).decode() if encoding == "BASE64" else text,
            "encoding": encoding,
        }

    output = {} if answer is None else {"endpointOutput": payload(answer)}
    return {"captureData": {"endpointInput": payload(request), **output}, "eventVersion": "0"}


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"messages": [USER, ANSWER]}, [USER, ANSWER]),
        ({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]}, [USER, ANSWER]),
        ({"prompt": "Hi", "response": "Hello."}, [USER, ANSWER]),
        ({"question": "Hi", "answer": "Hello."}, [USER, ANSWER]),
        (
            {"system_prompt": "Brief.", "question": "Hi", "response": "Hello."},
            [{"role": "system", "content": "Brief."}, USER, ANSWER],
        ),
        ({"turns": ["Hi", "And you?"]}, [USER, {"role": "user", "content": "And you?"}]),
        ({"messages": [USER, {**ANSWER, "thinking": "Polite."}]}, [USER, {**ANSWER, "reasoning_content": "Polite."}]),
        (captured({"messages": [USER]}), [USER]),
        (captured({"messages": [USER]}, {"choices": [{"message": ANSWER}]}), [USER, ANSWER]),
        (captured({"messages": [USER]}, {"choices": [{"message": ANSWER}]}, "BASE64"), [USER, ANSWER]),
        (captured({"messages": [USER]}, "data: {}\n\ndata: [DONE]"), [USER]),
    ],
)
def test_shapes_of_conversations(row: dict[str, Any], messages: list[dict[str, str]]) -> None:
    found = conversation_of(row, "a.jsonl:1")
    assert found
    assert list(found.messages) == messages


def test_a_row_without_a_message_of_a_user_is_named() -> None:
    with pytest.raises(UsageError, match=r"a\.jsonl:3: `messages` has no message of a user"):
        conversation_of({"messages": [{"role": "system", "content": "Be brief."}]}, "a.jsonl:3")


def test_captured_requests_that_are_not_chats_are_counted() -> None:
    skipped = Skipped()
    rows = [
        ("a:1", captured({"inputs": [1.0]})),
        ("a:2", captured({"messages": [USER]})),
        ("a:3", captured("not json")),
    ]
    assert len(list(distinct(rows, keep=False, skipped=skipped))) == 1
    assert skipped.text() == "captured requests that are not chats of a caller: 2 (a:1, a:3)"


def test_the_same_question_is_asked_once() -> None:
    skipped = Skipped()
    rows = [("a:1", {"messages": [USER, ANSWER]}), ("a:2", {"prompt": "Hi"}), ("a:3", {"prompt": "Hello?"})]
    found = list(distinct(rows, keep=False, skipped=skipped))
    assert [one.location for one in found] == ["a:1", "a:3"]
    assert found[0].messages == (USER,), "the target answers it anew"
    assert skipped.text() == "duplicates: 1 (a:2)"


@pytest.mark.parametrize(("count", "shown"), [(5, "odd: 5 (1, 2, 3, 4, 5)"), (7, "odd: 7 (1, 2, 3, 4, 5, …)")])
def test_the_first_five_that_are_skipped_are_named(count: int, shown: str) -> None:
    skipped = Skipped()
    for number in range(1, count + 1):
        skipped.add("odd", str(number))
    assert skipped.text() == shown


def test_conversations_without_an_answer_are_not_kept() -> None:
    skipped = Skipped()
    rows = [("a:1", {"prompt": "Hi"}), ("a:2", {"messages": [USER, ANSWER]})]
    assert [one.location for one in distinct(rows, keep=True, skipped=skipped)] == ["a:2"]
    assert skipped.text() == "conversations without an answer of the assistant: 1 (a:1)"


def question(text: str) -> str:
    return Conversation(({"role": "user", "content": text},), "a:1").question


def test_the_same_question_in_other_letters_stands_on_the_same_side() -> None:
    assert question("Name  three\nrivers.") == question("name three rivers.")
    assert question("Name three rivers.") != question("Name four rivers.")


def test_a_question_stays_on_its_side_when_others_are_added() -> None:
    some, more = [question(f"Count to {number}.") for number in range(300)], [question(str(n)) for n in range(300)]
    before = held_out(some, 0.1, seed=3)
    assert held_out([*some, *more], 0.1, seed=3) & set(some) == before
    assert 15 < len(before) < 50
    assert held_out(some, 0.1, seed=4) != before


def test_there_is_always_something_on_both_sides() -> None:
    questions = [question("one"), question("two")]
    assert [len(held_out(questions, share, 0)) for share in (1e-9, 1 - 1e-9)] == [1, 1]
    with pytest.raises(UsageError, match="1 different question"):
        held_out(questions[:1], 0.5, 0)


def test_a_captured_request_beyond_all_bounds_is_counted_and_skipped() -> None:
    lines = [
        json.dumps({"captureData": {"endpointInput": {"data": json.dumps(body), "encoding": "JSON"}}})
        for body in (
            {"messages": [{"role": "user", "content": "," * 200_001}]},
            {"messages": [USER]},
        )
    ]
    skipped = Skipped()
    (found,) = distinct(rows(io.BytesIO("\n".join(lines).encode()), "a.jsonl", COLUMNS), False, skipped)
    assert found.location == "a.jsonl:2"
    assert skipped.text() == "captured requests that are not chats of a caller: 1 (a.jsonl:1)"


def test_a_row_that_cannot_be_used_is_counted_and_named_and_the_others_are_read() -> None:
    content = b'{"prompt": "Name a river."}\n{"prompt": \n{"messages": [7]}\n{"prompt": "Name a sea."}\n'
    skipped = Skipped()
    found = list(distinct(rows(io.BytesIO(content), "a.jsonl", COLUMNS), False, skipped))
    assert [one.messages[0]["content"] for one in found] == ["Name a river.", "Name a sea."]
    assert skipped.counts == {"rows that cannot be used": 2}
    assert [place[:9] for place in skipped.locations["rows that cannot be used"]] == ["a.jsonl:2", "a.jsonl:3"]
    for strict in (content, content.split(b"\n", 2)[2]):
        with pytest.raises(UsageError, match=r"^a\.jsonl:"):
            list(distinct(rows(io.BytesIO(strict), "a.jsonl", COLUMNS), False, Skipped(), strict=True))


def chat(*texts: str, given: int = 0) -> Conversation:
    roles = ("user", "assistant")
    messages = tuple({"role": roles[number % 2], "content": text} for number, text in enumerate(texts))
    return Conversation(messages, "a.jsonl:1", given)


def test_of_a_chat_that_went_on_the_whole_is_learned_once() -> None:
    turns = [chat("a"), chat("a", "b", "c"), chat("a", "b", "c", "d", "e"), chat("a", "x", "c"), chat("q")]
    assert parts_of(turns, keep=False) == {0, 1}
    asked = [one.asked() for one in turns[1:]]
    assert parts_of(asked[1:], keep=False) == {1}  # answers that differ are the target's anew
    whole = [chat("a", "b"), chat("a", "b", "c", "d")]
    assert parts_of(whole, keep=True) == {0}
    captured = [chat("a", "b", given=1), chat("a", "b", "c", "d", given=3)]
    assert parts_of(captured, keep=True) == set()  # of each only the last answer is the target's own
