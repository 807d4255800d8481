"""One answer of an endpoint, with its latencies and the acceptance of its draft tokens."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolkit import documents
from toolkit.errors import InvocationError

Message = Mapping[str, str]

# Far beyond what a model writes into its context, with the token ids and log probabilities that may come along.
_MOST_BYTES = 1024**3
_SHOWN_BYTES = 200


class Invoker(Protocol):
    """Sends requests to endpoints. `endpoint` is a name, or `name/component` for an inference component of it."""

    def invoke(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The container's JSON answer. Raises EndpointNotFound or InvocationError."""

    def stream(self, endpoint: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The container's answer as it arrives, in chunks that may end anywhere."""


@dataclass(frozen=True)
class Acceptance:
    """Acceptance of draft tokens: `histogram[j]` counts the target steps that accepted exactly j of them."""

    histogram: tuple[int, ...] = ()

    @property
    def steps(self) -> int:
        """Number of target steps that verified drafts."""
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
        """Number of accepted draft tokens."""
        return sum(j * count for j, count in enumerate(self.histogram))

    @property
    def length(self) -> float:
        """Acceptance length: tokens per step that verified drafts, with the bonus token; 1.0 if none was accepted."""
        return 1 + self.accepted / self.steps if self.steps else 1.0

    @property
    def per_position(self) -> tuple[float, ...]:
        """Share of steps in which the draft token at each position was accepted, first position first."""
        if not self.steps:
            return ()
        return tuple(sum(self.histogram[position:]) / self.steps for position in range(1, len(self.histogram)))

    def __add__(self, other: Acceptance) -> Acceptance:
        size = max(len(self.histogram), len(other.histogram))
        padded = [(*item.histogram, *[0] * (size - len(item.histogram))) for item in (self, other)]
        return Acceptance(tuple(a + b for a, b in zip(*padded, strict=True)))


@dataclass(frozen=True)
class Generation:
    """A finished answer. Times are in seconds from sending the request; `acceptance` is None without speculation.

    `itl` is the mean time per output token after the first (also called TPOT).
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    ttft: float
    latency: float
    acceptance: Acceptance | None = None
    token_ids: tuple[int, ...] = field(repr=False, default=())
    prompt_token_ids: tuple[int, ...] = field(repr=False, default=())

    @property
    def itl(self) -> float:
        """Inter-token latency in seconds."""
        return (self.latency - self.ttft) / max(1, self.completion_tokens - 1)

    def __str__(self) -> str:
        return self.text


class Stream:
    """Pieces of text as they arrive. `result` is the whole Generation once they have all arrived."""

    def __init__(self, parts: Iterable[bytes], clock: Callable[[], float] = time.perf_counter) -> None:
        self._pieces = self._read(parts, clock)
        self._result: Generation | None = None

    @property
    def result(self) -> Generation:
        """The finished answer; reads what has not been read yet. Raises InvocationError."""
        for _ in self._pieces:
            pass
        return _whole(self._result)

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def _read(self, parts: Iterable[bytes], clock: Callable[[], float]) -> Iterator[str]:
        answer = _Answer(clock)
        for part in parts:
            yield from answer.take(part)
        self._result = answer.finished()


class AsyncStream:
    """A streamed answer for event loops: `async for piece in stream`, then `await stream.result()`."""

    def __init__(self, parts: AsyncIterable[bytes], clock: Callable[[], float] = time.perf_counter) -> None:
        self._pieces = self._read(parts, clock)
        self._result: Generation | None = None

    async def result(self) -> Generation:
        """The finished answer; reads what has not been read yet. Raises InvocationError."""
        async for _ in self._pieces:
            pass
        return _whole(self._result)

    def __aiter__(self) -> AsyncIterator[str]:
        return self._pieces

    async def _read(self, parts: AsyncIterable[bytes], clock: Callable[[], float]) -> AsyncIterator[str]:
        answer = _Answer(clock)
        async for part in parts:
            for text in answer.take(part):
                yield text
        self._result = answer.finished()


@dataclass(frozen=True)
class _Delta:
    content: str | None = None


@dataclass(frozen=True)
class _Choice:
    delta: _Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


@dataclass(frozen=True)
class _Usage:
    prompt_tokens: int = 0
    completion_tokens: int | None = None


@dataclass(frozen=True)
class _Drafts:
    acceptance_histogram: tuple[int, ...]


@dataclass(frozen=True)
class _Metrics:
    speculative_decoding: _Drafts | None = None


@dataclass(frozen=True)
class _Event:
    """One event of a streamed chat: what we read of it."""

    choices: list[_Choice] = field(default_factory=list)
    error: Any = None
    metrics: _Metrics | None = None
    prompt_token_ids: list[int] | None = None
    usage: _Usage | None = None


class _Answer:
    """The part of an answer received so far. Its clock starts when this is created."""

    def __init__(self, clock: Callable[[], float]) -> None:
        documents.prepare(_Event)  # takes milliseconds, which are none of the endpoint's
        self._clock = clock
        self._started = clock()
        self._bytes = 0
        self._ttft = 0.0
        self._rest = b""
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._prompt_token_ids: list[int] = []
        self._finish_reason = ""
        self._done = False
        self._last = _Event()

    def take(self, part: bytes) -> Iterator[str]:
        """The pieces of text in a chunk, which may end anywhere. Raises InvocationError."""
        self._bytes += len(part)
        if self._bytes > _MOST_BYTES or len(self._rest) > documents.LIMITS.size:
            raise InvocationError("the endpoint sends without an end", hint="Ask for fewer tokens.")
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            if line.rstrip() == b"data: [DONE]":
                self._done = True
            elif line.startswith(b"data: "):
                yield from self._take_event(_event(line))

    def finished(self) -> Generation:
        """The whole answer. Raises InvocationError if it is incomplete: usage and acceptance arrive last."""
        usage = self._last.usage
        if not self._finish_reason or not (self._done or usage):
            raise _broken()
        usage = usage or _Usage()
        written = len(self._token_ids) if usage.completion_tokens is None else usage.completion_tokens
        figures = self._last.metrics.speculative_decoding if self._last.metrics else None
        return Generation(
            text="".join(self._texts),
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=written,
            finish_reason=self._finish_reason,
            ttft=self._ttft,
            latency=self._clock() - self._started,
            acceptance=Acceptance(figures.acceptance_histogram) if figures else None,
            token_ids=tuple(self._token_ids),
            prompt_token_ids=tuple(self._prompt_token_ids),
        )

    def _take_event(self, event: _Event) -> Iterator[str]:
        if event.error is not None:
            raise InvocationError(f"the endpoint stopped with an error: {event.error}")
        self._prompt_token_ids += event.prompt_token_ids or []
        self._last = event
        for choice in event.choices:
            self._finish_reason = choice.finish_reason or self._finish_reason
            self._token_ids += choice.token_ids or []
            if text := choice.delta.content if choice.delta else None:
                self._ttft = self._ttft or self._clock() - self._started
                self._texts.append(text)
                yield text


def chat_body(prompt: str | Sequence[Message], options: Mapping[str, Any]) -> dict[str, Any]:
    """A streamed chat request with usage and token ids: greedy and at most 256 tokens, unless `options` differ."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    defaults = {"max_tokens": 256, "temperature": 0}
    fixed = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    return {"messages": messages, **defaults, **options, **fixed}


def _event(line: bytes) -> _Event:
    """What a line of a server-sent event stream holds."""
    try:
        return documents.parse(_Event, line[6:])
    except documents.Unfit as error:
        message = f"the endpoint sent {line[:_SHOWN_BYTES]!r}, which is not a chat completion event: {error}"
        raise InvocationError(message) from error


def _broken() -> InvocationError:
    return InvocationError("the stream ended too early", hint="Send the request again.")


def _whole(result: Generation | None) -> Generation:
    if result is None:  # reading raised an error, which the caller caught
        raise _broken()
    return result
