"""Whether arms are lossless and serve the baseline's target, by the best means that their engine offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.errors import InvocationError
from toolkit.measure.arm import Arm
from toolkit.measure.identity import Identity, compare_identity
from toolkit.measure.lossless import Floor, Lossless, compare, measure_floor
from toolkit.measure.report import Verdict
from toolkit.measure.result import RequestResult
from toolkit.measure.same_target import SameTarget, same_target
from toolkit.measure.sampled import Sampled, compare_sampled
from toolkit.measure.scoring import Scorer


@dataclass(frozen=True)
class Judgement:
    """What is found about one arm; `target` is None where the engine gives no scores."""

    arm: str
    lossless: Lossless | Sampled | Identity
    target: SameTarget | None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The claims `lossless` and `same-target` about the arm."""
        unknown = Verdict("same-target", None, f"{self.arm}: the engine gives no scores of tokens to compare")
        return self.lossless.verdict, self.target.verdict if self.target else unknown


async def judge(
    baseline: Arm, arms: Sequence[Arm], results: Sequence[RequestResult], again: str = ""
) -> tuple[Judgement, ...]:
    """Judge arms by the answers in `results`, of which those of the arm `again` are the baseline's second ones."""

    def answers(name: str) -> list[RequestResult]:
        return [result for result in results if result.arm == name]

    scorer, reference = Scorer(baseline.connection), answers(baseline.name)
    try:
        floor = await measure_floor(scorer, reference)
    except InvocationError:
        second = answers(again)
        return tuple(
            Judgement(arm.name, compare_identity(arm.name, answers(arm.name), reference, second), None) for arm in arms
        )
    return tuple([await _judge(arm, scorer, floor, answers(arm.name), reference) for arm in arms])


async def _judge(
    arm: Arm, scorer: Scorer, floor: Floor, answers: Sequence[RequestResult], reference: Sequence[RequestResult]
) -> Judgement:
    found: Lossless | Sampled
    if arm.options.get("temperature"):
        found = await compare_sampled(arm.name, scorer, answers, reference)
    else:
        found = await compare(arm.name, scorer, floor, answers, reference)
    return Judgement(arm.name, found, await same_target(arm.name, Scorer(arm.connection), scorer, floor, reference))
