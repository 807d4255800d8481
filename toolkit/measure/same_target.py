"""Do two arms serve the same target? They give the same scores to the same tokens.

Greedy answers hardly show a finer quantization: the tiny pair's target with 8-bit weights writes 1 to 3 of 2,360 tokens
otherwise, each within one step of bfloat16. Its scores show it in nearly every place. So both arms score answers of the
baseline in prefills, and the distance between the two best tokens is compared, place by place. Prefill against prefill
has no noise of other kernels. What else moves it, the number of rows that are computed at once, is measured: each arm
scores each text whole and cut at half of the answer, where the places before the cut should have the same scores.

**The rule.** N is the mean change from whole to cut texts, D that in the baseline from decoding to prefill, which use
other kernels, A an allowance of a twentieth of a step of its logits, at most D or a thousandth of a nat. With a mean
change C between the arms they serve

- the same target if C ≤ 2N + A,
- another one if C > 2D + A: more than one target's kernels differ,
- else it is not shown. Another GPU, or another version of the engine, may do that, and so may 8-bit weights: in
  bfloat16 whatever changes one rounding changes many behind it, so that the tiny pair's C is 0.03 for weights that are
  off by 0.3 % and 0.04 for 8-bit integers. A decoding that is 0.02 off its prefill is hardly less.

Tiny pair on a CPU: C and N are 0 between two arms, D is 0 to 0.006 in bfloat16; C is 0.035 if the arm computes in
float16 or float32, 0.086 for FP8, 0.35 for 4 bits.

**False alarms.** Two prefills of one target differ by no more than a prefill and decoding, so a false NO takes a mean
that comes out at twice what is expected. Single changes scatter by at most three times their mean, the mean of n of
them by 3/√n: for 500 13 %, which is 7 standard errors.

**Power.** By the same scatter a target whose mean change is (2N + A) / (1 - 6/√n) escapes with 2.5 %. Rounded logits
hide no smaller ones: where they move by a tenth of a step, a tenth of them moves by a whole one. Weights of which each
is off by a share e, by chance, change the distance by 0.39 e of itself where nothing is rounded (tiny target in
float32, e of 0.3 %, 1 % and 3 %), and by more in bfloat16. The verdict turns its limit into a share by that figure: a
measure of one model, so an order of magnitude for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import mean

from toolkit.measure.lossless import Floor, change, pair_answers, sample
from toolkit.measure.measurement import Verdict
from toolkit.measure.result import NOTHING_TOLD, RequestResult, successful
from toolkit.measure.scoring import Score, Scorer

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", re.ASCII)
_NOISE = 2.0
_OF_A_STEP = 1 / 20
_LEAST = 0.001  # nats
_PER_SHARE = 0.39
_ANSWERS = 16
_PERCENT = 100
_NO_TEXT = NOTHING_TOLD[1:]
_FEWEST = 100
_TOLERATED_SHARE = 0.02


@dataclass(frozen=True)
class SameTarget:
    """How the scores of an arm differ from the baseline's for the same tokens: `mean_change` in nats over `places`.

    `noise` is the mean change of one arm's scores with the number of rows, `other_kernels` that from decoding to
    prefill, None if it is not known; `allowance` is added to the limits. `distance` is the mean distance.
    """

    arm: str
    places: int
    mean_change: float
    noise: float
    other_kernels: float | None
    allowance: float
    distance: float

    @property
    def limit(self) -> float:
        """The largest mean change of the same target."""
        return _NOISE * self.noise + self.allowance

    @property
    def other_limit(self) -> float:
        """The least mean change that no kernels explain."""
        return inf if self.other_kernels is None else max(self.limit, _NOISE * self.other_kernels + self.allowance)

    @property
    def seen(self) -> float:
        """The mean change that would have been seen with 97.5 % certainty."""
        return self.limit / (1 - 6 / sqrt(self.places)) if self.places > 36 else inf

    @property
    def holds(self) -> bool | None:
        """Whether both serve the same target; None if too few places were scored, or kernels may explain it."""
        if self.places < _FEWEST or self.limit < self.mean_change <= self.other_limit:
            return None
        return self.mean_change <= self.limit

    @property
    def verdict(self) -> Verdict:
        return Verdict("same-target", self.holds, f"{self.arm}: {'. '.join(self._sentences())}")

    def _sentences(self) -> Iterator[str]:
        if self.places < _FEWEST:
            yield f"only {self.places} tokens have scores of both arms"
            return
        yield (
            f"its scores differ from the baseline's by {self.mean_change:.2g} on average over {self.places} "
            f"tokens; those of one arm in other batches by {self.noise:.2g}, the limit is {self.limit:.2g}"
        )
        if self.holds:
            share = f"{_PERCENT * self.seen / (_PER_SHARE * self.distance):.1g} %" if self.distance else "much"
            yield f"A change of {self.seen:.2g} would have been seen, as of weights that are off by about {share}"
        elif self.holds is None:
            yield (
                f"Kernels of another GPU or version may do that (up to {self.other_limit:.2g}), and so may "
                "quantized weights: serve both on the same to tell"
            )
        else:
            yield "Serve the same model, revision, quantization and dtype in both arms"


def other_tokens(answers: Sequence[RequestResult], reference: Sequence[RequestResult]) -> str:
    """How the arms count the tokens of the same texts, where they differ; empty otherwise. Speeds are in these tokens.

    Prompts differ with the tokenizer or the chat template, answers with the tokenizer, or with usage that is wrong. A
    template may contain the day, so a few prompts may differ.
    """
    pairs = pair_answers(successful(answers), reference)
    prompts = [(ours, theirs) for ours, theirs in pairs if _prompt(ours) != _prompt(theirs)]
    if 2 * len(prompts) > len(pairs):
        ours, theirs = prompts[0]
        counts = f"{ours.prompt_tokens} tokens, for the baseline {theirs.prompt_tokens}"
        return f"the same prompts are other tokens for it (the first: {counts}): another chat template or tokenizer"
    same = [(ours, theirs) for ours, theirs in pairs if _text(ours) == _text(theirs) != _NO_TEXT]
    our_count, their_count = (sum(result.output_tokens for result in side) for side in zip(*same)) if same else (0, 0)  # noqa: B905
    if abs(our_count - their_count) > _TOLERATED_SHARE * their_count:
        return f"it counts {our_count} tokens in answers with the same text, the baseline {their_count}"
    return ""


def other_name(arm: str, baseline: str) -> str:
    """How two servers name models of the hub that are not the same; empty otherwise.

    Folders are not compared: the same model may lie in two of them.
    """
    names = arm, baseline
    if arm == baseline or not all(_HUB_ID.fullmatch(name) for name in names):
        return ""
    return f"it says that it serves {arm}, the baseline {baseline}"


def _prompt(result: RequestResult) -> tuple[int, ...]:
    """The prompt's tokens; only how many they are, where the engine does not return them."""
    return result.prompt_token_ids or (result.prompt_tokens,)


def _text(result: RequestResult) -> tuple[bytes, ...]:
    return result.told[1:]


async def same_target(
    arm: str, arm_scorer: Scorer, scorer: Scorer, floor: Floor, reference: Sequence[RequestResult]
) -> SameTarget:
    """Have both arms score answers of the baseline, whole and cut, and compare."""
    changes: list[tuple[float, float]] = []
    own: list[float] = []
    places = 0
    for result in sample(reference, _ANSWERS):
        ours, theirs = [await _whole_and_cut(one, result) for one in (arm_scorer, scorer)]
        for our, their in zip(ours, theirs, strict=True):
            changes += _changes(our, their)
        own += [moved for whole, cut in (ours, theirs) for _, moved in _changes(cut, whole)]
        places += min(len(ours[0]), len(theirs[0]))
    other_kernels = mean(floor.changes) if floor.changes else None
    step = _OF_A_STEP * floor.step
    return SameTarget(
        arm,
        places if own else 0,
        mean(moved for _, moved in changes) if changes else 0.0,
        mean(own) if own else 0.0,
        other_kernels,
        step if other_kernels is None else min(step, max(_LEAST, other_kernels)),
        mean(distance for distance, _ in changes) if changes else 0.0,
    )


async def _whole_and_cut(scorer: Scorer, result: RequestResult) -> tuple[Sequence[Score], Sequence[Score]]:
    """The scores of an answer, and those of its first half without the rest."""
    whole = await scorer.of(result)
    return whole, await scorer.scores(result.prompt_token_ids, result.token_ids[: len(whole) // 2])


def _changes(ours: Sequence[Score], theirs: Sequence[Score]) -> list[tuple[float, float]]:
    """Distances and their changes, by place. One may be shorter, or have no scores."""
    return [change(our.best, their) for our, their in zip(ours, theirs)]  # noqa: B905
