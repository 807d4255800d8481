"""Whether a new head is better than the one that serves: both draft, so they are compared by how they draft.

The time per output token (TPOT) decides, not the time between arrivals (ITL): an arrival brings all tokens of a step.
So a head of which more drafts are accepted has fewer arrivals, and none of them comes sooner.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.measure.measurement import Gain
from toolkit.measure.pays import verdict_pays
from toolkit.measure.report import BenchReport


@dataclass(frozen=True)
class Decision:
    """Whether to promote the new head, and why or why not. `gain` is where it does best; None without figures."""

    promote: bool
    reason: str
    gain: Gain | None = None


def decide(report: BenchReport) -> Decision:
    """Promote if acceptance length and TPOT are both better by their 95 % intervals.

    It has to be better at one load at least, and worse at none. For the TPOT the rule is that by which an arm pays in
    `bench` (`pays.py`); the noise is known only where the time sufficed to ask all prompts twice: asked twice in the
    first round, the old head would find its prompt in the cache that it has just filled. A single request that failed
    more often than with the old head is a reason not to.
    """
    failed = sum(row.failed if row.arm != "baseline" else -row.failed for row in report.arms)
    if not report.complete:
        return Decision(False, "the measurement was not finished")
    if failed > 0:
        return Decision(False, f"{failed} more of the requests to it failed than of those to the head before")
    if any(verdict.claim == "lossless" and verdict.holds is False for verdict in report.verdicts):
        return Decision(False, "its answers are not those of the head before")
    if not report.gains:
        return Decision(False, "too few answers of both heads could be compared")
    best = max(report.gains, key=lambda gain: min(gain.decoding.low, gain.acceptance.low))
    if any(verdict_pays(gain.decoding, report.noise) is False for gain in report.gains):
        return Decision(False, "it is surely slower at one load", best)
    if any(gain.acceptance.high < 1 for gain in report.gains):
        return Decision(False, "surely fewer of its drafts are accepted", best)
    if best.acceptance.low <= 1:
        return Decision(False, "its acceptance length is not surely higher", best)
    if not verdict_pays(best.decoding, report.noise):
        return Decision(False, "its time per output token is not surely shorter, or not by more than the noise", best)
    return Decision(True, "acceptance length and time per output token are better by their 95 % intervals", best)
