"""One answer of an endpoint, with its latencies and the acceptance of its draft tokens."""

from __future__ import annotations

import reprlib
import time
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise, zip_longest
from math import ceil
from typing import Any, NamedTuple

from toolkit.display import card, facts, fold, verbatim
from toolkit.endpoint.events import Choice, Delta, Drafts, Event, EventReader, Usage
from toolkit.errors import InvocationError


@dataclass(frozen=True)
class Acceptance:
    """Acceptance of draft tokens: `histogram[j]` counts the target steps that accepted exactly j of them."""

    histogram: tuple[int, ...] = ()

    @property
    def steps(self) -> int:
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
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
        return Acceptance(tuple(a + b for a, b in zip_longest(self.histogram, other.histogram, fillvalue=0)))

    def __sub__(self, other: Acceptance) -> Acceptance:
        return Acceptance(tuple(a - b for a, b in zip_longest(self.histogram, other.histogram, fillvalue=0)))


@dataclass(frozen=True)
class Arrival:
    """Tokens of any kind (reasoning, answer, tool call) that arrived together, `seconds` after the request was sent."""

    seconds: float
    tokens: int


@dataclass(frozen=True)
class Generation:
    """A finished answer. Times are in seconds from sending the request; `acceptance` is None without speculation.

    `completion_tokens` counts all generated tokens, `reasoning_tokens` those of them that are reasoning;
    `cached_tokens` of the prompt's were in the engine's prefix cache, None if it does not say. `arrivals` is when they
    arrived. Without the engine's token ids, how many came with a chunk is the growth of the usage if each chunk has it,
    otherwise estimated: a share of all tokens by the length of the chunk's text. With `counts_chunks` the engine told
    neither, and each chunk counts as a token. `tool_calls` and `logprobs` (one for each token of the answer's text, if
    they were asked for) are as OpenAI's chat completions have them.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    latency: float
    reasoning: str = ""
    reasoning_tokens: int = 0
    acceptance: Acceptance | None = None
    arrivals: tuple[Arrival, ...] = ()
    token_ids: tuple[int, ...] = ()
    prompt_token_ids: tuple[int, ...] = ()
    cached_tokens: int | None = None
    counts_chunks: bool = False
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    logprobs: tuple[Mapping[str, Any], ...] = ()

    @property
    def ttft(self) -> float:
        """Time to the first token of any kind, in seconds; that to the end of an answer without a token."""
        return self.arrivals[0].seconds if self.arrivals else self.latency

    @property
    def tpot(self) -> float:
        """Mean time per output token after the first, in seconds."""
        return (self.arrivals[-1].seconds - self.ttft) / max(1, self.completion_tokens - 1) if self.arrivals else 0.0

    @property
    def cut(self) -> bool:
        """Whether it ended at `max_tokens`. If that was amid the reasoning, `text` is empty."""
        return self.finish_reason == "length"

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit invoke --json`."""
        document = {**asdict(self), "ttft": self.ttft, "tpot": self.tpot, "cut": self.cut}
        del document["arrivals"]
        return document

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Generation of {self.completion_tokens} tokens in {self.latency:.2f} s: {reprlib.repr(self.text)}>"

    def _repr_html_(self) -> str:
        acceptance = self.acceptance
        positions = ", ".join(f"{share:.0%}" for share in acceptance.per_position) if acceptance else ""
        rate = f", {self.completion_tokens / self.latency:.0f} tokens/s" if self.latency else ""
        reasoning = f", {self.reasoning_tokens} of them reasoning" if self.reasoning_tokens else ""
        rows = [
            ("tokens", f"{self.completion_tokens}{reasoning}{rate}"),
            ("first token", f"{self.ttft * 1000:.0f} ms, then one in {self.tpot * 1000:.1f} ms"),
            ("acceptance", f"{acceptance.length:.2f} tokens per target step" if acceptance else "no drafts"),
            ("accepted by position", positions),
        ]
        parts = (verbatim(self.text), fold("reasoning", self.reasoning), facts(rows))
        says = "cut at max_tokens" if self.cut else self.finish_reason
        return card("Answer", *parts, says=says, tone="fair" if self.cut else "soft")


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
        return _require(self._result)

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def _read(self, parts: Iterable[bytes], clock: Callable[[], float]) -> Iterator[str]:
        answer, started = Answer(), clock()
        for part in parts:
            yield from answer.take(clock() - started, part)
        answer.require_complete()
        self._result = answer.so_far()


class AsyncStream:
    """A streamed answer for event loops: `async for piece in stream`, then `await stream.result()`."""

    def __init__(self, parts: AsyncIterable[bytes], clock: Callable[[], float] = time.perf_counter) -> None:
        self._pieces = self._read(parts, clock)
        self._result: Generation | None = None

    async def result(self) -> Generation:
        async for _ in self._pieces:
            pass
        return _require(self._result)

    def __aiter__(self) -> AsyncIterator[str]:
        return self._pieces

    async def _read(self, parts: AsyncIterable[bytes], clock: Callable[[], float]) -> AsyncIterator[str]:
        answer, started = Answer(), clock()
        async for part in parts:
            for text in answer.take(clock() - started, part):
                yield text
        answer.require_complete()
        self._result = answer.so_far()


class _Piece(NamedTuple):
    """The tokens of one event. `tokens` is None if the engine does not say how many."""

    seconds: float
    reasoning: int
    answer: int
    tokens: int | None

    @property
    def characters(self) -> int:
        return self.reasoning + self.answer


@dataclass
class _ToolCall:
    """What has come of a tool call, whose arguments come in pieces."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def add(self, part: Mapping[str, Any]) -> None:
        function = part.get("function")
        said = function if isinstance(function, dict) else {}
        self.id = self.id or _text(part.get("id"))
        self.name += _text(said.get("name"))
        self.arguments += _text(said.get("arguments"))

    def to_dict(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class Answer:
    """The part of an answer received so far."""

    def __init__(self) -> None:
        self._events = EventReader()
        self._pieces: list[_Piece] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tool_calls: dict[int, _ToolCall] = {}
        self._logprobs: list[Mapping[str, Any]] = []
        self._token_ids: list[int] = []
        self._prompt_token_ids: list[int] = []
        self._finish_reason = ""
        self._usage = Usage()
        self._drafts: Drafts | None = None
        self._seconds = 0.0

    def take(self, seconds: float, part: bytes) -> list[str]:
        """The pieces of the answer's text in a chunk, which may end anywhere. Raises InvocationError."""
        self._seconds, before = seconds, len(self._text)
        for event in self._events.read(part):
            self._take_event(seconds, event)
        return self._text[before:]

    def require_complete(self) -> None:
        """Raises InvocationError if the end has not arrived: usage and acceptance come last."""
        if not (self._finish_reason and (self._events.done or self._usage.completion_tokens is not None)):
            self._events.require_events()
            raise _broken()

    def so_far(self) -> Generation:
        """What has arrived, complete or not."""
        usage = self._usage
        tokens = _tokens(self._pieces, usage.completion_tokens)
        details = usage.completion_tokens_details
        counted = details.reasoning_tokens if details else None
        return Generation(
            text="".join(self._text),
            prompt_tokens=usage.prompt_tokens or len(self._prompt_token_ids),
            completion_tokens=sum(tokens) if usage.completion_tokens is None else usage.completion_tokens,
            finish_reason=self._finish_reason,
            latency=self._seconds,
            reasoning="".join(self._reasoning),
            # vLLM counts from `<think>`, and finds none where the chat template has written it into the prompt
            reasoning_tokens=counted or _reasoning_tokens(self._pieces, tokens),
            counts_chunks=usage.completion_tokens is None and any(piece.tokens is None for piece in self._pieces),
            cached_tokens=usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None,
            acceptance=Acceptance(self._drafts.acceptance_histogram) if self._drafts else None,
            arrivals=_arrivals(self._pieces, tokens),
            token_ids=tuple(self._token_ids),
            prompt_token_ids=tuple(self._prompt_token_ids),
            tool_calls=tuple(call.to_dict() for call in self._tool_calls.values()),
            logprobs=tuple(self._logprobs),
        )

    def _take_event(self, seconds: float, event: Event) -> None:
        self._prompt_token_ids += event.prompt_token_ids or []
        for choice in event.choices:
            self._take_choice(seconds, choice, event.usage)
        self._usage = event.usage or self._usage
        if event.metrics:
            self._drafts = event.metrics.speculative_decoding

    def _take_choice(self, seconds: float, choice: Choice, usage: Usage | None) -> None:
        delta = choice.delta or Delta()
        text, thought = delta.content or choice.text or "", delta.reasoning or delta.reasoning_content or ""
        calls = str(delta.tool_calls) if delta.tool_calls else ""
        self._prompt_token_ids += choice.prompt_token_ids or []
        self._finish_reason = choice.finish_reason or self._finish_reason
        if text:
            self._text.append(text)
        if thought:
            self._reasoning.append(thought)
        for part in _objects(delta.tool_calls):
            self._tool_calls.setdefault(self._number_of(part), _ToolCall()).add(part)
        if isinstance(choice.logprobs, dict):
            self._logprobs += _objects(choice.logprobs.get("content"))
        tokens = self._new_tokens(choice, usage)
        if tokens or (tokens is None and (text or thought or calls)):
            self._pieces.append(_Piece(seconds, len(thought), len(text) + len(calls), tokens))

    def _number_of(self, call: Mapping[str, Any]) -> int:
        """Which tool call it is a part of. Some servers do not number them; then the last, or the next by its `id`."""
        if isinstance(number := call.get("index"), int):
            return number
        last = max(self._tool_calls, default=0)
        is_next = last in self._tool_calls and _text(call.get("id")) not in ("", self._tool_calls[last].id)
        return last + 1 if is_next else last

    def _new_tokens(self, choice: Choice, usage: Usage | None) -> int | None:
        if choice.token_ids is not None:
            self._token_ids += choice.token_ids
            return len(choice.token_ids)
        if self._token_ids:  # the engine tells them, so this choice has none
            return 0
        if usage is None or usage.completion_tokens is None:
            return None
        return max(0, usage.completion_tokens - (self._usage.completion_tokens or 0))


def _objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list, as far as a server sends one."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _tokens(pieces: Sequence[_Piece], total: int | None) -> list[int]:
    """How many tokens each piece has; where that is not known, its share of the `total` by the length of its text."""
    known = [piece.tokens for piece in pieces if piece.tokens is not None]
    if len(known) == len(pieces):
        return known
    if total is None:
        return [1] * len(pieces)
    least = 1 if total >= len(pieces) else 0
    characters = list(accumulate(piece.characters for piece in pieces))
    beyond = [ceil((total - least * len(pieces)) * count / characters[-1]) for count in characters]
    return [least + later - earlier for earlier, later in pairwise([0, *beyond])]


def _arrivals(pieces: Sequence[_Piece], tokens: Sequence[int]) -> tuple[Arrival, ...]:
    together: dict[float, int] = defaultdict(int)
    for piece, count in zip(pieces, tokens, strict=True):
        together[piece.seconds] += count
    return tuple(Arrival(seconds, count) for seconds, count in together.items() if count)


def _reasoning_tokens(pieces: Sequence[_Piece], tokens: Sequence[int]) -> int:
    """Those up to the last piece of reasoning, whose own text may be partly the answer's."""
    last = max((index for index, piece in enumerate(pieces) if piece.reasoning), default=None)
    if last is None:
        return 0
    share = pieces[last].reasoning / pieces[last].characters
    return sum(tokens[:last]) + round(tokens[last] * share)


def _broken() -> InvocationError:
    return InvocationError("the stream ended too early", hint="Send the request again.")


def _require(result: Generation | None) -> Generation:
    if result is None:  # reading raised an error, which the caller caught
        raise _broken()
    return result
