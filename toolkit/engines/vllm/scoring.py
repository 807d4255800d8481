"""How vLLM is asked for the log-probabilities of given tokens, in one prefill, and of those that it decodes.

It computes the scores of a prompt (`prompt_logprobs`) for many tokens at once, over the whole vocabulary, in memory
that it has not reserved: some 7 bytes for each token and each entry of the vocabulary. A prompt of some thousand tokens
can end the engine (vllm#5907, #14239). So a request has at most 512 tokens (0.7 GB for 200,000 entries). Scores do not
come from the prefix cache, which holds none: vLLM skips it for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit import documents
from toolkit.errors import InvocationError
from toolkit.recipe.rules import Choice, Decoded, Scoring, best_first

_CHOICES = 4
_TOKEN_ID = "token_id:"  # noqa: S105 - how vLLM writes a token by its number


@dataclass(frozen=True)
class _Logprob:
    logprob: float
    decoded_token: str | None = None


@dataclass(frozen=True)
class _Logprobs:
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


@dataclass(frozen=True)
class _Completed:
    prompt_logprobs: list[dict[int, _Logprob] | None] | None = None
    logprobs: _Logprobs | None = None


@dataclass(frozen=True)
class _Completion:
    choices: list[_Completed]


class VllmScoring(Scoring):
    most_tokens = 512

    def request(self, tokens: Sequence[int]) -> dict[str, Any]:
        return {"prompt": list(tokens), "max_tokens": 1, "temperature": 0, "prompt_logprobs": _CHOICES}

    def scores(self, answer: Mapping[str, Any]) -> Sequence[Sequence[Choice]]:
        return [
            [Choice(token, one.logprob, one.decoded_token or "") for token, one in (place or {}).items()]
            for place in _read_completion(answer).prompt_logprobs or []
        ]

    def decoding(self) -> dict[str, Any]:
        return {"logprobs": _CHOICES, "return_tokens_as_token_ids": True}

    def decoded(self, answer: Mapping[str, Any]) -> Sequence[Decoded]:
        told = _read_completion(answer).logprobs
        if told is None or len(told.tokens) != len(told.top_logprobs) or any(len(top) < 2 for top in told.top_logprobs):
            raise InvocationError("the engine did not return the best tokens of each step with their log-probabilities")
        return [
            Decoded(_token_id(name), best_first(Choice(_token_id(key), value) for key, value in top.items()))
            for name, top in zip(told.tokens, told.top_logprobs, strict=True)
        ]


def _read_completion(answer: Mapping[str, Any]) -> _Completed:
    try:
        (completed,) = documents.fit(_Completion, answer).choices
    except ValueError as error:
        raise InvocationError(f"the answer is not a completion with scores: {error}") from error
    return completed


def _token_id(name: str) -> int:
    number = name.removeprefix(_TOKEN_ID)
    if not number.isdigit():
        raise InvocationError("the engine names decoded tokens by their text instead of their id")
    return int(number)


SCORING = VllmScoring()
