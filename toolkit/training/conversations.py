"""Conversations to train on, from rows of data files and records of SageMaker's data capture.

In a file of the user's own each answer of an assistant may be the target's, for which the user vouches. Of a captured
request everything is a caller's word: only what the endpoint answered to it is the target's own.

Conversations are told apart by their prompts: two that start with the same question never stand on both sides of the
split into training and held-out data, and which side that is depends on nothing but the question and the seed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.recipe.captured import is_captured, read_capture
from toolkit.recipe.content import digest
from toolkit.recipe.prompts import PROMPT_COLUMNS, SYSTEM_COLUMNS, Message, messages_of, request_of
from toolkit.recipe.rows import Row, decode, refusal

_ANSWER_COLUMNS = ("response", "completion", "answer", "output")
COLUMNS = (*PROMPT_COLUMNS, *SYSTEM_COLUMNS, "tools", *_ANSWER_COLUMNS)
"""What is read of a row: its prompt, the tools that it offers, and its answer where that has a column of its own."""

UNANSWERED = "conversations without an answer of the assistant"
"""Why they are skipped where answers are kept: the target could answer them."""

MOST_MESSAGES = 2_000
"""Of a conversation: each answer is rendered with all that precedes it, so the work grows with their square."""


@dataclass(frozen=True)
class Conversation:
    """Messages, and the file and line that they come from.

    The first `given` messages are those of a captured request, with all that its caller says was answered before;
    `hour` is when it came, where that is known. A conversation of a file of the user's own has neither. `source` is the
    name of what holds the file. `tools` are the schemas of the functions that the target may call.
    """

    messages: tuple[Message, ...]
    location: str
    given: int = 0
    hour: str = ""
    source: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()

    @property
    def answered(self) -> bool:
        """Whether it has an answer of the target to a message before it."""
        return any(message["role"] == "assistant" for message in self.messages[max(1, self.given) :])

    @property
    def digest(self) -> str:
        """Of all messages, and of the tools that they may use."""
        messages = [sorted(message.items()) for message in self.messages]
        return digest([messages, self.tools] if self.tools else messages)

    @property
    def first(self) -> str:
        """The first message of the user."""
        return next(str(message["content"]) for message in self.messages if message["role"] == "user")

    @property
    def question(self) -> str:
        """Digest of the first message of the user, without regard to case and white space."""
        return digest(self.first.casefold().split())

    def beginnings(self) -> Iterator[str]:
        """Digests of its first message, its first two and so on: the last is of all."""
        so_far = hashlib.sha256()
        for message in self.messages:
            so_far.update(digest(sorted(message.items())).encode())
            yield so_far.hexdigest()

    def asked(self) -> Conversation:
        """Without answers: what the target is asked anew. With tools it is whole: they answered to that."""
        if any(message["role"] == "tool" or message.get("tool_calls") for message in self.messages):
            return self
        return replace(self, messages=tuple(one for one in self.messages if one["role"] != "assistant"))


@dataclass
class Skipped:
    """What is not trained on, and why: how many, and where the first of them are."""

    counts: dict[str, int] = field(default_factory=dict)
    locations: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, location: str) -> None:
        """Count one."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        shown = self.locations.setdefault(reason, [])
        if len(shown) < _MOST_LOCATIONS:
            shown.append(location)

    def text(self) -> str:
        """For people: `duplicates: 2 (a.jsonl:4, a.jsonl:9)`."""
        return "; ".join(
            f"{reason}: {count} ({', '.join(self.locations[reason])}{', …' if count > _MOST_LOCATIONS else ''})"
            for reason, count in self.counts.items()
        )


_MOST_LOCATIONS = 5


def conversation_of(row: Any, location: str) -> Conversation | None:
    """The row's conversation; None for a captured request that is not a caller's chat. Raises UsageError."""
    if is_captured(row):
        return _read_record(row, location)
    request = request_of(row, location)
    if request is not row:  # its `body`, which somebody has sent
        return _request(request, location)
    return _conversation(request, location)


def distinct(
    rows: Iterable[Row], keep: bool, skipped: Skipped, seen: set[str] | None = None, *, strict: bool = False
) -> Iterator[Conversation]:
    """The different conversations of the rows: with their answers (`keep`), or only what is asked.

    `seen` has what other rows had, and gets more. With `strict` a row that cannot be used raises UsageError.
    """
    return (one if keep else one.asked() for one in different(rows, keep, skipped, seen, strict=strict))


def different(
    rows: Iterable[Row], keep: bool, skipped: Skipped, seen: set[str] | None = None, *, strict: bool = False
) -> Iterator[Conversation]:
    """As `distinct`, with the answers before a question in any case: it was asked after them."""
    seen = set() if seen is None else seen
    for location, row in rows:
        try:
            found = conversation_of(row, location)
        except UsageError as error:
            if strict:
                raise
            skipped.add("rows that cannot be used", error.message)
            continue
        if found is None:
            skipped.add("captured requests that are not chats of a caller", location)
            continue
        if keep and not found.answered:
            skipped.add(UNANSWERED, location)
            continue
        if (key := (found if keep else found.asked()).digest) in seen:
            skipped.add("duplicates", location)
            continue
        seen.add(key)
        yield found


def parts_of(conversations: Iterable[Conversation], keep: bool) -> set[int]:
    """The numbers of those that are the beginning of another one: the turns before of a chat that went on.

    With `keep` a captured request is none: its own answer is in no other.
    """
    ends: dict[str, int] = {}
    beginnings: set[str] = set()
    for number, one in enumerate(conversations):
        if keep and one.given:
            continue
        *before, whole = one.beginnings()
        ends[whole] = number
        beginnings.update(before)
    return {number for whole, number in ends.items() if whole in beginnings}


def held_out(questions: Iterable[str], share: float, seed: int) -> frozenset[str]:
    """About that share of the questions, and at least one. Raises UsageError if none would be left to train on.

    A question stays on its side when others are added; only where all would stand on one side, one is moved.
    """
    ranks = {question: rank(question, seed) for question in questions}
    if len(ranks) < 2:
        hint = "Add conversations with other questions: some are held out, and the head never learns from them."
        raise UsageError(f"the data asks {len(ranks)} different questions; training needs at least 2", hint=hint)
    chosen = frozenset(question for question, rank in ranks.items() if rank < share)
    lowest = min(ranks, key=lambda question: ranks[question])
    return chosen if 0 < len(chosen) < len(ranks) else frozenset({lowest})


def rank(question: str, seed: int) -> float:
    """A number from 0 to 1 that looks random."""
    return int(digest([seed, question])[:12], 16) / 16**12


def _read_record(record: Any, location: str) -> Conversation | None:
    try:
        found = read_capture(record)
        if found.is_measurement or not isinstance(found.request, dict):
            return None
        conversation = replace(_request(found.request, location), hour=found.hour)
    except (UsageError, ValueError):
        return None
    answer = _answer(found.answer) if found.words_are_the_models else None
    return conversation if answer is None else replace(conversation, messages=(*conversation.messages, answer))


def _answer(completion: Any) -> Message | None:
    """The message of a chat completion as OpenAI defines it; None for one that was cut, whose end nobody knows."""
    try:
        choice = completion["choices"][0]
        message, whole = choice["message"], choice.get("finish_reason", "stop") == "stop"
        content, reasoning = message["content"], message.get("reasoning_content")
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    if not whole or not isinstance(content, str):
        return None
    answer = {"role": "assistant", "content": content}
    return {**answer, "reasoning_content": reasoning} if isinstance(reasoning, str) and reasoning else answer


def _request(request: Mapping[str, Any], location: str) -> Conversation:
    """What a request asks, in the columns that an endpoint reads. Whatever answers it claims are its caller's word."""
    columns = {name: request[name] for name in ("messages", "prompt", "tools") if name in request}
    one = _conversation(columns, location)
    return replace(one, given=len(one.messages))


def _conversation(row: Mapping[str, Any], location: str) -> Conversation:
    column, messages = messages_of(row, location)
    if not any(message["role"] == "user" and message["content"].strip() for message in messages):
        raise refusal(location, f"`{column}` has no message of a user")
    answer = next((row[name] for name in _ANSWER_COLUMNS if isinstance(row.get(name), str)), None)
    if answer and column in ("prompt", "question") and messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": answer})
    if len(messages) > MOST_MESSAGES:
        raise refusal(location, f"the conversation has more than {MOST_MESSAGES:,} messages")
    tools = _tools(row.get("tools"), location)
    calls = [message["tool_calls"] for message in messages if "tool_calls" in message]
    size = sum(len(message["content"]) for message in messages) + len(json.dumps([calls, tools]))
    if size > documents.LIMITS.size:  # a packed file may be small
        raise refusal(location, f"the conversation has more than {documents.LIMITS.size // 1024**2} MiB of text")
    return Conversation(tuple(messages), location, tools=tools)


def _tools(value: Any, location: str) -> tuple[Mapping[str, Any], ...]:
    """As OpenAI's chat completions have them; as text in a table."""
    found = decode(value, location) if isinstance(value, str) and value else value or []
    if not isinstance(found, list) or not all(isinstance(tool, Mapping) for tool in found):
        raise refusal(location, "`tools` must be a list of objects, each the schema of a function")
    return tuple(found)
