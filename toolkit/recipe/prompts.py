"""Prompts and conversations from rows of data files, in the shapes that public data sets have.

Texts may be confidential, and a column may hold a secret: errors name files, lines and columns, and never show a value.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.errors import UsageError, reason
from toolkit.recipe.rows import LIMITS, columns_of, decode, kind, refusal, rows

Message = Mapping[str, Any]
"""`role` and `content` of one message. An assistant's may have its `reasoning_content`, and the `tool_calls` that it
makes; that of a tool the `tool_call_id` and `name` of what it answers.
"""

PROMPT_COLUMNS = ("messages", "conversations", "turns", "prompt", "question", "conversation")
"""The first of these columns that a row has is its prompt. A request that was captured has it in `body`."""
SYSTEM_COLUMNS = ("system", "system_prompt")
"""Where a row has the system prompt beside its messages, as LLaMA-Factory's ShareGPT and OpenOrca have it."""
_LENGTH_COLUMNS = ("max_tokens", "max_completion_tokens", "output_tokens")
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
# The roles of chat templates, and those of ShareGPT's data, of which vLLM's own reader knows the same.
_ROLES = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool")},
    "human": "user",
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard"), "assistant"),
}
_INSTRUCTIONS = ("system", "developer")
_COLUMNS_OF_MESSAGES = ("messages", "conversations", "conversation")
_OBJECTS = re.compile(r"\[\s*\{")
# A list of messages, whose first key is one of theirs: a question may begin with any other JSON.
_MESSAGES_AS_TEXT = re.compile(r"""\[\s*\{\s*["'](role|from|content|value)["']\s*:""")


class _EmptyError(UsageError):
    """A row asks nothing."""


@dataclass(frozen=True)
class Prompt:
    """The messages of one chat. `max_tokens` limits its answer; None: the measurement's limit.

    `later` is what its user says afterwards, one message after each answer.
    """

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    later: tuple[Message, ...] = ()

    @property
    def text(self) -> str:
        """The last message: what the model answers."""
        return str(self.messages[-1]["content"])


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts in a file, in order. Raises UsageError with the line that is wrong."""
    try:
        content = documents.read_file(path, LIMITS)
    except FileNotFoundError as error:
        hint = "Correct the path; in a recipe it is relative to the recipe's folder."
        raise UsageError(f"file {path} does not exist", hint=hint) from error
    except documents.Unfit as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Give fewer prompts, or several files.") from error
    except (OSError, ValueError) as error:
        hint = "Give a file that you may read, such as prompts.jsonl."
        raise UsageError(f"{path} cannot be read: {reason(error)}", hint=hint) from error
    return parse_prompts(content, str(path))


def parse_prompts(content: bytes, name: str) -> tuple[Prompt, ...]:
    """The prompts in a file's content. The ending of its name says what it is; JSONL if it says nothing."""
    prompts, characters = [], 0
    for location, row in rows(io.BytesIO(content), name, (*PROMPT_COLUMNS, *SYSTEM_COLUMNS, *_LENGTH_COLUMNS)):
        try:
            prompts.append(prompt_of(row, location))
        except _EmptyError:
            if "conversations" in row:  # ShareGPT's file has some without a message, or of answers alone
                continue
            raise
        characters += len(prompts[-1].text)
        if characters > LIMITS.size:  # a packed file may be a few kilobytes
            raise refusal(location, f"the file holds more than {LIMITS.size // 1024**2} MiB of text")
    return tuple(prompts)


def prompt_of(row: Any, location: str) -> Prompt:
    """A row as a prompt, without answers at the end; of several turns the first, the others are for later."""
    row = request_of(row, location)
    column, messages = messages_of(row, location)
    later: list[Message] = []
    if _is_turns(row[column]):
        first = 1 + (messages[0]["role"] == "system")
        messages, later = messages[:first], messages[first:]
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    asks = any(message["role"] not in _INSTRUCTIONS for message in messages)
    if not asks or not messages[-1]["content"].strip():
        error = refusal(location, f"`{column}` is empty")
        raise _EmptyError(error.message, hint=error.hint)
    return Prompt(tuple(messages), _max_tokens(row, location), tuple(later))


def request_of(row: Any, location: str) -> Mapping[str, Any]:
    """The object that has the prompt: the row, or its `body`. Raises UsageError."""
    if isinstance(row, UsageError):
        raise row
    if not isinstance(row, Mapping):
        raise refusal(location, f"a row must be an object, not {kind(row)}")
    body = row.get("body")
    return body if isinstance(body, Mapping) else row


def messages_of(row: Mapping[str, Any], location: str) -> tuple[str, list[Message]]:
    """All messages of a row, its system prompt included, and the column that has them. Raises UsageError."""
    column = next((name for name in PROMPT_COLUMNS if row.get(name) is not None), None)
    if column is None:
        raise refusal(location, f"no prompt: the row has {columns_of(row)}")
    has_messages = column in _COLUMNS_OF_MESSAGES
    messages = list(_messages(row[column], f"{location}: `{column}`", has_messages=has_messages))
    system = next((row[name] for name in SYSTEM_COLUMNS if isinstance(row.get(name), str) and row[name].strip()), "")
    if system and not any(message["role"] in _INSTRUCTIONS for message in messages):
        messages.insert(0, {"role": "system", "content": system})
    return column, messages


def _is_turns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _messages(value: Any, location: str, *, has_messages: bool) -> Iterator[Message]:
    is_list = _OBJECTS if has_messages else _MESSAGES_AS_TEXT
    if isinstance(value, str) and is_list.match(value):  # a cell of a CSV file
        value = decode(value, location)
    if isinstance(value, str):
        yield {"role": "user", "content": value}
    elif _is_turns(value):
        yield from ({"role": "user", "content": _content(turn, location)} for turn in value)
    elif isinstance(value, list):
        yield from (_message(item, location) for item in value)
    else:
        raise refusal(location, f"should be text, turns or messages, not {kind(value)}")


def _message(item: Any, location: str) -> Message:
    if not isinstance(item, Mapping):
        raise refusal(location, f"a message must be an object, not {kind(item)}")
    role = _ROLES.get(str(item.get("role", item.get("from"))))
    if role is None:
        raise refusal(location, f"a message's role must be one of {', '.join(_ROLES)}")
    calls = _tool_calls(item.get("tool_calls"), location) if role == "assistant" else []
    content = item.get("content", item.get("value"))
    message = {"role": role, "content": "" if calls and content is None else _content(content, location)}
    if role == "tool":
        return message | {key: item[key] for key in ("tool_call_id", "name") if isinstance(item.get(key), str)}
    reasoning = next((item[key] for key in _REASONING_KEYS if isinstance(item.get(key), str)), "")
    if role == "assistant" and reasoning:
        message["reasoning_content"] = reasoning
    return {**message, "tool_calls": calls} if calls else message


def _tool_calls(value: Any, location: str) -> list[dict[str, Any]]:
    """As OpenAI's chat completions have them."""
    if not value:
        return []
    calls = value if isinstance(value, list) else [value]
    return [_tool_call(call, location) for call in calls]


def _tool_call(call: Any, location: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if isinstance(function, Mapping):
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and isinstance(arguments, str | Mapping):
            named = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)  # as a request has them
            return {**named, "type": "function", "function": {"name": name, "arguments": text}}
    raise refusal(location, "a tool call must be an object with a `function`, its `name` and its `arguments`")


def _content(value: Any, location: str) -> str:
    """A message's text; the parts of one that comes in parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in value]
        if all(isinstance(part, str) for part in parts):
            return "".join(map(str, parts))
    raise refusal(location, "a message's content must be text; images and the like are not supported")


def _max_tokens(row: Mapping[str, Any], location: str) -> int | None:
    column = next((name for name in _LENGTH_COLUMNS if row.get(name) not in (None, "")), None)
    if column is None:
        return None
    value = row[column]
    number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise refusal(location, f"`{column}` must be a whole number of at least 1")
    return number
