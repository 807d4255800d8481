"""Machines whose speed drifts, for measuring what intervals and verdicts are worth, on a simulated clock."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from simulated_arms import arm, workload

from toolkit.measure.design import Design, Load
from toolkit.measure.load import Ask, Timing
from toolkit.measure.measurement import Speedup, Verdict
from toolkit.measure.result import RequestResult
from toolkit.measure.run import run
from toolkit.measure.summary import summarise
from toolkit.measure.verdicts import verdicts

SPEC, BASE = arm("spec"), arm("base")
Slowdown = Callable[[float], float]
"""How many times slower the machine is at a time; times never go back by more than a block."""
_STEP = 0.25


def drifting(seed: int, deviation: float, tau: float) -> Slowdown:
    """An Ornstein-Uhlenbeck process of ln(slowdown), exact on a grid of a quarter of a second."""
    noise = random.Random(seed)
    path = [noise.gauss(0, deviation)]
    kept = math.exp(-_STEP / tau)

    def at(seconds: float) -> float:
        while len(path) <= seconds / _STEP:
            path.append(path[-1] * kept + noise.gauss(0, deviation * math.sqrt(1 - kept * kept)))
        return math.exp(path[int(seconds / _STEP)])

    return at


def stepping(seed: int, size: float, every: float) -> Slowdown:
    """Another speed from time to time, as a clock that is throttled."""
    return _switching(seed, every, lambda noise, _: noise.gauss(0, size))


def neighboured(seed: int, size: float, every: float) -> Slowdown:
    """A neighbour that comes and goes, and takes the same share each time."""
    return _switching(seed, every, lambda _, turn: size * (turn % 2))


def _switching(seed: int, every: float, level: Callable[[random.Random, int], float]) -> Slowdown:
    noise = random.Random(seed)
    ends, levels = [noise.expovariate(1 / every)], [level(noise, seed)]

    def at(seconds: float) -> float:
        while ends[-1] <= seconds:
            ends.append(ends[-1] + noise.expovariate(1 / every))
            levels.append(level(noise, seed + len(levels)))
        return math.exp(next(height for end, height in zip(ends, levels, strict=True) if end > seconds))

    return at


@dataclass
class DriftingMachine:
    """Sends requests on a clock that only it moves, each as slow as the machine at its start.

    Concurrent ones run in as many lanes; those of an open loop begin when they come, at random moments.
    """

    seed: int
    slowdown: Slowdown
    speed: float = 1.0
    noise: float = 0.1
    now: float = 0.0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"requests {self.seed}")

    def __call__(self) -> float:
        return self.now

    async def send(self, arm: object, asks: Sequence[Ask], load: Load, timing: Timing) -> list[RequestResult]:
        name = getattr(arm, "name", "")
        lanes, results = [self.now] * (len(asks) if load.open_loop else math.ceil(load.value)), []
        if load.open_loop:
            pauses = random.Random(f"{self.seed} {asks[0].round} {asks[0].prompt}")
            lanes = [self.now + after for after in accumulate(pauses.expovariate(load.value) for _ in asks)]
        for number, ask in enumerate(asks):
            lane = number if load.open_loop else lanes.index(min(lanes))
            tokens = random.Random(f"{self.seed} {ask.prompt}").randint(50, 90)
            fast = self.speed if name == SPEC.name else 1.0
            stray = math.exp(self._random.gauss(-(self.noise**2) / 2, self.noise))
            seconds = tokens * 0.01 / fast * self.slowdown(lanes[lane]) * stray
            results.append(
                RequestResult(
                    name,
                    ask.workload.name,
                    ask.prompt,
                    ask.round,
                    load.value,
                    lanes[lane] - timing.began,
                    seconds,
                    "successful",
                    output_tokens=tokens,
                    open_loop=load.open_loop,
                )
            )
            lanes[lane] += seconds
        self.now = max(lanes)
        return results


@dataclass(frozen=True)
class Outcome:
    """What a whole measurement said: speedups by load, and the verdicts on whether it pays."""

    speedups: Mapping[Load, Speedup]
    pays: tuple[Verdict, ...]
    seconds: float


def outcome(
    seed: int,
    slowdown: Slowdown,
    speed: float = 1.0,
    loads: Sequence[Load] = (Load(1), Load(4), Load(16)),
    seconds: float = 300.0,
    prompts: int = 24,
) -> Outcome:
    """A measurement by the product's own turns, blocks, statistics and verdicts."""
    machine = DriftingMachine(seed, slowdown, speed)
    design = Design((SPEC,), (workload(prompts),), BASE, tuple(loads), precision=0.01, seconds=seconds, seed=seed)
    measured = asyncio.run(run(design, machine.send, clock=machine))
    summary = summarise(measured.results, [SPEC], BASE)
    judged = verdicts(measured.results, summary, [SPEC], BASE)
    by_load = {Load(item.concurrency or item.rate or 0, item.concurrency is None): item for item in summary.speedups}
    return Outcome(by_load, tuple(item for item in judged if item.claim == "pays"), machine.now)
