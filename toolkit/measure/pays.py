"""The rule by which an arm pays or costs, and by which a new head is better than the one that serves.

**Several looks.** A workload pays if an arm does at any load. With m arms and loads that are m chances of an error, so
each is judged by a wider interval: that of Student's quantile 1 - 0.025/m instead of 0.975. Where nothing differs, the
probability that at least one of the m intervals lies above 1 is at most m * 0.025/m = 2.5 % (Bonferroni's inequality),
however much the arms and loads depend on each other. The intervals that a report shows remain those of 95 %. "Nothing
is gained" needs every load to show that, so it needs no correction.

The measurement may stop early, which is not a further look: it stops when its intervals are narrow (`statistics.py`),
not when one of them reaches a verdict.

Two heads both draft, so they are compared by how they draft. The time per output token (TPOT) decides, not the time
between arrivals (ITL): an arrival brings all tokens of a step, so a head of which more drafts are accepted has fewer
arrivals, and none of them comes sooner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolkit.measure.measurement import Gain, Interval, Measurement, Ratio

# A smaller difference is worth no deployment, and clocks are no better.
_SMALLEST_GAIN = 1.01
# An acceptance length that was measured lower than that is a loss, even where too few prompts were asked to be sure.
_LARGEST_LOSS = 0.9


def verdict_pays(speedup: Ratio | None, noise: Ratio | None) -> bool | None:
    """Whether an arm pays (True) or costs (False); None if neither is shown. `speedup` allows for all looks.

    It pays if its whole interval is above 1, by 1 % at least, and above the ratio of the baseline to itself. In a
    measurement without any difference the first happens in 2.5 % of all cases. The second makes it rarer: both ratios
    have the same baseline requests below, so where these were slow by chance, the baseline beats itself as well.
    """
    if speedup is None:
        return None
    itself = noise.ratio if noise else 1.0
    if speedup.low > max(_SMALLEST_GAIN, itself):
        return True
    return False if speedup.high < min(1 / _SMALLEST_GAIN, itself) else None


@dataclass(frozen=True)
class Decision:
    """Whether to promote the new head, and why or why not. `gain` is where it does best; None without figures."""

    promote: bool
    reason: str
    gain: Gain | None = None


def decide(report: Measurement, own: Sequence[str] = ()) -> Decision:
    """Promote if acceptance length and TPOT are both better by their 95 % intervals, and on `own` workloads not worse.

    `own` are the workloads that the owner of the endpoint has chosen; the others are traffic, which its callers choose.

    It has to be better at one load at least, and worse at none. For the TPOT the rule is that by which an arm pays in
    `bench`; the noise is known only where the time sufficed to ask all prompts twice: asked twice in the
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
    gains = [gain for gain in report.gains if gain.workload not in own]
    if not gains:
        return Decision(False, "too few answers of both heads could be compared")
    best = max(gains, key=lambda gain: min(gain.decoding.low, gain.acceptance.low))
    if any(verdict_pays(gain.decoding, report.noise) is False for gain in gains):
        return Decision(False, "it is surely slower at one load", best)
    if any(gain.acceptance.high < 1 for gain in gains):
        return Decision(False, "surely fewer of its drafts are accepted", best)
    if best.acceptance.low <= 1:
        return Decision(False, "its acceptance length is not surely higher", best)
    if not verdict_pays(best.decoding, report.noise):
        return Decision(False, "its time per output token is not surely shorter, or not by more than the noise", best)
    if losses := [*_losses(report, own)]:
        return Decision(False, f"it gains on the traffic, but {'; '.join(losses)}", best)
    return Decision(True, "acceptance length and time per output token are better by their 95 % intervals", best)


def _losses(report: Measurement, own: Sequence[str]) -> Iterator[str]:
    """What the new head loses on those workloads, one text for each that it loses on, or is not known to hold."""
    for name in own:
        gains = [gain for gain in report.gains if gain.workload == name]
        if not gains:
            yield f"too few answers to the workload {name} could be compared"
            continue
        fewest = min((gain.acceptance for gain in gains), key=lambda ratio: ratio.high)
        slowest = min((gain.decoding for gain in gains), key=lambda ratio: ratio.high)
        if fewest.high < 1 or fewest.ratio < _LARGEST_LOSS:
            yield f"on the workload {name} its acceptance length is {_times(fewest)} that of the head before"
        elif verdict_pays(slowest, report.noise) is False:
            yield f"on the workload {name} its tokens per second are {_times(slowest)} those of the head before"


def _times(ratio: Interval) -> str:
    return f"{ratio.ratio:.2f} times ({ratio.low:.2f}-{ratio.high:.2f})"
