"""Targets in memory: a small language model whose arithmetic is noisy, behind the answers that vLLM gives."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import exp, log
from typing import Any

from toolkit.endpoint.wire import Chunk
from toolkit.errors import InvocationError
from toolkit.measure.result import RequestResult

VOCABULARY = 12
END = 0
STEP = 1 / 16
Logits = tuple[float, ...]


@dataclass(frozen=True)
class FakeTarget:
    """A target. `noise` is that of its arithmetic, another draw for each `mode` (prefill, decoding, …)."""

    model: str = "target"
    noise: float = 0.03
    error: float = 0.0
    """How far its weights are from those of `model`: a quantization."""
    step: float = STEP
    """To which its dtype rounds."""

    def logits(self, context: Sequence[int], mode: str) -> Logits:
        """What it computes after a context, rounded."""
        return self._logits(tuple(context[-6:]), mode)

    @cache  # noqa: B019 (tests ask few targets, and each for the same contexts again and again)
    def _logits(self, near: tuple[int, ...], mode: str) -> Logits:
        exact, off = _draw(self.model, near, 5.0), _draw("quantized" + self.model, near, self.error)
        noise = _draw(mode, near, self.noise)
        return tuple(round(sum(parts) / self.step) * self.step for parts in zip(exact, off, noise, strict=True))

    def logprobs(self, context: Sequence[int], mode: str) -> Logits:
        """Log-probabilities after a context."""
        return _logprobs(self.logits(context, mode))

    def first(self, context: Sequence[int], mode: str) -> int:
        """Its first choice."""
        logits = self.logits(context, mode)
        return logits.index(max(logits))


@cache
def _logprobs(logits: Logits) -> Logits:
    total = log(sum(map(exp, logits)))
    return tuple(value - total for value in logits)


@cache
def _draw(seed: str, context: tuple[int, ...], width: float) -> Logits:
    chance = random.Random(f"{seed} {context}")
    return tuple(chance.gauss(0, width) for _ in range(VOCABULARY)) if width else (0.0,) * VOCABULARY


Pick = Callable[[Sequence[int]], int]


def answer(pick: Pick, prompt: Sequence[int], tokens: int) -> tuple[int, ...]:
    """Tokens after a prompt, each picked by its context."""
    text = list(prompt)
    for _ in range(tokens):
        text.append(pick(text))
    return tuple(text[len(prompt) :])


def answers(
    arm: str, pick: Pick, prompts: int = 16, tokens: int = 96, round_: int = 0, workload: str = "structured"
) -> list[RequestResult]:
    """An arm's answers to the same prompts."""
    asked = [(index % VOCABULARY, index // 7, 3, index % 5) for index in range(prompts)]
    return [
        RequestResult(
            arm=arm,
            workload=workload,
            prompt=index,
            round=round_,
            load=1,
            started=0.0,
            seconds=1.0,
            outcome="successful",
            prompt_token_ids=prompt,
            token_ids=answer(pick, prompt, tokens),
        )
        for index, prompt in enumerate(asked)
    ]


@dataclass
class FakeConnection:
    """Answers completions as vLLM does, and remembers the bodies.

    `scores` False is an engine without them. Other `kernels` round otherwise when they prefill; with `by_rows` they do
    so for each number of rows.
    """

    target: FakeTarget = field(default_factory=FakeTarget)
    scores: bool = True
    decoding_scores: bool = True
    kernels: str = "prefill"
    by_rows: bool = False
    longest: int = 4096
    spelling: Callable[[int], str] = "<{}>".format
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    def stream(self, body: Mapping[str, Any]) -> AsyncIterator[Chunk]:
        raise NotImplementedError

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        prompt = body["prompt"]
        if len(prompt) + body["max_tokens"] > self.longest:
            raise InvocationError("the prompt is longer than the model's context")
        choice: dict[str, Any] = {"text": "", "prompt_logprobs": None, "logprobs": None}
        if "prompt_logprobs" in body and self.scores:
            rows = (self._scored(prompt, place, body["prompt_logprobs"]) for place in range(1, len(prompt)))
            choice["prompt_logprobs"] = [None, *rows]
        if "logprobs" in body and self.decoding_scores:
            choice["logprobs"] = self._decoded(prompt, body["max_tokens"], body["logprobs"])
        return {"model": "served", "choices": [choice]}

    def _scored(self, tokens: Sequence[int], place: int, most: int) -> dict[str, dict[str, Any]]:
        found = self.target.logprobs(tokens[:place], f"{self.kernels}{len(tokens) if self.by_rows else ''}")
        best = sorted(range(VOCABULARY), key=lambda token: -found[token])
        named = {tokens[place], *best[:most]}
        return {
            str(token): {"logprob": found[token], "rank": best.index(token) + 1, "decoded_token": self.spelling(token)}
            for token in named
        }

    def _decoded(self, prompt: Sequence[int], tokens: int, most: int) -> dict[str, Any]:
        text, top = list(prompt), []
        for _ in range(tokens):
            found = self.target.logprobs(text, "decode")
            best = sorted(range(VOCABULARY), key=lambda token: -found[token])[:most]
            top.append({f"token_id:{token}": found[token] for token in best})
            text.append(self.target.first(text, "decode"))
        return {"tokens": [f"token_id:{token}" for token in text[len(prompt) :]], "top_logprobs": top}
