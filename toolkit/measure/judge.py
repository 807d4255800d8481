"""Whether arms are lossless and serve the baseline's target, by the best means that their engine offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from toolkit.errors import InvocationError
from toolkit.measure.arm import Arm
from toolkit.measure.identity import Identity, compare_identity
from toolkit.measure.lossless import Floor, Lossless, compare, measure_floor
from toolkit.measure.measurement import Verdict
from toolkit.measure.result import RequestResult
from toolkit.measure.same_target import SameTarget, other_name, other_tokens, same_target
from toolkit.measure.sampled import Sampled, compare_sampled
from toolkit.measure.scoring import Scored, Scorer


@dataclass(frozen=True)
class DifferentOptions:
    """The arm was not asked what the baseline was asked: these request options differ."""

    arm: str
    options: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        detail = f"{self.arm}: asked with another {', '.join(self.options)} than the baseline; ask both alike"
        return Verdict("lossless", False, detail)


@dataclass(frozen=True)
class Judgement:
    """What is found about one arm; `target` is None where the engine gives no scores.

    `other_tokens` says how it counts the tokens of the same texts otherwise than the baseline, `other_name` how it
    names another model, which decides where there are no scores; both are empty if it does not.
    """

    arm: str
    lossless: Lossless | Sampled | Identity | DifferentOptions
    target: SameTarget | None
    other_tokens: str = ""
    other_name: str = ""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        target = Verdict("same-target", None, f"{self.arm}: the engine gives no scores of tokens to compare")
        if self.other_tokens:
            target = Verdict("same-target", False, f"{self.arm}: {self.other_tokens}")
        elif self.target and self.target.holds is not None:
            target = self.target.verdict
        elif self.other_name:
            target = Verdict("same-target", False, f"{self.arm}: {self.other_name}. Serve the same model in both arms")
        elif self.target:
            target = self.target.verdict
        return self.lossless.verdict, target


async def judge(
    baseline: Arm,
    arms: Sequence[Arm],
    results: Sequence[RequestResult],
    again: str = "",
    progress: Callable[[Scored], object] = lambda _: None,
) -> tuple[Judgement, ...]:
    """Judge arms by the answers in `results`, of which those of the arm `again` are the baseline's second ones."""

    def answers(name: str) -> list[RequestResult]:
        return [result for result in results if result.arm == name]

    scorer, reference = Scorer(baseline, progress), answers(baseline.name)
    try:
        floor = await measure_floor(scorer, reference)
    except InvocationError as error:
        second, reason = answers(again), str(error)
        identities = [compare_identity(arm.name, answers(arm.name), reference, second, reason) for arm in arms]
        judged = [Judgement(one.arm, one, None) for one in identities]
    else:
        judged = [await _judge(arm, baseline, scorer, floor, answers(arm.name), reference) for arm in arms]
    return tuple(
        replace(
            one,
            other_tokens=other_tokens(answers(arm.name), reference),
            other_name=other_name(arm.target, baseline.target),
        )
        for arm, one in zip(arms, judged, strict=True)
    )


async def judge_alone(
    arm: Arm, results: Sequence[RequestResult], progress: Callable[[Scored], object] = lambda _: None
) -> tuple[Verdict, Verdict]:
    """Without a baseline, the arm's own target scores its answers. Whether it is the right target is not shown.

    Wrong tokens that the arm accepts are found; its noise is that from decoding to prefill alone.
    """
    target = Verdict("same-target", None, f"{arm.name}: only a baseline shows whether it serves the right target")
    answers = [result for result in results if result.arm == arm.name]
    if arm.options.get("temperature"):
        return Verdict("lossless", None, f"{arm.name}: sampled answers are judged with a baseline only"), target
    scorer = Scorer(arm, progress)
    try:
        floor = replace(await measure_floor(scorer, answers), largest_gap=0.0)
    except InvocationError as error:
        return Verdict("lossless", None, f"{arm.name}: its answers cannot be scored: {error.message}"), target
    own = await compare(arm.name, scorer, floor, answers, ())
    shown = f"{own.beyond} of {own.tokens} tokens lie more than {floor.limit:.3g} nats below its own target's first"
    detail = f"{arm.name}: {shown} choice, twice the rounding noise"
    if own.worst:
        detail += f": {own.worst.shown}, {own.worst.gap:.3g} nats below its {own.worst.first}"
    return Verdict("lossless", own.holds, detail), target


async def _judge(
    arm: Arm,
    baseline: Arm,
    scorer: Scorer,
    floor: Floor,
    answers: Sequence[RequestResult],
    reference: Sequence[RequestResult],
) -> Judgement:
    target = await same_target(arm.name, scorer.by(arm), scorer, floor, reference)
    names = sorted({*arm.options, *baseline.options})
    if other := tuple(name for name in names if arm.options.get(name) != baseline.options.get(name)):
        return Judgement(arm.name, DifferentOptions(arm.name, other), target)
    if arm.options.get("temperature"):
        return Judgement(arm.name, await compare_sampled(arm.name, scorer, answers, reference), target)
    return Judgement(arm.name, await compare(arm.name, scorer, floor, answers, reference), target)
