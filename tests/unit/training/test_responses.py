"""The target answers anew: turn by turn, each conversation once, whatever interrupts it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted_http import HANGS_UP, Reply, scripted
from transformers import GenerationConfig

from toolkit.errors import PlatformError
from toolkit.training.chat import Chat, Turn, load_chat
from toolkit.training.conversations import Conversation
from toolkit.training.generators import FromServer, InTransformers
from toolkit.training.responses import REFUSED, TOO_LONG, Answer, Lengths, Question, Responses, respond
from toolkit.training.states import load_target

TARGET = str(Path(__file__).parents[3] / "recipes" / "tiny" / "models" / "target")
END = 2


@pytest.fixture(scope="module")
def chat() -> Chat:
    return load_chat(TARGET)


def conversation(*questions: str) -> Conversation:
    return Conversation(tuple({"role": "user", "content": text} for text in questions), "a.jsonl:1")


class Counting:
    """A target that answers with the number of the question, and refuses those that ask for it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, questions: Sequence[Question]) -> Sequence[Answer | None]:
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> Answer | None:
        text = question.messages[-1]["content"]
        self.asked.append(text)
        if text == "Refuse this.":
            return None
        return Answer(Turn(question.prompt, [len(self.asked), END]), f"answer {len(self.asked)}")


def ask(path: Path, chat: Chat, target: Counting, *conversations: Conversation, settings: str = "s") -> list[int]:
    told: list[int] = []
    respond(conversations, Responses(path, settings), target, chat, Lengths(200, 100), told.append)
    return told


def test_every_question_of_a_conversation_is_asked_with_the_answers_before_it(chat: Chat, tmp_path: Path) -> None:
    told = ask(tmp_path / "r.jsonl", chat, Counting(), conversation("One?", "Two?"), conversation("Three?"))
    first, second = Responses(tmp_path / "r.jsonl", "s")
    assert [turn.answer for turn in first.turns] == [[1, END], [3, END]], "all first questions at once, then the second"
    asked = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "answer 1"}]
    assert first.turns[1].prompt == chat.prompt([*asked, {"role": "user", "content": "Two?"}])
    assert (len(second.turns), told) == (1, [2])


def test_what_is_answered_is_not_asked_again(chat: Chat, tmp_path: Path) -> None:
    path, target = tmp_path / "r.jsonl", Counting()
    ask(path, chat, target, conversation("One?"))
    with path.open("ab") as stream:
        stream.write(b'{"digest": "cut off by a ki')
    ask(path, chat, target, conversation("One?"), conversation("Two?"))
    assert target.asked == ["One?", "Two?"]
    assert len(list(Responses(path, "s"))) == 2


def test_other_settings_ask_everything_again(chat: Chat, tmp_path: Path) -> None:
    target = Counting()
    for settings in ("greedy", "random", "temperature 1"):
        ask(tmp_path / "r.jsonl", chat, target, conversation("One?"), settings=settings)
    assert target.asked == ["One?"] * 3


def test_what_is_refused_or_too_long_is_kept_with_its_reason(chat: Chat, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    ask(path, chat, Counting(), conversation("One?", "Refuse this.", "Two?"), conversation("count " * 200))
    assert [(len(one.turns), one.reason) for one in Responses(path, "s")] == [(1, REFUSED), (0, TOO_LONG)]


def completion(**choice: object) -> Reply:
    return Reply(parts=[json.dumps({"choices": [choice], "prompt_token_ids": [1, 287]}).encode()])


def from_server(chat: Chat, *replies: Reply) -> tuple[Sequence[Answer | None], list[dict[str, object]]]:
    """The answer of a server, and what it was asked."""
    import httpx

    question = Question(({"role": "user", "content": "Hi"},), chat.prompt([{"role": "user", "content": "Hi"}]), 7)
    with scripted(*replies) as server, httpx.Client(base_url=f"{server.url}/v1") as client:
        answers = FromServer(client, "tiny", chat, temperature=0.5, seed=3, sleep=lambda _: None)([question])
        assert {request.path for request in server.requests} == {"/v1/chat/completions"}
        return answers, [json.loads(request.body) for request in server.requests]


def test_a_server_gives_the_tokens_that_it_generated(chat: Chat) -> None:
    reply = completion(message={"content": "ab"}, token_ids=[23, 24, END], finish_reason="stop")
    (answer,), (asked,) = from_server(chat, reply)
    assert answer == Answer(Turn([1, 287], [23, 24, END]), "ab")
    assert asked == {
        "model": "tiny",
        "temperature": 0.5,
        "seed": 3,
        "return_token_ids": True,
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 7,
    }


@pytest.mark.parametrize(("reason", "ends"), [("stop", True), ("length", False)])
def test_a_server_that_gives_only_text(chat: Chat, reason: str, ends: bool) -> None:
    (answer,), _ = from_server(chat, completion(message={"content": "3\n4"}, finish_reason=reason))
    assert answer
    assert answer.turn.prompt == chat.prompt([{"role": "user", "content": "Hi"}])
    assert (chat.text(answer.turn.answer), answer.turn.answer[-1] == END) == ("3\n4", ends)


def test_a_busy_server_is_asked_again(chat: Chat) -> None:
    good = completion(message={"content": "ab"}, token_ids=[23, END])
    (answer,), asked = from_server(chat, Reply(503), HANGS_UP, Reply(429), good)
    assert answer
    assert len(asked) == 4


def test_a_refused_question_is_no_error(chat: Chat) -> None:
    assert from_server(chat, Reply(400))[0] == [None]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(401), "answered 401"),
        (Reply(404), "answered 404"),
        (Reply(500), "answered 500"),
        (HANGS_UP, "did not answer: RemoteProtocolError"),
        (Reply(parts=[b"<html>"]), "does not answer with chat completions"),
        (Reply(parts=[b'{"choices": []}']), "does not answer with chat completions"),
    ],
)
def test_a_server_that_does_not_answer_is_named(chat: Chat, reply: Reply, message: str) -> None:
    with pytest.raises(PlatformError, match=rf"127\.0\.0\.1.*{message}"):
        from_server(chat, reply)


def test_transformers_answers_a_batch_as_it_answers_each_prompt_alone(chat: Chat) -> None:
    target = InTransformers(load_target(TARGET, dtype="float32"), chat)
    texts = ("Count from 20 to 60.", "Write the times table of 3 up to 2.", "Write JSON records of the books 12 to 14.")
    prompts = [({"role": "user", "content": text},) for text in texts]
    questions = [Question(messages, chat.prompt(messages), 24) for messages in prompts]
    answers = target(questions)
    assert answers == [target([question])[0] for question in questions]
    assert [answer.text for answer in answers if answer] == [
        "20\n21\n22\n23\n24\n25\n26\n27",
        "3 x 1 = 3\n3 x 2 = 6",
        '{"book": 12, "title": "title-12", "author": "author-12',
    ]
    assert [answer.turn.answer[-1] == END for answer in answers if answer] == [False, True, False]


@pytest.mark.parametrize("setting", [{"no_repeat_ngram_size": 2}, {"stop_strings": ["3"]}])
def test_transformers_says_what_the_target_does_whatever_its_generation_config_adds(
    chat: Chat, setting: dict[str, Any]
) -> None:
    model = load_target(TARGET, dtype="float32")
    model.generation_config = GenerationConfig(**setting)
    messages = ({"role": "user", "content": "Write the times table of 3 up to 2."},)
    (answer,) = InTransformers(model, chat)([Question(messages, chat.prompt(messages), 24)])
    assert answer
    assert answer.text == "3 x 1 = 3\n3 x 2 = 6"
