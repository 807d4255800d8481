"""One measured request: when its tokens arrived, and what came of it. And the results of a measurement of any length.

These are held in bounded memory: of some the whole answer, of others times and counts. Answers are for comparing arms,
of which a few dozen are judged, and gaps between tokens for percentiles. Whole they are most of the memory of many
results. So those to a share of the requests are kept whole, the same of every arm and from the first to the last; the
share halves whenever they are too many.

When the results themselves are too many, a share of the blocks is kept, as hashes of their numbers choose: with all
arms, all requests that ran together, and from the first to the last. So every figure and interval of them is reckoned
as of a shorter measurement, and is right for one. Of the others answers are only counted; failures are all kept.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Literal, overload

from toolkit.endpoint.generation import Acceptance, Arrival

Outcome = Literal["successful", "failed", "incomplete"]
Request = tuple[str, int, int, float, bool, str]
"""Workload, prompt, round, load, whether it is an open loop, and what was said before."""
_DIGEST_BYTES = 8


class Arrivals(Sequence[Arrival]):
    """Arrivals as two arrays: as objects they would take most of the memory of a measurement."""

    __slots__ = ("_tokens", "seconds")

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        items = list(arrivals)
        tokens = [item.tokens for item in items]
        self.seconds = array("d", [item.seconds for item in items])
        self._tokens: Sequence[int] = bytes(tokens) if max(tokens, default=0) < 256 else array("L", tokens)

    def __len__(self) -> int:
        return len(self.seconds)

    @overload
    def __getitem__(self, index: int) -> Arrival: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Arrival, ...]: ...
    def __getitem__(self, index: int | slice) -> Arrival | tuple[Arrival, ...]:
        if isinstance(index, slice):
            return tuple(map(Arrival, self.seconds[index], self._tokens[index]))
        return Arrival(self.seconds[index], self._tokens[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class RequestResult:
    """What came of one request. Times are in seconds.

    `prompt` is the prompt's index in its workload, `round` counts how often it was asked before, `started` is the time
    since the measurement began. `load` is the number of concurrent requests, or the requests per second with
    `open_loop`. An `incomplete` request was cut by the end of the measurement. `acceptance` is None if the engine
    reports no drafts for the request, and `cached_tokens` if it does not say how many of the prompt's were in its
    prefix cache. `joules` are its share of what the arm's machine used, None if unknown. With `counts_chunks` the
    server told neither usage nor token ids, and a chunk counts as a token. What was asked together has the same `block`
    within its workload and load. Token ids and text are for comparing arms: they stay out of reports. `said` tells one
    beginning of a chat from another, with the arm's own answers in it; it is empty in a first turn. With a `digest` ids
    and text are not kept, only what tells one answer from another, and of the arrivals the first and the last one.
    """

    arm: str
    workload: str
    prompt: int
    round: int
    load: float
    started: float
    seconds: float
    outcome: Outcome
    arrivals: Sequence[Arrival] = ()
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    counts_chunks: bool = False
    output_tokens: int = 0
    reasoning_tokens: int = 0
    finish_reason: str | None = None
    acceptance: Acceptance | None = None
    joules: float | None = None
    error: str | None = None
    open_loop: bool = False
    block: int | None = None
    prompt_token_ids: tuple[int, ...] = field(default=(), repr=False)
    token_ids: tuple[int, ...] = field(default=(), repr=False)
    text: str = field(default="", repr=False)
    reasoning: str = field(default="", repr=False)
    said: str = field(default="", repr=False)
    digest: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.arrivals, Arrivals):
            object.__setattr__(self, "arrivals", Arrivals(self.arrivals))

    @property
    def request(self) -> Request:
        """What tells this request from others: answers of two arms can be compared where it is the same."""
        return self.workload, self.prompt, self.round, self.load, self.open_loop, self.said

    @property
    def place(self) -> tuple[object, ...]:
        """Its place in the measurement. Speeds of two arms are compared there, also where their chats have parted."""
        return self.request[:-1]

    @property
    def ttft(self) -> float | None:
        """Time to the first generated token of any kind; None if none arrived."""
        return self.arrivals[0].seconds if self.arrivals else None

    @property
    def gaps(self) -> tuple[float, ...]:
        """Inter-token latencies (ITL): the time between two arrivals of tokens; none where they are not kept."""
        if self.digest:
            return ()
        assert isinstance(self.arrivals, Arrivals)
        return tuple(later - earlier for earlier, later in pairwise(self.arrivals.seconds))

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first; None for answers of fewer than two tokens."""
        if self.ttft is None or self.output_tokens < 2:
            return None
        return (self.arrivals[-1].seconds - self.ttft) / (self.output_tokens - 1)

    @property
    def told(self) -> tuple[bytes, bytes, bytes]:
        """What is equal for equal token ids, texts and reasonings."""
        whole = self.digest or self._digest()
        return whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:-_DIGEST_BYTES], whole[-_DIGEST_BYTES:]

    def thinned(self) -> RequestResult:
        """Without the answer, and without the arrivals between the first and the last one."""
        ends = (*self.arrivals[:1], *self.arrivals[1:][-1:])
        digest = self.digest or self._digest()
        return replace(self, arrivals=ends, token_ids=(), text="", reasoning="", digest=digest)

    def _digest(self) -> bytes:
        parts = array("q", self.token_ids).tobytes(), self.text.encode(), self.reasoning.encode()
        return b"".join(blake2b(part, digest_size=_DIGEST_BYTES).digest() for part in parts)


NOTHING_TOLD = RequestResult("", "", 0, 0, 0, 0, 0, "successful").told


def successful(results: Sequence[RequestResult]) -> list[RequestResult]:
    """The results that latencies are taken from: failures are counted, never averaged over."""
    return [result for result in results if result.outcome == "successful"]


_MOST_WHOLE, _MOST = 20_000, 200_000
_ALL = 2**64
# A cell of very many, in which intervals are to be told from noise all the same.
_FEWEST = 2_000


class Thinned:
    """Results in their order, at most `most` of them. `left_out` counts by arm the answers that are not held."""

    def __init__(self, most_whole: int = _MOST_WHOLE, most: int = _MOST) -> None:
        self.results: list[RequestResult] = []
        self.left_out: Counter[str] = Counter()
        self._most_whole, self._below, self._whole = most_whole, _ALL, 0
        self._most, self._blocks_below = most, _ALL

    @classmethod
    def of_cells(cls, cells: int) -> Thinned:
        """For one of so many cells, that together hold no more than one would."""
        return cls(most=max(_FEWEST, _MOST // cells))

    def add(self, results: Iterable[RequestResult]) -> None:
        """Add these, and thin what is too much."""
        for result in results:
            if not self._is_held(result):
                self.left_out[result.arm] += 1
                continue
            kept = self._thinned(result)
            self.results.append(kept)
            self._whole += not kept.digest
        while len(self.results) > self._most and self._blocks_below > 1:
            self._blocks_below //= 2
            self.left_out.update(item.arm for item in self.results if not self._is_held(item))
            self.keep(self._is_held)
        while self._whole > self._most_whole and self._below > 1:
            self._below //= 2
            self.results[:] = map(self._thinned, self.results)
            self._whole = sum(not item.digest for item in self.results)

    def keep(self, is_wanted: Callable[[RequestResult], bool]) -> None:
        """Forget all others, as if they had never been."""
        self.results[:] = filter(is_wanted, self.results)
        self._whole = sum(not item.digest for item in self.results)

    def _is_held(self, result: RequestResult) -> bool:
        if self._blocks_below == _ALL or result.outcome != "successful":
            return True
        together = result.request if result.block is None else (result.workload, result.load, result.block)
        return _number(together) < self._blocks_below

    def _thinned(self, result: RequestResult) -> RequestResult:
        if self._below == _ALL or result.digest:
            return result
        return result if _number(result.place) < self._below else result.thinned()


def _number(of: tuple[object, ...]) -> int:
    """The same number below 2**64 for what is equal, in every process."""
    return int.from_bytes(blake2b(repr(of).encode(), digest_size=8).digest())
