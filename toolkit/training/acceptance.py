"""The acceptance length that an engine would have on given answers, from what a head drafts at every position of them.

An engine that decodes greedily drafts K tokens from the last token it knows, keeps those that are right up to the first
wrong one, adds the target's own next token, and drafts again from there. So it skips over what is easy and stands at
what is hard: a mean over all positions would be as much as a third too good. `walk` goes the engine's way.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from toolkit.student import student


@dataclass(frozen=True)
class Walk:
    """The steps of one conversation's answers, and of how many of them the draft at each depth is accepted."""

    steps: int
    accepted: tuple[int, ...]
    conversation: int = 0
    source: str = ""

    @property
    def tokens(self) -> int:
        """Those of all steps: what is accepted, and the target's own one of each step."""
        return self.steps + sum(self.accepted)


@dataclass(frozen=True)
class Acceptance:
    """Tokens of a step of the target with a 95 % interval over conversations, None of fewer than two.

    `per_depth` is the share of steps in which the draft at each depth is accepted, as an engine counts it.
    """

    length: float
    low: float | None
    high: float | None
    per_depth: tuple[float, ...]
    conversations: int


def walk(right: Tensor, loss_mask: Tensor, drafted: int) -> Walk:
    """An engine's way through one sample, that drafts so many tokens a step.

    `right` [tokens, depths] says of each anchor which of its drafts are the answer's own tokens, `loss_mask` [tokens]
    which tokens the target generated. Each answer starts anew, at its first token, which no draft foretold. What is
    accepted beyond an answer's last token is not known, and counted as nothing.
    """
    runs = right[:, :drafted].long().cumprod(dim=1).sum(dim=1).tolist()
    accepted = [0] * min(drafted, right.shape[1])
    steps = 0
    for start, end in _answers(loss_mask.tolist()):
        at = start
        while at < end - 1:
            run = min(runs[at], end - 1 - at)
            steps += 1
            for depth in range(run):
                accepted[depth] += 1
            at += run + 1
    return Walk(steps, tuple(accepted))


def _answers(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and after-last token of each answer."""
    start = None
    for index, learned in enumerate([*mask, 0]):
        if learned and start is None:
            start = index
        elif not learned and start is not None:
            yield start, index
            start = None


def acceptance_of(walks: Iterable[Walk]) -> Acceptance:
    """What many walks come to. Of no step at all, the length is 1: nothing was accepted."""
    walked = [one for one in walks if one.steps]
    per_depth = [sum(counts) for counts in zip(*(one.accepted for one in walked), strict=True)]
    sums = list(by_conversation(walked).values())
    tokens, steps = sum(one for one, _ in sums), sum(one for _, one in sums)
    if not steps:
        return Acceptance(1.0, None, None, (), 0)
    low, high = _interval(sums, tokens, steps)
    return Acceptance(tokens / steps, low, high, tuple(count / steps for count in per_depth), len(sums))


def by_conversation(walks: Iterable[Walk]) -> dict[int, tuple[int, int]]:
    """Tokens and steps of each conversation in which there was a step."""
    sums: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for one in walks:
        if one.steps:
            tokens, steps = sums[one.conversation]
            sums[one.conversation] = (tokens + one.tokens, steps + one.steps)
    return sums


def by_source(walks: Sequence[Walk]) -> dict[str, Acceptance]:
    """Of each source of the data, in the order in which they come."""
    names = dict.fromkeys(one.source for one in walks)
    return {name: acceptance_of(one for one in walks if one.source == name) for name in names}


def _interval(sums: Sequence[tuple[int, int]], tokens: int, steps: int) -> tuple[float | None, float | None]:
    """As `toolkit.measure.statistics` has it of prompts: the delete-one jackknife of the ratio's logarithm."""
    count = len(sums)
    if count < 2:
        return None, None
    length = tokens / steps
    strays = [math.log((tokens - own) / (steps - its) / length) for own, its in sums]
    variance = (count - 1) / count * math.fsum(stray * stray for stray in strays)
    freedom = 1 / math.fsum((its / steps) ** 2 for _, its in sums) - 1
    reach = math.exp(student(freedom) * math.sqrt(variance))
    return length / reach, length * reach
