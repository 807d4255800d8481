"""The server-sent events of a streamed chat or completion, as vLLM, SGLang, TGI and other such servers send them.

Engines differ in names: reasoning is `delta.reasoning` (vLLM, OpenRouter) or `delta.reasoning_content` (SGLang,
DeepSeek, older vLLM), the text of a completion is `choices[].text`. Only some send `token_ids`, the usage so far with
each event, or the acceptance of drafts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from toolkit import documents
from toolkit.errors import InvocationError

Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
"""A number of tokens or steps; more are a mistake, or meant to overflow."""

# Far beyond what a model writes into its context, with the token ids and log probabilities that may come along.
_MOST_BYTES = 1024**3
_MOST_LINES = 1000  # of one event: with each all of them are read again
_SHOWN_BYTES = 200


class Delta(msgspec.Struct, frozen=True):
    """What a chat's answer grows by."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: Any = None


class Choice(msgspec.Struct, frozen=True):
    """The news of one answer; `text` is that of a completion."""

    delta: Delta | None = None
    logprobs: Any = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class TokenDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: Count | None = None


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: Count | None = None


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: Count = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens: Count | None = None
    completion_tokens_details: TokenDetails | None = None


class Drafts(msgspec.Struct, frozen=True):
    """`acceptance_histogram[j]` counts the target steps that accepted exactly j draft tokens."""

    acceptance_histogram: tuple[Count, ...]


class Metrics(msgspec.Struct, frozen=True):
    """The engine's figures of one request."""

    speculative_decoding: Drafts | None = None


class Event(msgspec.Struct, frozen=True):
    """One event: the parts of it that we read."""

    choices: list[Choice] = []
    error: Any = None
    metrics: Metrics | None = None
    prompt_token_ids: list[int] | None = None
    usage: Usage | None = None


_OTHER_LINES = (b":", b"event:", b"id:", b"retry:")
_DECODER = msgspec.json.Decoder(Event)


class EventReader:
    """Bytes to events. `done` is whether the stream has said that it is complete."""

    def __init__(self) -> None:
        self.done = False
        self._bytes = 0
        self._beginning = b""
        self._rest = bytearray()
        self._data, self._lines = b"", 0  # of an event that no line has completed yet

    def read(self, part: bytes) -> Iterator[Event]:
        """The events in a chunk, which may end anywhere. Raises InvocationError."""
        if self._bytes < _SHOWN_BYTES:
            self._beginning += part[:_SHOWN_BYTES]
        self._bytes += len(part)
        if self._bytes > _MOST_BYTES or len(self._rest) > documents.LIMITS.size:
            raise InvocationError("the endpoint sends without an end", hint="Ask for fewer tokens.")
        if (
            not (self._rest or self._data)
            and part.startswith(b"data: {")
            and part.endswith(b"\n\n")
            and part.count(b"\n") == 2
        ):
            yield _event(part[6:-2])  # nearly every chunk is one whole event, and need not be taken apart
            return
        if b"\n" not in part:  # what has no line is not looked through again and again
            self._rest += part
            return
        if self._rest:
            part = bytes(self._rest) + part
            self._rest.clear()
        *lines, rest = part.split(b"\n")
        if rest:
            self._rest += rest
        for line in lines:
            if line.startswith(b"data:"):
                yield from self._take(line[5:].strip())
            elif self._data and not line.strip():
                yield _event(self._data)

    def require_events(self) -> None:
        """Raise InvocationError if what came is something else, such as a web page, or an answer in one piece."""
        beginning = self._beginning.lstrip()
        if len(beginning) >= len(b"data:") and b"data:" not in beginning and not beginning.startswith(_OTHER_LINES):
            shown = beginning[:_SHOWN_BYTES].decode(errors="replace")
            hint = "Look at what answers there: it may be a proxy's page, or a server that does not stream."
            raise InvocationError(f"the answer is no stream of events; it begins with {shown!r}", hint=hint)

    def _take(self, data: bytes) -> Iterator[Event]:
        """An event is read with the line that completes it, not with the blank one after it, which some leave out."""
        if data == b"[DONE]":
            self.done = True
        elif data:
            self._lines += 1
            if self._lines > _MOST_LINES:
                raise InvocationError("the endpoint sends an event without an end", hint="Ask for fewer tokens.")
            self._data += (b"\n" if self._data else b"") + data
            with suppress(ValueError, RecursionError):  # the rest of it is still to come
                _DECODER.decode(self._data)
                whole, self._data, self._lines = self._data, b"", 0
                yield _event(whole)


def _event(data: bytes) -> Event:
    try:
        event = _DECODER.decode(data)
        if event.error is None:
            return event
        said = event.error.get("message") if isinstance(event.error, dict) else None
        stopped = f"the endpoint stopped with an error: {said or event.error}"
    except (ValueError, RecursionError) as error:  # nested too deeply to be read, or to be shown
        message = f"the endpoint sent {data[:_SHOWN_BYTES]!r}, which is not a chat completion event: {error}"
        hint = "Check that it serves chat completions, and read the server's log; for an endpoint: toolkit logs."
        raise InvocationError(message, hint=hint) from error
    raise InvocationError(stopped, hint="The server's log says why; of an endpoint: toolkit logs.")
