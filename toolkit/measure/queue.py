"""Requests that wait for an engine with continuous batching: when would each get its tokens?

Time passes in the engine's steps. A step computes for all requests in it, and for as many tokens of new prompts as
`max_tokens` leaves room for. It takes the time that was measured with so many requests at once, and that of the new
prompts. A request that decodes gets `pace` tokens a step, its acceptance length; a new one gets its first token at the
end of the step that reads the last of its prompt. Requests join the instance with the fewest in flight, and wait where
`max_requests` or the KV cache is full. What is left out: preemption, and prompts that a prefix cache has.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist, fmean

from toolkit.measure.measurement import Percentiles
from toolkit.measure.statistics import percentiles

_ROUNDING = 1e-9
_DEVIATIONS = tuple(NormalDist().inv_cdf((i + 0.5) / 20) for i in range(20))


@dataclass(frozen=True)
class Request:
    """When a request arrives, in seconds, and the tokens of its prompt and its answer."""

    at: float
    prompt_tokens: int
    answer_tokens: int


@dataclass(frozen=True)
class Kind:
    """Requests that draft alike: the median of their tokens per step, and the deviation of its logarithm.

    `reading_stray` is the deviation of the seconds that a prompt adds, its tokens being the same.
    """

    pace: float
    spread: float = 0.0
    reading_stray: float = 0.0


@dataclass(frozen=True)
class Pace:
    """How fast an engine is at one K.

    `steps` are seconds per step by the number of requests in it, ascending: between two of them, and beyond the last
    two, a step's time lies on their line. `prompt_token` is what each token of a prompt adds, in seconds, and `waking`
    what the first step adds on an engine that was idle.
    """

    k: int
    steps: tuple[tuple[int, float], ...]
    prompt_token: float
    kinds: tuple[Kind, ...]
    waking: float = 0.0

    def seconds(self, requests: int) -> float:
        """Of a step with so many requests, without new prompts."""
        if requests not in self._known:
            self._known[requests] = self._interpolate(requests)
        return self._known[requests]

    @cached_property
    def _known(self) -> dict[int, float]:
        return dict(self.steps)

    def _interpolate(self, requests: int) -> float:
        if requests <= self.steps[0][0] or len(self.steps) == 1:
            return self.steps[0][1]
        lines = list(pairwise(self.steps))
        (few, least), (many, most) = lines[min(bisect_left(self.steps, (requests,)), len(lines)) - 1]
        return least + (most - least) * (requests - few) / (many - few)


@dataclass(frozen=True)
class Engine:
    """One instance: its pace up to each number of requests in a step, and its limits."""

    paces: tuple[tuple[int, Pace], ...]
    max_requests: int
    max_tokens: int
    kv_tokens: int

    def pace(self, requests: int) -> int:
        """The number of the pace for a step of so many requests."""
        return next((i for i, (most, _) in enumerate(self.paces) if requests <= most), len(self.paces) - 1)


@dataclass(frozen=True)
class Waited:
    """What the requests saw, in seconds, and the instances' load.

    `in_flight` is the mean number of requests per instance, waiting ones too, and `most_in_flight` the most that one
    had; `largest_step` is the most in one step.
    """

    ttft: Percentiles
    tpot: Percentiles | None
    e2e: Percentiles
    in_flight: float
    most_in_flight: int
    largest_step: int


@dataclass
class _Running:
    request: Request
    paces: tuple[float, ...]
    stray: float
    unread: int
    first: float = 0.0
    last: float = 0.0

    @property
    def tokens(self) -> int:
        return self.request.prompt_tokens + self.request.answer_tokens


class _Instance:
    """`decoding` are requests with the number of the step that gives their last token, the next one first."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting: deque[_Running] = deque()
        self.reading: list[_Running] = []
        self.decoding: list[tuple[int, int, _Running]] = []
        self.steps = self.held = self.largest = self.in_flight = self.most_in_flight = self._pace = 0
        self.began = self.seconds = self.ends = 0.0
        self._ahead = 1

    def join(self, one: _Running) -> bool:
        """Let a request wait; whether steps now begin or end at another time: those ahead had no request to join."""
        self.waiting.append(one)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        if self.in_flight == 1:
            one.stray += self.engine.paces[0][1].waking
            self.step(one.request.at)
            return True
        if self._ahead == 1 or len(self.decoding) >= self.engine.max_requests:
            return False
        before = self._ahead
        self._ahead = max(1, math.ceil((one.request.at - self.began) / self.seconds - _ROUNDING))
        self.ends = self.began + self._ahead * self.seconds
        return self._ahead < before

    def step(self, now: float) -> None:
        """Begin a step; where nobody reads or waits, all steps to the next end of a request."""
        engine = self.engine
        count = len(self.reading) + len(self.decoding)
        while self.waiting and count < engine.max_requests:
            if count and self.held + self.waiting[0].tokens > engine.kv_tokens:
                break
            self.held += self.waiting[0].tokens
            self.reading.append(self.waiting.popleft())
            count += 1
        self.largest = max(self.largest, count)
        if (number := engine.pace(count)) != self._pace:
            self._change_pace(number)
        pace = engine.paces[number][1]
        room = max(engine.max_tokens - (pace.k + 1) * len(self.decoding), 1)
        self.began, self.seconds = now, pace.seconds(count)
        for one in self.reading:
            part = min(one.unread, room)
            one.unread -= part
            room -= part
            self.seconds += max(pace.prompt_token * part + one.stray, 0.0)
            one.stray = 0.0
        self._ahead = 1 if self.reading else max(1, self.decoding[0][0] - self.steps)
        self.ends = now + self._ahead * self.seconds

    def end(self, now: float) -> Iterator[_Running]:
        """End the steps at that time; the requests that are done."""
        self.steps += self._ahead
        done = []
        while self.decoding and self.decoding[0][0] <= self.steps:
            done.append(heapq.heappop(self.decoding)[2])
        for one in [one for one in self.reading if not one.unread]:
            self.reading.remove(one)
            one.first = now
            if one.request.answer_tokens == 1:
                done.append(one)
            else:
                self._decode(one, one.request.answer_tokens - 1)
        for one in done:
            one.last = now
            self.held -= one.tokens
            self.in_flight -= 1
            yield one

    def _decode(self, one: _Running, tokens: float) -> None:
        last = self.steps + math.ceil(tokens / one.paces[self._pace] - _ROUNDING)
        heapq.heappush(self.decoding, (last, id(one), one))

    def _change_pace(self, number: int) -> None:
        before, decoding = self._pace, self.decoding
        self._pace, self.decoding = number, []
        for last, _, one in decoding:
            self._decode(one, (last - self.steps) * one.paces[before])


def simulate(requests: Sequence[Request], engine: Engine, instances: Sequence[tuple[float, int]]) -> Waited:
    """What the requests, at least one and in their order, see of so many instances from each moment on."""
    chance = random.Random(0)  # noqa: S311 - the same requests for every engine
    fleet = [_Instance(engine) for _ in range(max(count for _, count in instances))]
    ends: list[tuple[float, int]] = []  # of steps, with the number of the instance
    done: list[_Running] = []
    count, changes, here = 0, deque(instances), deque(enumerate(requests))
    while here or ends:
        if here and (not ends or here[0][1].at <= ends[0][0]):
            number, request = here.popleft()
            while changes and (not count or changes[0][0] <= request.at):
                count = changes.popleft()[1]
            one = min(range(count), key=lambda i: fleet[i].in_flight)
            deviation = chance.gauss()
            speeds = tuple(_own_pace(pace, number, deviation) for _, pace in engine.paces)
            kinds = engine.paces[0][1].kinds
            stray = kinds[number % len(kinds)].reading_stray * chance.gauss()
            if not fleet[one].join(_Running(request, speeds, stray, request.prompt_tokens)):
                continue
        else:
            now, one = heapq.heappop(ends)
            if now != fleet[one].ends:  # a request has come since
                continue
            done += fleet[one].end(now)
            if not fleet[one].in_flight:
                continue
            fleet[one].step(now)
        heapq.heappush(ends, (fleet[one].ends, one))
    return _waited(done, requests[0].at, fleet)


def most_served(requests: Sequence[Request], engine: Engine) -> float:
    """The requests like these that an instance serves per second while it is full: with more, its queue grows."""
    prompt = fmean(one.prompt_tokens for one in requests)
    answer = fmean(one.answer_tokens for one in requests)
    full = max(1, min(engine.max_requests, int(engine.kv_tokens / (prompt + answer))))
    pace = engine.paces[engine.pace(full)][1]
    shares = fmean(1 / _own_pace(pace, kind, each) for kind in range(len(pace.kinds)) for each in _DEVIATIONS)
    return full / ((1 + (answer - 1) * shares) * pace.seconds(full) + full * prompt * pace.prompt_token)


def _own_pace(pace: Pace, number: int, deviation: float) -> float:
    """A request's tokens per step: at least the bonus token, at most all drafts and that."""
    kind = pace.kinds[number % len(pace.kinds)]
    return min(max(kind.pace * math.exp(kind.spread * deviation), 1.0), pace.k + 1.0)


def _waited(done: Sequence[_Running], began: float, fleet: Sequence[_Instance]) -> Waited:
    ttft = percentiles(one.first - one.request.at for one in done)
    e2e = percentiles(one.last - one.request.at for one in done)
    assert ttft, "there are requests"
    assert e2e, "there are requests"
    tpot = percentiles(
        (one.last - one.first) / (one.request.answer_tokens - 1) for one in done if one.request.answer_tokens > 1
    )
    ended = max(one.last for one in done)
    busy = sum(one.last - one.request.at for one in done)
    in_flight = busy / (ended - began) / len(fleet)
    most = max(one.most_in_flight for one in fleet)
    return Waited(ttft, tpot, e2e, in_flight, most, max(one.largest for one in fleet))
