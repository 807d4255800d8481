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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from toolkit.measure.measurement import Percentiles
from toolkit.measure.statistics import percentiles


@dataclass(frozen=True)
class Request:
    """When a request arrives, in seconds, and the tokens of its prompt and its answer."""

    at: float
    prompt_tokens: int
    answer_tokens: int


@dataclass(frozen=True)
class Kind:
    """Requests that draft alike: the median of their tokens per step, and the deviation of its logarithm."""

    pace: float
    spread: float = 0.0


@dataclass(frozen=True)
class Pace:
    """How fast an engine is at one K.

    `steps` are seconds per step by the number of requests in it, ascending: between two of them, and beyond the last
    two, a step's time lies on their line. `prompt_token` is what each token of a prompt adds, in seconds.
    """

    k: int
    steps: tuple[tuple[int, float], ...]
    prompt_token: float
    kinds: tuple[Kind, ...]

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

    `in_flight` is the mean number of requests per instance, waiting ones too; `largest_step` the most in one step.
    """

    ttft: Percentiles
    tpot: Percentiles | None
    e2e: Percentiles
    in_flight: float
    largest_step: int


@dataclass
class _Running:
    request: Request
    paces: tuple[float, ...]
    left: float
    unread: int
    first: float = 0.0
    last: float = 0.0


class _Instance:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting: deque[_Running] = deque()
        self.running: list[_Running] = []
        self.held = 0
        self.largest = 0
        self.pace = 0

    @property
    def in_flight(self) -> int:
        return len(self.waiting) + len(self.running)

    def step(self) -> float:
        """Begin a step; the seconds that it takes."""
        engine = self.engine
        while self.waiting and len(self.running) < engine.max_requests:
            tokens = _tokens(self.waiting[0].request)
            if self.running and self.held + tokens > engine.kv_tokens:
                break
            self.held += tokens
            self.running.append(self.waiting.popleft())
        self.largest = max(self.largest, len(self.running))
        self.pace = engine.pace(len(self.running))
        pace = engine.paces[self.pace][1]
        room = engine.max_tokens - (pace.k + 1) * sum(one.unread <= 0 for one in self.running)
        read = 0
        for one in self.running:
            if one.unread > 0:
                part = max(min(one.unread, room - read), 0 if read else 1)
                one.unread -= part
                read += part
                if one.unread == 0:
                    one.unread = -1  # its first token comes with this step
        return pace.seconds(len(self.running)) + pace.prompt_token * read

    def end(self, now: float) -> list[_Running]:
        """End the step at that time; the requests that are done."""
        done = []
        for one in self.running:
            if one.unread == 0:
                one.left -= one.paces[self.pace]
            elif one.unread == -1:
                one.unread, one.first = 0, now
            if one.unread == 0 and one.left <= 1e-9:
                one.last = now
                self.held -= _tokens(one.request)
                done.append(one)
        if done:
            self.running = [one for one in self.running if not one.last]
        return done


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
            fleet[one].waiting.append(_Running(request, speeds, request.answer_tokens - 1, request.prompt_tokens))
            if fleet[one].in_flight > 1:
                continue
            now = request.at
        else:
            now, one = heapq.heappop(ends)
            done += fleet[one].end(now)
        if fleet[one].in_flight:
            heapq.heappush(ends, (now + fleet[one].step(), one))
    return _waited(done, requests[0].at, fleet)


def _own_pace(pace: Pace, number: int, deviation: float) -> float:
    """A request's tokens per step: at least the bonus token, at most all drafts and that."""
    kind = pace.kinds[number % len(pace.kinds)]
    return min(max(kind.pace * math.exp(kind.spread * deviation), 1.0), pace.k + 1.0)


def _tokens(request: Request) -> int:
    return request.prompt_tokens + request.answer_tokens


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
    return Waited(ttft, tpot, e2e, in_flight, max(one.largest for one in fleet))
