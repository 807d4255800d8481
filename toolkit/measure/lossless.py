"""Is each token of a speculative arm's greedy answers one that the target itself would have written?

The arms' texts cannot be compared token by token: in low precision the same target breaks near-ties differently when it
decodes one row, several, or a draft of K+1 rows (vllm#54506), and from there on the texts part. So the baseline's
engine scores each arm's own text in one prefill. A token's *gap* is how far its log-probability lies below that of the
target's first choice in the same place. A prefill differs from decoding by itself (vllm#48271), so the baseline's own
answers are scored alike, and some are decoded again with log-probabilities. (Token-DiFR, arXiv 2511.20621, verifies
inference from such gaps; here the yardstick is the baseline on the same machine in the same hour.)

**The rule.** M is the largest numerical noise seen in the baseline: the largest change of the distance between the
two best tokens from decoding to prefill, over m places where they are less than 4 nats apart; the largest gap of its
own answers; at least one step of its logits, which is the smallest distance seen. The limit is L = 2M. An arm is
lossless if

1. no gap exceeds L,
2. its ends and its texts are the target's, too (`endings`), and
3. small gaps are at most twice as frequent as in the baseline's own answers (exact binomial test, level 0.001).

**False alarms.** A right engine writes a token with gap g only where the target's two best tokens are g apart and the
noise between them exceeds g. If x nats lie between them in a share f dx of the places (f is about 0.2 near 0) and
speculation's noise N is distributed like the baseline's, n tokens have n f ∫ P(N > x) dx gaps beyond L, from x = L on.
M is exceeded by a new value with probability 1/(m+1), whatever the distribution. With n = 2,400, m = 200 and M = 0.1
that makes 3e-8 false alarms for normal noise (M is 2.8 standard deviations, L is 5.6), 2e-4 for exponential tails
(P(N > L) is 1/m²), 1 % for tails as heavy as Student's t with 4 degrees of freedom (1/16m). In 4,000 simulated runs,
in which M is random too: none, 0.1 % and 1.8 %; with 1.5 times the baseline's noise in the arm 0.1 %, 1.4 % and 6 %.
(3) fails by chance with at most 0.1 %, also if a draft's K+1 rows double the frequency.

**Power.** A wrong token's gap is at least the distance between the two best tokens in its place, so it is seen where
that exceeds L: in a share b of the places, which is counted. Wrong tokens at rate r escape n scored tokens with
probability (1 - rb)^n: at 1 in 200, n = 2,400 and b = 0.9 with 2e-5. The rate that would have been seen with 95 %
certainty, 1 - 0.05^(1/n) divided by b, about 3/(nb), is part of the verdict; if it is more than 1 in 200, a clean
result shows too little, and the verdict is None. Another quantization of the target writes nearly the same tokens (the
tiny pair's in 8 bits: 1 to 3 of 2,360 differ, by one step): `same_target` sees it in the scores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, exp, lgamma, log

from toolkit.errors import InvocationError
from toolkit.measure.endings import Endings, compare_endings
from toolkit.measure.measurement import Verdict
from toolkit.measure.result import RequestResult, successful
from toolkit.measure.scoring import Score, Scorer, decode
from toolkit.recipe.rules import Choice

SAFETY = 2.0
_FREQUENCY = 2.0
_LEVEL = 0.001
_WANTED_RATE = 1 / 200
_CERTAINTY = 0.95
_MOST_ANSWERS = 32  # of an arm: far more tokens than the wanted rate asks for
_DECODED_ANSWERS, _DECODED_TOKENS = 16, 96
_NO_ROUNDING = 1.0  # nats: a gap that no rounding explains
_NEAR = 4.0  # nats: noise cannot swap tokens that are further apart


@dataclass(frozen=True)
class Floor:
    """The numerical noise of the baseline, in nats.

    Of `tokens` in its own answers, `below_first` are not the target's first choice, by `largest_gap` at most.
    `changes` are those of the distance between the two best tokens from decoding to prefill; `largest_change` is the
    largest where the tokens are near each other. `step` is the smallest distance that was seen.
    """

    tokens: int
    below_first: int
    largest_gap: float
    step: float
    changes: tuple[float, ...]
    largest_change: float

    @property
    def noise(self) -> float:
        """The largest noise that was seen."""
        return max(self.largest_gap, self.step, self.largest_change)

    @property
    def greedy(self) -> bool:
        """Whether the baseline's own answers are greedy; if not, it samples, or something changes its first choice."""
        return self.largest_gap <= max(SAFETY * max(self.step, self.largest_change), _NO_ROUNDING)

    @property
    def limit(self) -> float:
        """The largest gap that is taken for noise."""
        return SAFETY * self.noise


@dataclass(frozen=True)
class Mismatch:
    """A token of an answer (counted from 1), the target's first choice there, and the gap between them in nats."""

    workload: str
    prompt: int
    position: int
    token: str
    first: str
    gap: float

    @property
    def shown(self) -> str:
        return f"{self.workload}, prompt {self.prompt + 1}, token {self.position} is {self.token}"


@dataclass(frozen=True)
class Lossless:
    """How an arm's greedy answers look to the target.

    Of `pairs` of answers to the same request, `identical` are the baseline's token for token, with the same text;
    `difference` is the first that is not among those that were scored. Of `tokens` that the target scored,
    `below_first` are not its first choice; `beyond` of them lie further below it than the floor's limit, the furthest
    is `worst`. `too_many` tells whether small gaps are more frequent than in the baseline. `endings` are those of the
    scored answers. `unscored` answers have no scores. Wrong tokens at `seen_rate` would have been seen with 95 %
    certainty.
    """

    arm: str
    pairs: int
    identical: int
    tokens: int
    below_first: int
    beyond: int
    too_many: bool
    seen_rate: float
    floor: Floor
    endings: Endings
    unscored: int = 0
    worst: Mismatch | None = None
    difference: Mismatch | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the arm is lossless; None if too few tokens were scored to tell."""
        if self.beyond or self.too_many or not self.endings.hold or not self.floor.greedy:
            return False
        return True if self.seen_rate <= _WANTED_RATE else None

    @property
    def verdict(self) -> Verdict:
        return Verdict("lossless", self.holds, f"{self.arm}: {'. '.join(_sentences(self))}")


async def measure_floor(scorer: Scorer, reference: Sequence[RequestResult]) -> Floor:
    """The noise of the baseline, whose answers `reference` are. Raises InvocationError if it gives no scores."""
    scored = [await scorer.of(result) for result in sample(reference)]
    scores = [score for answer in scored for score in answer]
    if not scores:
        raise scorer.error or InvocationError("the answers have no token ids to score")
    gaps = [score.gap for score in scores if score.gap > 0]
    changes = await _changes(scorer, sample(reference, _DECODED_ANSWERS))
    return Floor(
        tokens=len(scores),
        below_first=len(gaps),
        largest_gap=max(gaps, default=0.0),
        step=min((score.margin for score in scores if score.margin > 0), default=0.0),
        changes=tuple(change for _, change in changes),
        largest_change=max((change for distance, change in changes if distance < _NEAR), default=0.0),
    )


async def compare(
    arm: str, scorer: Scorer, floor: Floor, answers: Sequence[RequestResult], reference: Sequence[RequestResult]
) -> Lossless:
    """The arm's greedy answers as the baseline's target sees them. Answers to the same request make a pair."""
    chosen = sample(answers)
    scored = [(result, await scorer.of(result)) for result in chosen]
    scores = [score for _, answer in scored for score in answer]
    gaps = [score.gap for score in scores if score.gap > 0]
    theirs = [(result, await scorer.of(result)) for result in sample(reference)]
    pairs = pair_answers(successful(answers), reference)
    return Lossless(
        arm=arm,
        pairs=len(pairs),
        identical=count_identical(pairs),
        tokens=len(scores),
        below_first=len(gaps),
        beyond=sum(gap > floor.limit for gap in gaps),
        too_many=more_frequent((len(gaps), len(scores)), (floor.below_first, floor.tokens)),
        seen_rate=seen_rate(len(scores), sum(score.margin > floor.limit for score in scores)),
        floor=floor,
        endings=await compare_endings(scorer, scored, theirs, floor.limit),
        unscored=sum(not answer for _, answer in scored),
        worst=_worst(scored, floor.limit),
        difference=await _first_difference(pair_answers(chosen, reference), scorer),
    )


def sample(results: Sequence[RequestResult], most: int = _MOST_ANSWERS) -> list[RequestResult]:
    """Successful results whose answers are kept, at most so many, evenly from all workloads and rounds."""
    whole = [result for result in successful(results) if not result.digest]
    order = sorted(whole, key=lambda result: (result.workload, result.round, result.load, result.prompt))
    return order[:: ceil(len(order) / most)] if order else []


def pair_answers(
    answers: Iterable[RequestResult], reference: Iterable[RequestResult]
) -> list[tuple[RequestResult, RequestResult]]:
    """Answers of two arms to the same request."""
    theirs = {result.request: result for result in reference if result.outcome == "successful"}
    return [(ours, theirs[ours.request]) for ours in answers if ours.request in theirs]


def count_identical(pairs: Iterable[tuple[RequestResult, RequestResult]]) -> int:
    """How many pairs have the same tokens and the same text."""
    return sum(ours.told[:2] == theirs.told[:2] for ours, theirs in pairs)


def seen_rate(tokens: int, decisive: int) -> float:
    """The rate of wrong tokens seen with 95 % certainty, if they would show in `decisive` of the tokens' places."""
    return min(1.0, (1 - (1 - _CERTAINTY) ** (1 / tokens)) * tokens / decisive) if decisive else 1.0


def more_frequent(ours: tuple[int, int], theirs: tuple[int, int]) -> bool:
    """Whether the first of two counts (events, tokens) is more than twice as frequent: level 0.001.

    Given the sum of both events, the first is binomial, with the share that twice the frequency would give.
    """
    (events, tokens), (other_events, other_tokens) = ours, theirs
    if not events:
        return False
    share = _FREQUENCY * tokens / (_FREQUENCY * tokens + other_tokens)
    return binomial_tail(events, events + other_events, share) < _LEVEL


def binomial_tail(least: int, trials: int, share: float) -> float:
    """The probability of at least so many successes."""
    odds, whole = log(share) - log(1 - share), lgamma(trials + 1) + trials * log(1 - share)
    return sum(exp(whole - lgamma(k + 1) - lgamma(trials - k + 1) + k * odds) for k in range(least, trials + 1))


async def _changes(scorer: Scorer, reference: Sequence[RequestResult]) -> list[tuple[float, float]]:
    """Distances between two best tokens, and their change from decoding to prefill.

    Kernels differ by rows and length (vllm#48271: from 256 tokens on). So every third answer is decoded alone, the
    others at once, each from another place on. An engine that gives no log-probabilities while it decodes shows its
    noise in the gaps of its answers alone.
    """
    texts = _openings(scorer, reference)
    try:
        alone = [await decode(scorer, text, _DECODED_TOKENS) for text in texts[::3]]
        others = [text for index, text in enumerate(texts) if index % 3]
        at_once = await asyncio.gather(*(decode(scorer, text, _DECODED_TOKENS) for text in others))
    except InvocationError:
        return []
    changes: list[tuple[float, float]] = []
    for text, answer in zip((*texts[::3], *others), (*alone, *at_once), strict=True):
        scores = await scorer.scores(text, [decoded.token for decoded in answer])
        changes += [change(decoded.best, score) for decoded, score in zip(answer, scores)]  # noqa: B905 - long ones are cut
    return changes


def _openings(scorer: Scorer, reference: Sequence[RequestResult]) -> list[tuple[int, ...]]:
    """Prompts with the first part of their answers, from none of it to all but the tokens to decode."""
    known = [(result.prompt_token_ids, result.token_ids) for result in reference]
    most = scorer.scoring.most_tokens if scorer.scoring else 0
    asked = [(prompt, answer[: most - len(prompt)]) for prompt, answer in known if prompt and answer]
    shares = [index / max(1, len(asked) - 1) for index in range(len(asked))]
    return [
        (*prompt, *answer[: round(share * max(0, len(answer) - _DECODED_TOKENS))])
        for share, (prompt, answer) in zip(shares, asked, strict=True)
        if len(prompt) < most
    ]


def change(best: Sequence[Choice], score: Score) -> tuple[float, float]:
    """The distance between two best tokens, and how far the score's is from it."""
    distance = best[0].logprob - best[1].logprob
    return distance, abs(distance - (score.logprob(best[0].token) - score.logprob(best[1].token)))


def _worst(scored: Iterable[tuple[RequestResult, Sequence[Score]]], limit: float) -> Mismatch | None:
    worst = (
        Mismatch(result.workload, result.prompt, position + 1, _name(score.token), _name(score.best[0]), score.gap)
        for result, answer in scored
        for position, score in enumerate(answer)
        if score.gap > limit
    )
    return max(worst, key=lambda one: one.gap, default=None)


async def _first_difference(pairs: Iterable[tuple[RequestResult, RequestResult]], scorer: Scorer) -> Mismatch | None:
    """The first token of the first answer that is not the baseline's; its gap is that to the baseline's token."""
    for ours, theirs in pairs:
        if ours.token_ids == theirs.token_ids:
            continue
        scores = zip(await scorer.of(ours), await scorer.of(theirs))  # noqa: B905 - they may differ in length
        for position, (our, their) in enumerate(scores):
            if our.token.token != their.token.token:
                gap = abs(our.gap - their.gap)
                return Mismatch(ours.workload, ours.prompt, position + 1, _name(our.token), _name(their.token), gap)
    return None


def _name(choice: Choice) -> str:
    return repr(choice.text) if choice.text else f"token {choice.token}"


def _sentences(lossless: Lossless) -> Iterator[str]:
    floor = lossless.floor
    if not floor.greedy:
        yield (
            f"the baseline's own answers are not greedy: a token lies {floor.largest_gap:.3g} nats below the target's "
            "first choice. Ask for temperature 0 and no penalties"
        )
        return
    own = f"{floor.below_first} of the baseline's own {floor.tokens}"
    noise = f"{floor.limit:.3g} nats, twice the baseline's rounding noise"
    if lossless.worst:
        yield (
            f"{lossless.beyond} of {lossless.tokens} tokens are not the target's: {lossless.worst.shown}, "
            f"{lossless.worst.gap:.3g} nats below its {lossless.worst.first}; rounding explains {noise}"
        )
    elif not lossless.endings.hold:
        yield from lossless.endings.sentences
    elif lossless.too_many:
        yield f"{lossless.below_first} of {lossless.tokens} tokens are not the target's first choice, against {own}"
    else:
        yield (
            f"{lossless.tokens} tokens scored by the target: {lossless.below_first} are not its first choice "
            f"(against {own}), none by more than {noise}"
        )
    if lossless.holds is not False:
        yield f"One wrong token in {int(1 / lossless.seen_rate)} would have been seen with 95 % certainty"
    if lossless.holds is None:
        yield f"Too few tokens to tell: send more prompts, until it is one in {1 / _WANTED_RATE:.0f}"
    yield f"{lossless.identical} of {lossless.pairs} answers are the baseline's token for token"
    if lossless.difference:
        first = lossless.difference
        yield f"The first difference: {first.shown} instead of {first.first}, {first.gap:.3g} nats apart"
    if lossless.unscored:
        yield f"{lossless.unscored} answers were not scored: they are empty, or their prompts are too long"
