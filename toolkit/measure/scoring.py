"""What a served target makes of given tokens: their log-probabilities, computed in one prefill or while decoding.

How an engine is asked for them is a part of its rules (`Scoring`); some engines have none. Requests go out one at a
time, as engines compute scores in memory that they have not reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolkit.errors import InvocationError
from toolkit.measure.arm import NO_PENALTIES, Arm
from toolkit.measure.result import RequestResult
from toolkit.recipe.rules import Choice, Decoded, Scoring, best_first

_NO_SCORES = "its engine does not tell how probable given tokens are"


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
class Scored:
    """How many answers a target has scored so far."""

    target: str
    answers: int

    def __str__(self) -> str:
        return f"the answers are judged: {self.target} has scored {self.answers}"


class Scorer:
    """Has the target that an arm serves score answers, each text once. An answer that it cannot score has no scores."""

    def __init__(self, arm: Arm, progress: Callable[[Scored], object] = lambda _: None) -> None:
        self.connection, self.scoring = arm.connection, arm.scoring
        self._arm = arm.name
        self._progress = progress
        self._known: dict[tuple[tuple[int, ...], int], tuple[Score, ...]] = {}
        self.error: InvocationError | None = None if arm.scoring else InvocationError(_NO_SCORES)
        """Why the engine last gave no scores."""

    def by(self, arm: Arm) -> Scorer:
        """One like it, that has the target of another arm score."""
        return Scorer(arm, self._progress)

    async def scores(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[Score, ...]:
        """One score for each of the answer's tokens, up to the most that are asked for; empty if there are none."""
        if self.scoring is None:
            return ()
        tokens = (*prompt, *answer)[: self.scoring.most_tokens]
        if not prompt or len(tokens) <= len(prompt):
            return ()
        key = tokens, len(prompt)
        if key not in self._known:
            self._known[key] = await self._ask(self.scoring, tokens, len(prompt))
            self._progress(Scored(self._arm, len(self._known)))
        return self._known[key]

    async def of(self, result: RequestResult) -> tuple[Score, ...]:
        return await self.scores(result.prompt_token_ids, result.token_ids)

    async def _ask(self, scoring: Scoring, tokens: Sequence[int], behind: int) -> tuple[Score, ...]:
        """The scores of the tokens behind the prompt. Engines that read a prefix cache return fewer than all."""
        try:
            places = scoring.scores(await self.connection.invoke(scoring.request(tokens)))
            if len(places) != len(tokens):
                raise InvocationError(f"the engine returned scores for {len(places)} of {len(tokens)} tokens")
            return tuple(map(_score, tokens[behind:], places[behind:]))
        except InvocationError as error:
            self.error = error
            return ()


async def decode(scorer: Scorer, prompt: Sequence[int], tokens: int) -> Sequence[Decoded]:
    """Greedy tokens after a prompt, with their log-probabilities while decoding. Raises InvocationError."""
    scoring = scorer.scoring
    if scoring is None:
        raise InvocationError(_NO_SCORES)
    body = {"prompt": list(prompt), "max_tokens": tokens, "temperature": 0, **NO_PENALTIES, **scoring.decoding()}
    return scoring.decoded(await scorer.connection.invoke(body))


def _score(token: int, choices: Sequence[Choice]) -> Score:
    own = next((choice for choice in choices if choice.token == token), None)
    if own is None or len(choices) < 2:
        raise InvocationError(f"the engine returned no score for token {token}")
    return Score(own, best_first(choices))
