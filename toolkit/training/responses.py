"""On-policy answers: the target answers every question of the data anew, so that a head learns what it will draft.

Answers are kept in a file as they come, each conversation on a line: whatever interrupts it, only the others are asked
again. The file holds token ids, exactly as the engine generated them where it returns them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from toolkit import documents
from toolkit.files import writing
from toolkit.recipe.prompts import Message
from toolkit.training.chat import Chat, Tool, Turn, Unmaskable
from toolkit.training.conversations import Conversation

TOO_LONG = "questions longer than max_length"
REFUSED = "questions that the target refused"

_CONVERSATIONS_AT_ONCE = 256


@dataclass(frozen=True)
class Question:
    """What the target is asked: messages, their tokens, the most tokens of its answer, and tools that it may use."""

    messages: tuple[Message, ...]
    prompt: list[int]
    max_tokens: int
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What the target generated. `text` is what a client would show it again, without reasoning."""

    turn: Turn
    text: str


class Generator(Protocol):
    """The target, wherever it runs."""

    def __call__(self, questions: Sequence[Question]) -> Sequence[Answer | None]:
        """The answer to each question; None for one that the target refuses. Raises PlatformError."""


@dataclass(frozen=True)
class Answered:
    """The target's answers to one conversation, which `digest` names. `reason` says why some of them are missing."""

    digest: str
    question: str
    location: str
    turns: tuple[Turn, ...]
    reason: str = ""


class Responses:
    """The file of answers. Those that were made with other settings are not used."""

    def __init__(self, path: Path, settings: str) -> None:
        self._path, self._settings = path, settings
        self._digests = {answered.digest for answered in self._open()}

    def __contains__(self, conversation: Conversation) -> bool:
        return conversation.digest in self._digests

    def __iter__(self) -> Iterator[Answered]:
        """All answers of the file, read one by one."""
        with self._path.open("rb") as stream:
            stream.readline()
            for line in stream:
                yield documents.parse_quickly(Answered, line, _LINE)

    def add(self, answered: Iterable[Answered]) -> None:
        """Append the answers, and have them on the disk. Raises PlatformError."""
        found = list(answered)
        with writing(self._path), self._path.open("ab") as stream:
            stream.write(b"".join(json.dumps(asdict(one)).encode() + b"\n" for one in found))
            stream.flush()
            os.fsync(stream.fileno())
        self._digests |= {one.digest for one in found}

    def _open(self) -> Iterator[Answered]:
        """What the file holds, without a last line that was cut by an interruption."""
        head = json.dumps({"settings": self._settings}).encode() + b"\n"
        with writing(self._path):
            self._path.touch()
            with self._path.open("r+b") as stream:
                if stream.readline() != head:
                    stream.seek(0)
                    stream.truncate()
                    stream.write(head)
                end = stream.tell()
                for line in iter(stream.readline, b""):
                    try:
                        answered = documents.parse_quickly(Answered, line, _LINE)
                    except documents.Unfit:
                        break
                    end = stream.tell()
                    yield answered
                stream.truncate(end)


_LINE = documents.Limits(size=256 * 1024**2)


@dataclass(frozen=True)
class Lengths:
    """The longest sequence and the longest new answer, in tokens."""

    sequence: int
    answer: int


def respond(
    conversations: Iterable[Conversation],
    responses: Responses,
    generate: Generator,
    chat: Chat,
    lengths: Lengths,
    progress: Callable[[int], None],
) -> None:
    """Have the target answer all conversations that it did not answer yet; `progress` is told how many are done.

    Raises PlatformError when the target does not answer any more; what it did answer is kept.
    """
    done = 0
    left = iter(conversations)
    while some := list(islice(left, _CONVERSATIONS_AT_ONCE)):
        new = [one for one in some if one not in responses]
        if new:
            responses.add(_answer(new, generate, chat, lengths))
        done += len(some)
        progress(done)


def _answer(
    conversations: Sequence[Conversation], generate: Generator, chat: Chat, lengths: Lengths
) -> Iterator[Answered]:
    """Turn by turn: all that have a first question, then all that have a second one."""
    asked = [_Asked(conversation) for conversation in conversations]
    while open_ones := [one for one in asked if one.next_message()]:
        questions = [(one, question) for one in open_ones if (question := one.question(chat, lengths))]
        answers = generate([question for _, question in questions])
        for (one, _), answer in zip(questions, answers, strict=True):
            one.take(answer)
    return (one.answered() for one in asked)


class _Asked:
    """A conversation on its way: its questions come one after the other, each with the answers to those before."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._rest = list(conversation.messages)
        self._messages: list[Message] = []
        self._turns: list[Turn] = []
        self._reason = ""

    def next_message(self) -> bool:
        """Go on to the next question, if there is one: a user's message, or the last of several tools'."""
        while self._rest and not self._reason:
            self._messages.append(self._rest.pop(0))
            role = self._messages[-1]["role"]
            if role == "user" or (role == "tool" and self._next_role() != "tool"):
                return True
        return False

    def _next_role(self) -> str:
        return str(self._rest[0]["role"]) if self._rest else ""

    def question(self, chat: Chat, lengths: Lengths) -> Question | None:
        try:
            prompt = chat.prompt(self._messages, self._conversation.tools)
        except Unmaskable as error:
            self._reason = str(error)
            return None
        room = lengths.sequence - len(prompt)
        if room < 1:
            self._reason = TOO_LONG
            return None
        return Question(tuple(self._messages), prompt, min(room, lengths.answer), self._conversation.tools)

    def take(self, answer: Answer | None) -> None:
        """Go on with it, or with the answer of the data, where tools answered to what that asked."""
        if answer is None:
            self._reason = REFUSED
            return
        self._turns.append(answer.turn)
        if self._next_role() != "assistant":
            self._messages.append({"role": "assistant", "content": answer.text})

    def answered(self) -> Answered:
        one = self._conversation
        return Answered(one.digest, one.question, one.location, tuple(self._turns), self._reason)
