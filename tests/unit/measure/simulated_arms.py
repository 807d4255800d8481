"""Arms whose true speed is known, with noise: measured without a network, on a clock that only they move."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.endpoint.generation import Acceptance, Arrival
from toolkit.endpoint.wire import Chunk
from toolkit.measure.arm import Arm, Workload
from toolkit.measure.design import Load
from toolkit.measure.load import Ask, Timing
from toolkit.measure.result import RequestResult
from toolkit.recipe.prompts import Prompt

SECONDS_PER_TOKEN = 0.01


class Unused:
    """The connection of an arm that is only simulated."""

    def stream(self, body: Mapping[str, Any]) -> AsyncIterator[Chunk]:
        raise NotImplementedError

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


def arm(name: str) -> Arm:
    return Arm(name, Unused(), cache_salt="salt")


def workload(prompts: int, name: str = "mine") -> Workload:
    return Workload(name, tuple(Prompt(({"role": "user", "content": str(number)},)) for number in range(prompts)))


def result(**known: Any) -> RequestResult:
    """A successful answer of 100 tokens in a second, but for what is known."""
    usual = {"arm": "spec", "workload": "mine", "prompt": 0, "round": 0, "load": 1, "started": 0.0, "seconds": 1.0}
    return RequestResult(**{**usual, "outcome": "successful", "output_tokens": 100, **known})


@dataclass
class SimulatedMachine:
    """A machine that sends requests, and the clock of the measurement.

    `speeds` are speedups by arm; others have 1. `noise` is the standard deviation of a request's time, `by_prompt` that
    of a prompt's speedup, `shock` that of a whole block's time: each as a share. `fails` answers with an error.
    """

    seed: int
    speeds: Mapping[str, float]
    noise: float = 0.3
    by_prompt: float = 0.0
    shock: float = 0.0
    drift: float = 0.0
    fails: frozenset[tuple[str, int]] = frozenset()
    now: float = 0.0
    sent: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self) -> float:
        return self.now

    async def send(self, arm: Arm, asks: Sequence[Ask], load: Load, timing: Timing) -> list[RequestResult]:
        self.sent.append((arm.name, tuple(ask.prompt for ask in asks)))
        slower = self._about_one(self.shock) * (1 + self.drift * self.now)
        lanes = [self.now] * math.ceil(load.value)
        results = []
        for ask in asks:
            lane = lanes.index(min(lanes))
            result = self._answer(arm, ask, load, lanes[lane] - timing.began, slower)
            lanes[lane] += result.seconds
            results.append(result)
        self.now = max(lanes)
        return results

    def _answer(self, arm: Arm, ask: Ask, load: Load, started: float, slower: float) -> RequestResult:
        of_prompt = random.Random(f"{self.seed} {ask.prompt}")
        tokens = of_prompt.randint(40, 160)
        gain = math.exp(of_prompt.gauss(0, self.by_prompt)) if arm.name in self.speeds else 1.0
        speed = self.speeds.get(arm.name, 1.0) * gain
        seconds = tokens * SECONDS_PER_TOKEN / speed * slower * self._about_one(self.noise)
        failed = (arm.name, ask.prompt) in self.fails
        return RequestResult(
            arm=arm.name,
            workload=ask.workload.name,
            prompt=ask.prompt,
            round=ask.round,
            load=load.value,
            started=started,
            seconds=seconds,
            outcome="failed" if failed else "successful",
            arrivals=() if failed else (Arrival(seconds / tokens, 1), Arrival(seconds, tokens - 1)),
            output_tokens=0 if failed else tokens,
            acceptance=Acceptance((10, 10, 20)) if arm.name in self.speeds and not failed else None,
            error="the prompt is longer than the model's context" if failed else None,
            open_loop=load.open_loop,
        )

    def _about_one(self, share: float) -> float:
        """A factor with a mean of 1."""
        return math.exp(self._random.gauss(-share * share / 2, share))
