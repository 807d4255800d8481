"""One answer of an endpoint, with the times at which it came and what speculation did for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolkit.errors import InvocationError

Message = Mapping[str, str]


class Invoker(Protocol):
    """The invoking side of a platform."""

    def invoke(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The container's JSON answer. Raises EndpointNotFound or InvocationError."""

    def stream(self, endpoint: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The container's answer as it comes, in parts that may end anywhere."""


@dataclass(frozen=True)
class Acceptance:
    """What became of draft tokens: `histogram[j]` counts the target steps that accepted exactly j of them."""

    histogram: tuple[int, ...] = ()

    @property
    def steps(self) -> int:
        """Target steps that verified drafts."""
        return sum(self.histogram)

    @property
    def length(self) -> float:
        """Acceptance length: tokens per target step, the bonus token included; 1.0 when no draft was accepted."""
        accepted = sum(j * count for j, count in enumerate(self.histogram))
        return 1 + accepted / self.steps if self.steps else 1.0

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
    """Pieces of text as they arrive; when they have all come, `result` is the whole Generation."""

    def __init__(self, parts: Iterable[bytes], clock: Callable[[], float] = time.perf_counter) -> None:
        self._pieces = self._read(parts, clock)
        self._result: Generation | None = None

    @property
    def result(self) -> Generation:
        """The finished answer; reads what has not been read yet. Raises InvocationError."""
        for _ in self._pieces:
            pass
        if self._result is None:
            raise InvocationError("the stream broke off before its end", hint="Ask again.")
        return self._result

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def _read(self, parts: Iterable[bytes], clock: Callable[[], float]) -> Iterator[str]:
        started, ttft = clock(), 0.0
        texts: list[str] = []
        token_ids: list[int] = []
        prompt_token_ids: list[int] = []
        finish_reason, last = "", {}
        for event in _events(parts):
            if "error" in event:
                raise InvocationError(f"the endpoint broke off: {event['error']}")
            prompt_token_ids += event.get("prompt_token_ids") or []
            last = event
            for choice in event.get("choices", []):
                finish_reason = choice.get("finish_reason") or finish_reason
                token_ids += choice.get("token_ids") or []
                if text := choice.get("delta", {}).get("content"):
                    ttft = ttft or clock() - started
                    texts.append(text)
                    yield text
        if not finish_reason:
            raise InvocationError("the stream broke off before its end", hint="Ask again.")
        usage = last.get("usage") or {}
        self._result = Generation(
            text="".join(texts),
            prompt_tokens=usage.get("prompt_tokens", 0),
            completion_tokens=usage.get("completion_tokens", len(token_ids)),
            finish_reason=finish_reason,
            ttft=ttft,
            latency=clock() - started,
            acceptance=_acceptance(last),
            token_ids=tuple(token_ids),
            prompt_token_ids=tuple(prompt_token_ids),
        )


def chat_body(prompt: str | Sequence[Message], options: Mapping[str, Any]) -> dict[str, Any]:
    """A streamed chat request: greedy and 256 tokens unless `options` say otherwise, with usage and token ids."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    defaults = {"max_tokens": 256, "temperature": 0}
    fixed = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    return {"messages": messages, **defaults, **options, **fixed}


def _events(parts: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON documents of a server-sent event stream that is cut at arbitrary bytes."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                try:
                    yield json.loads(line[6:])
                except ValueError as error:
                    raise InvocationError(f"the endpoint sent {line!r}, which is not JSON") from error


def _acceptance(event: Mapping[str, Any]) -> Acceptance | None:
    figures = (event.get("metrics") or {}).get("speculative_decoding")
    return Acceptance(tuple(figures["acceptance_histogram"])) if figures else None
