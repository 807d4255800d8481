"""Which of several heads of one target is best: what their reports say of the same held-out conversations."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.catalog import methods
from toolkit.errors import ToolkitError
from toolkit.measure.measurement import Interval
from toolkit.measure.statistics import Pair, speedup
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.model_files import read_folder
from toolkit.sizing.weights import DTYPE_BYTES, file_bytes, read_bytes

COLUMNS = ("method", "tokens a step", "by source", "trained", "steps", "size", "read to draft", "expected speed")
NOTE = (
    "Expected speed is arithmetic, not measured: tokens a step for what is read for it, target and head, in tokens of "
    "the target alone. It holds for one request at a time on a GPU that waits for weights; `toolkit bench` measures."
)


@dataclass(frozen=True)
class _Source:
    """What is read of a report for each source of the data."""

    source: str
    acceptance_length: float
    acceptance_length_low: float | None
    acceptance_length_high: float | None


@dataclass(frozen=True)
class _Report:
    """What is read of a head's report.json."""

    acceptance_length: float
    acceptance_length_low: float | None
    acceptance_length_high: float | None
    held_out_conversations: int
    by_source: tuple[_Source, ...]
    by_conversation: tuple[tuple[int, int, int], ...]
    num_speculative_tokens: int
    seconds: float
    steps: int
    ended: str


@dataclass(frozen=True)
class HeadFigures:
    """One head of a comparison.

    `acceptance_length` is that of its card, with its 95 % interval, and `by_source` the same of each source of the
    data, if there are several. `read_share` is what a step's drafts read of the head, as a share of what the target
    reads for a token; `expected_speed` the tokens of a step for all that is read for it. Both are None where the
    target's size is not known. `ended` is why it was trained for fewer steps than was asked: `time`, `flat` or empty.
    """

    method: str
    acceptance_length: float
    acceptance_length_low: float | None
    acceptance_length_high: float | None
    held_out_conversations: int
    by_source: Mapping[str, tuple[float, float | None, float | None]]
    train_seconds: float
    steps: int
    ended: str
    bytes: int
    read_share: float | None

    @property
    def expected_speed(self) -> float | None:
        return None if self.read_share is None else self.acceptance_length / (1 + self.read_share)

    def cells(self) -> tuple[str, ...]:
        """In the order of COLUMNS."""
        length = (self.acceptance_length, self.acceptance_length_low, self.acceptance_length_high)
        sources = "; ".join(f"{source} {_length(*found)}" for source, found in self.by_source.items())
        read = "" if self.read_share is None else f"{self.read_share:.0%} of the target"
        speed = "" if self.expected_speed is None else f"{self.expected_speed:.2f}"
        seconds, size = self.train_seconds, self.bytes / 1e6
        took = f"{seconds / 60:,.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
        steps = f"{self.steps:,}" + (f", ended: {self.ended}" if self.ended else "")
        return (self.method, _length(*length), sources, took, steps, f"{size:,.1f} MB", read, speed)


@dataclass(frozen=True)
class HeadComparison:
    """Heads of one target, trained on the same data for as long, the best first.

    `ratios` are, for each other method, how many times the best's figure is its: the expected speed, or where that is
    not known the acceptance length, with a 95 % interval over the conversations, paired; None if there are too few. The
    intervals hold together.
    """

    heads: tuple[HeadFigures, ...]
    ratios: Mapping[str, Interval | None]

    @property
    def best(self) -> str:
        """The method to take."""
        return self.heads[0].method

    @property
    def pays(self) -> bool | None:
        """Whether the best is expected to be faster than the target alone; None where that is not known."""
        speed = self.heads[0].expected_speed
        return None if speed is None else speed > 1

    @property
    def is_sure(self) -> bool:
        """Whether it is shown to be better than each other one, and none was cut off; never where it does not pay."""
        shown = all(ratio is not None and ratio.low > 1 for ratio in self.ratios.values())
        return bool(self.pays) and shown and not self._cut

    @property
    def verdict(self) -> str:
        """Which to take, and how sure that is."""
        figure = "acceptance length" if self.pays is None else "expected speed"
        than = ", ".join(f"{_ratio(ratio)} the {figure} of {other}" for other, ratio in self.ratios.items())
        if self.pays is False:
            return f"None is expected to be faster than the target alone. {self.best} comes nearest: {than}."
        if self.pays is None:
            why = "what a token reads of the target is not known (`toolkit lock` reads the sizes of one on the hub)"
            return f"{self.best} is accepted most: {than}. Which is fastest, or whether any pays, is not known: {why}."
        if self.is_sure:
            return f"Take {self.best}: {than}."
        more = "More held-out conversations (`training.held_out`) would tell."
        if self._cut:
            more = f"The time ended the training of {', '.join(self._cut)} early: more `training.max_hours` would tell."
        return f"Take {self.best}, but that it is best is not shown: {than}. {more}"

    @property
    def _cut(self) -> list[str]:
        """Methods whose heads could have learned more."""
        return [head.method for head in self.heads if head.ended == "time"]

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with what follows from the fields."""
        heads = [{**vars(head), "expected_speed": head.expected_speed} for head in self.heads]
        ratios = {other: vars(ratio) if ratio else None for other, ratio in self.ratios.items()}
        shown = {"best": self.best, "is_sure": self.is_sure, "pays": self.pays, "verdict": self.verdict}
        return {"heads": heads, "ratios": ratios, **shown}


def compare_heads(folder: Path, reports: Mapping[str, Mapping[str, Any]], target: ModelFacts | None) -> HeadComparison:
    """The heads in folders of their methods' names, with their reports. Raises ToolkitError."""
    read = {method: _read(method, report) for method, report in reports.items()}
    heads = [_figures(method, report, folder / method, target) for method, report in read.items()]
    if any(head.read_share is None for head in heads):  # then none of them is compared by it
        heads = [replace(head, read_share=None) for head in heads]
    best, *others = heads = sorted(heads, key=lambda head: head.acceptance_length / _cost(head), reverse=True)
    pairs = len(heads) * (len(heads) - 1) // 2  # any two might have been the best and another
    ratios = {
        other.method: _scaled(
            speedup(_pairs(read[best.method], read[other.method]), looks=pairs), _cost(other) / _cost(best)
        )
        for other in others
    }
    return HeadComparison(tuple(heads), ratios)


def _read(method: str, report: Mapping[str, Any]) -> _Report:
    try:
        return documents.fit(_Report, dict(report))
    except documents.Unfit as error:
        raise ToolkitError(f"report.json of the {method} head is not a report: {error}") from error


def _figures(method: str, report: _Report, head: Path, target: ModelFacts | None) -> HeadFigures:
    facts = read_folder(head)
    share = None
    with suppress(ToolkitError):  # a config without sizes
        share = drafting_bytes(method, facts, report.num_speculative_tokens) / read_bytes(target) if target else None
    return HeadFigures(
        method,
        report.acceptance_length,
        report.acceptance_length_low,
        report.acceptance_length_high,
        report.held_out_conversations,
        {one.source: (one.acceptance_length, one.acceptance_length_low, one.acceptance_length_high)
         for one in report.by_source},
        report.seconds,
        report.steps,
        report.ended,
        file_bytes(facts) or 0,
        share,
    )  # fmt: skip


def drafting_bytes(method: str, head: ModelFacts, drafts: int) -> float:
    """What a step reads of the head: all once, or for each draft; of DSpark what corrects a draft for each.

    Raises ToolkitError for a config without sizes.
    """
    if not methods.method(method).parallel:
        return drafts * read_bytes(head)
    rank, drafted = head.config.get("markov_rank") or 0, head.config.get("draft_vocab_size") or head.vocab_size
    return read_bytes(head) + float(drafts * rank * drafted * DTYPE_BYTES["bfloat16"])


def _pairs(best: _Report, other: _Report) -> list[Pair]:
    """The conversations of both, of each the tokens for its steps."""
    theirs = {conversation: (tokens, steps) for conversation, tokens, steps in other.by_conversation}
    return [
        Pair(conversation, tokens, steps, *theirs[conversation])
        for conversation, tokens, steps in best.by_conversation
        if conversation in theirs
    ]


def _cost(head: HeadFigures) -> float:
    """What a step reads, in what the target reads for a token."""
    return 1 + (head.read_share or 0.0)


def _scaled(interval: Interval | None, factor: float) -> Interval | None:
    return interval and Interval(interval.ratio * factor, interval.low * factor, interval.high * factor)


def _ratio(interval: Interval | None) -> str:
    if interval is None:
        return "an unknown number of times"
    return f"{interval.ratio:.2f} times ({interval.low:.2f}-{interval.high:.2f})"


def _length(length: float, low: float | None, high: float | None) -> str:
    return f"{length:.2f}" if low is None or high is None else f"{length:.2f} ({low:.2f}-{high:.2f})"
