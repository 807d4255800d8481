"""Do an arm's answers end where the target ends them, and is their text that of their tokens?

An end is a token that the target chooses like any other, so it is judged by its gap. Which tokens are ends the
baseline's own answers show: what those that stopped have last, and do not show in their text. An answer that was cut
at its length is as long as the baseline's to the same request. Texts are compared without white space, which tokens
alone do not always have, and only where the baseline's own are those of their tokens: parsers of tools may rewrite
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolkit.measure.result import Request, RequestResult
from toolkit.measure.scoring import Score, Scorer

Scored = Sequence[tuple[RequestResult, Sequence[Score]]]
"""Answers, each with the target's scores of its tokens."""

_SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]")
_UNDECODED = "\ufffd"  # what a part of a letter becomes


@dataclass(frozen=True)
class Endings:
    """How many answers end early, and how many have another text than their tokens; the first of each, to be shown."""

    early: int = 0
    first_early: str = ""
    other_texts: int = 0
    first_other_text: str = ""

    @property
    def hold(self) -> bool:
        return not (self.early or self.other_texts)

    @property
    def sentences(self) -> Iterator[str]:
        if self.early:
            yield f"{self.early} answers end where the target goes on, first {self.first_early}"
        if self.other_texts:
            yield f"{self.other_texts} answers have another text than their tokens, first {self.first_other_text}"


async def compare_endings(scorer: Scorer, scored: Scored, reference: Scored, limit: float) -> Endings:
    """Compare an arm's answers with the baseline's; `limit` is the largest gap, in nats, that is taken for noise."""
    theirs = {result.request: result for result, _ in reference}
    ends = end_tokens(reference)
    early = [result for result, _ in scored if await _ends_early(scorer, result, theirs, ends, limit)]
    judged = () if any(has_other_text(*answer) for answer in reference) else scored
    other = [result for result, scores in judged if has_other_text(result, scores)]
    return Endings(len(early), _shown(early), len(other), _shown(other))


def end_tokens(reference: Scored) -> frozenset[int]:
    """The tokens that end answers; none where they cannot be told, as where an engine leaves them out."""
    last = [
        (scores[-1].token, _written(result))
        for result, scores in reference
        if result.finish_reason == "stop" and scores and len(scores) == len(result.token_ids)
    ]
    if any(_without_space(token.text) and text.endswith(_without_space(token.text)) for token, text in last):
        return frozenset()
    return frozenset(token.token for token, _ in last)


def has_other_text(result: RequestResult, scores: Sequence[Score]) -> bool:
    """Whether the answer's text is not what its tokens spell; no where that cannot be told."""
    shown, spelled = _written(result), [score.token.text for score in scores]
    if not shown or not any(spelled) or any(_UNDECODED in text for text in spelled):
        return False
    expected = _without_space("".join(text for text in spelled if not _SPECIAL.fullmatch(text.strip())))
    return shown != expected if len(scores) == len(result.token_ids) else not shown.startswith(expected)


async def _ends_early(
    scorer: Scorer,
    ours: RequestResult,
    baseline: Mapping[Request, RequestResult],
    ends: frozenset[int],
    limit: float,
) -> bool:
    """Whether the target would go on where the answer ends."""
    theirs = baseline.get(ours.request)
    tokens = len(ours.token_ids)
    if not tokens or ours.token_ids[-1] in ends:
        return False
    if ours.finish_reason == "length":
        return theirs is not None and len(theirs.token_ids) > tokens
    if ends:
        found = [await scorer.scores(ours.prompt_token_ids, (*ours.token_ids, end)) for end in ends]
        return all(len(scores) > tokens and scores[tokens].gap > limit for scores in found)
    if theirs is None or theirs.token_ids[:tokens] != ours.token_ids:
        return False
    scores = await scorer.of(theirs)
    return len(scores) > tokens and scores[tokens].margin > limit


def _written(result: RequestResult) -> str:
    return _without_space(result.reasoning + result.text)


def _without_space(text: str) -> str:
    return "".join(text.split())


def _shown(results: Sequence[RequestResult]) -> str:
    return f"{results[0].workload}, prompt {results[0].prompt + 1}" if results else ""
