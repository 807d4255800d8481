"""Do two arms serve the same target? They give the same scores to the same tokens.

Greedy answers hardly show a finer quantization: the tiny pair's target with 8-bit weights writes 1 to 3 of 2,360 tokens
otherwise, each within one step of bfloat16. Its scores show it in nearly every place. So the arm scores answers of the
baseline in one prefill, as the baseline does, and the distance between the two best tokens is compared, place by place.

**The rule.** Both serve the same target if the mean change of that distance between the arms is at most twice its mean
change in the baseline from decoding to prefill, plus a twentieth of a step of its logits. Two prefills of one target
differ less than a prefill and decoding, which use other kernels. (Tiny pair, bfloat16: 0 between two arms, 0.001 to
0.006 from decoding to prefill; 0.035 if the arm computes in float16 or float32 or has 8-bit integer weights, 0.086 for
FP8, 0.35 for 4 bits.)

**False alarms and power.** Two prefills of one target differ by no more than a prefill and decoding, so a false alarm
takes a mean that comes out at twice what is expected. Single changes scatter by about three times their mean, the mean
of 500 of them by 3/√500 = 13 %: that is 7 standard errors. A target that moves the distance by three times the noise on
average is told apart as surely.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from toolkit.measure.lossless import Floor, change, pair_answers, sample
from toolkit.measure.measurement import Verdict
from toolkit.measure.result import NOTHING_TOLD, RequestResult, successful
from toolkit.measure.scoring import Scorer

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", re.ASCII)
_NOISE = 2.0
_OF_A_STEP = 1 / 20
_ANSWERS = 16
_NO_TEXT = NOTHING_TOLD[1:]
_FEWEST = 100
_TOLERATED_SHARE = 0.02


@dataclass(frozen=True)
class SameTarget:
    """How the scores of an arm differ from the baseline's for the same tokens: `mean_change` in nats over `places`."""

    arm: str
    places: int
    mean_change: float
    noise: float
    limit: float

    @property
    def holds(self) -> bool | None:
        """Whether both serve the same target; None if too few places were scored, or no noise is known."""
        return self.mean_change <= self.limit if self.places >= _FEWEST else None

    @property
    def verdict(self) -> Verdict:
        if self.holds is None:
            detail = f"only {self.places} tokens have scores of both arms"
        else:
            detail = (
                f"its scores differ from the baseline's by {self.mean_change:.2g} on average over {self.places} "
                f"tokens; the baseline's own noise is {self.noise:.2g}, the limit {self.limit:.2g}"
            )
        if self.holds is False:
            detail += ". Serve the same model, revision, quantization and dtype in both arms"
        return Verdict("same-target", self.holds, f"{self.arm}: {detail}")


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
    """Have the arm score answers of the baseline, and compare."""
    changes: list[float] = []
    for result in sample(reference, _ANSWERS):
        scores = zip(await arm_scorer.of(result), await scorer.of(result))  # noqa: B905 - one may have no scores
        changes += [change(ours.best, theirs)[1] for ours, theirs in scores]
    noise = mean(floor.changes) if floor.changes else 0.0
    limit = _NOISE * noise + _OF_A_STEP * floor.step
    return SameTarget(arm, len(changes) if floor.changes else 0, mean(changes) if changes else 0.0, noise, limit)
