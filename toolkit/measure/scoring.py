"""What a served target makes of given tokens: their log-probabilities, computed in one prefill or while decoding.

vLLM computes the scores of a prompt (`prompt_logprobs`) for many tokens at once, over the whole vocabulary, in memory
that it has not reserved: some 7 bytes for each token and each entry of the vocabulary. A prompt of some thousand tokens
can end the engine (vllm#5907, #14239). So a request has at most `MOST_TOKENS` tokens (0.7 GB for 200,000 entries), and
requests go out one at a time. They do not read the prefix cache, which holds no scores: vLLM skips it for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit import documents
from toolkit.errors import InvocationError
from toolkit.measure.arm import NO_PENALTIES, Arm, Connection
from toolkit.measure.result import RequestResult

MOST_TOKENS = 512
"""Of prompt and answer together, in one request for scores; what lies behind them stays unscored."""
_CHOICES = 4
_TOKEN_ID = "token_id:"  # noqa: S105 - how vLLM writes a token by its number


@dataclass(frozen=True)
class Choice:
    """A token that the target could have written, its log-probability and its text."""

    token: int
    logprob: float
    text: str = ""


@dataclass(frozen=True)
class Score:
    """A token of an answer as the target sees it: itself, and the target's most probable tokens, best first."""

    token: Choice
    best: tuple[Choice, ...]

    @property
    def gap(self) -> float:
        """How much less probable it is than the target's first choice, in nats; 0 for the first choice and for a tie.

        A difference of log-probabilities at one position is a difference of logits, in which rounding steps show.
        """
        return self.best[0].logprob - self.token.logprob

    @property
    def margin(self) -> float:
        """The gap that the target's second choice would have: the least gap of a wrong token here."""
        return self.best[0].logprob - self.best[1].logprob

    def logprob(self, token: int) -> float:
        """The log-probability of another token; of one that is not among the best, that of the last of them."""
        known = {choice.token: choice.logprob for choice in (*self.best, self.token)}
        return known.get(token, self.best[-1].logprob)


@dataclass(frozen=True)
class Scoring:
    """How many answers a target has scored so far."""

    target: str
    answers: int

    def __str__(self) -> str:
        return f"the answers are judged: {self.target} has scored {self.answers}"


class Scorer:
    """Has the target that an arm serves score answers, each text once. An answer that it cannot score has no scores."""

    def __init__(self, arm: Arm, progress: Callable[[Scoring], object] = lambda _: None) -> None:
        self.connection = arm.connection
        self._arm = arm.name
        self._progress = progress
        self._known: dict[tuple[tuple[int, ...], int], tuple[Score, ...]] = {}
        self.error: InvocationError | None = None
        """Why the engine last gave no scores."""

    def by(self, arm: Arm) -> Scorer:
        """One like it, that has the target of another arm score."""
        return Scorer(arm, self._progress)

    async def scores(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[Score, ...]:
        """One score for each of the answer's tokens, up to the most that are asked for; empty if there are none."""
        tokens = (*prompt, *answer)[:MOST_TOKENS]
        if not prompt or len(tokens) <= len(prompt):
            return ()
        key = tokens, len(prompt)
        if key not in self._known:
            self._known[key] = await self._ask(tokens, len(prompt))
            self._progress(Scoring(self._arm, len(self._known)))
        return self._known[key]

    async def of(self, result: RequestResult) -> tuple[Score, ...]:
        """The scores of a request's answer."""
        return await self.scores(result.prompt_token_ids, result.token_ids)

    async def _ask(self, tokens: Sequence[int], behind: int) -> tuple[Score, ...]:
        body = {"prompt": list(tokens), "max_tokens": 1, "temperature": 0, "prompt_logprobs": _CHOICES}
        try:
            choice = _choice(await self.connection.invoke(body))
            return _scores(choice.prompt_logprobs or [], tokens, behind)
        except InvocationError as error:
            self.error = error
            return ()


@dataclass(frozen=True)
class Decoded:
    """A token that an engine decoded, and its most probable tokens at that moment, best first."""

    token: int
    best: tuple[Choice, ...]


async def decode(connection: Connection, prompt: Sequence[int], tokens: int) -> tuple[Decoded, ...]:
    """Greedy tokens after a prompt, with their log-probabilities while decoding. Raises InvocationError."""
    body = {
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        **NO_PENALTIES,
        "logprobs": _CHOICES,
        "return_tokens_as_token_ids": True,
    }
    found = _choice(await connection.invoke(body)).logprobs
    if found is None or len(found.tokens) != len(found.top_logprobs) or any(len(top) < 2 for top in found.top_logprobs):
        raise InvocationError("the engine did not return the best tokens of each step with their log-probabilities")
    return tuple(
        Decoded(_token_id(name), _sorted(Choice(_token_id(key), value) for key, value in top.items()))
        for name, top in zip(found.tokens, found.top_logprobs, strict=True)
    )


@dataclass(frozen=True)
class _Logprob:
    logprob: float
    decoded_token: str | None = None


@dataclass(frozen=True)
class _Decoded:
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


@dataclass(frozen=True)
class _Choice:
    prompt_logprobs: list[dict[int, _Logprob] | None] | None = None
    logprobs: _Decoded | None = None


@dataclass(frozen=True)
class _Completion:
    choices: list[_Choice]


def _choice(document: Mapping[str, Any]) -> _Choice:
    try:
        (choice,) = documents.fit(_Completion, document).choices
    except ValueError as error:
        raise InvocationError(f"the answer is not a completion with scores: {error}") from error
    return choice


_Position = Mapping[int, _Logprob] | None


def _scores(
    positions: Sequence[Mapping[int, _Logprob] | None], tokens: Sequence[int], behind: int
) -> tuple[Score, ...]:
    """The scores of the tokens behind the prompt. Engines that read a prefix cache return fewer than all."""
    if len(positions) != len(tokens):
        raise InvocationError(f"the engine returned scores for {len(positions)} of {len(tokens)} tokens")
    return tuple(map(_score, tokens[behind:], positions[behind:]))


def _score(token: int, position: _Position) -> Score:
    choices = [Choice(key, value.logprob, value.decoded_token or "") for key, value in (position or {}).items()]
    own = next((choice for choice in choices if choice.token == token), None)
    if own is None or len(choices) < 2:
        raise InvocationError(f"the engine returned no score for token {token}")
    return Score(own, _sorted(choices))


def _sorted(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    return tuple(sorted(choices, key=lambda choice: -choice.logprob))


def _token_id(name: str) -> int:
    number = name.removeprefix(_TOKEN_ID)
    if not number.isdigit():
        raise InvocationError("the engine names decoded tokens by their text instead of their id")
    return int(number)
