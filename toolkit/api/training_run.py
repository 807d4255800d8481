"""What came of a training: a head, or several that were compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from toolkit.api.head_comparison import COLUMNS, NOTE, HeadComparison
from toolkit.display import card, facts, prose, table
from toolkit.text import inert

_ENDED = {"flat": "what it learned no longer raised its acceptance length", "time": "training.max_hours was over"}


@dataclass(frozen=True)
class TrainingRun:
    """A head that was trained. `status` is `trained`, `reused` (by an earlier run) or `training` (not waited for).

    `head` is where it lies, `metrics` what the job measured on held-out data, `card` its model card as the job wrote
    it; all are empty while it trains. With `comparison` several heads were trained, and one of them lies there if it
    was to be taken.
    """

    recipe: str
    platform: str
    job: str
    status: str
    head: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    card: str = ""
    comparison: HeadComparison | None = None

    @property
    def best(self) -> str:
        """The method to take of those that were compared; empty without a comparison."""
        return self.comparison.best if self.comparison else ""

    @property
    def best_that_pays(self) -> str:
        """The same; empty too where it is expected to be slower than the target alone."""
        return "" if self.comparison and self.comparison.pays is False else self.best

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit train --json`."""
        return {**asdict(self), "comparison": self.comparison.to_dict() if self.comparison else None}

    def rows(self) -> list[tuple[str, str]]:
        """Names and texts of its facts."""
        texts = [("job", f"{self.job} on {self.platform}"), ("status", self.status), ("head", self.head)]
        return [(name, text) for name, text in (*texts, *_figures(self.metrics)) if text]

    def __repr__(self) -> str:
        said = [self.comparison.verdict] if self.comparison else []
        shown = [*(f"{name}: {text}" for name, text in self.rows()), *said]
        return inert("\n  ".join([f"<TrainingRun {self.recipe}>", *shown]))

    def _repr_html_(self) -> str:
        found = self.comparison
        heads = [table([head.cells() for head in found.heads], COLUMNS), prose(found.verdict, NOTE)] if found else []
        return card(self.recipe, facts(self.rows()), *heads, tone="good" if self.head else "fair")


def _figures(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Single numbers and lists of them, as text; first why the training ended before its last step."""
    shown = [("ended early", why) for ended, why in _ENDED.items() if metrics.get("ended") == ended]
    for name, value in metrics.items():
        numbers = value if isinstance(value, list) else [value]
        if numbers and all(isinstance(number, int | float) for number in numbers):
            texts = (f"{number:,}" if isinstance(number, int) else f"{number:.4g}" for number in numbers)
            shown.append((name.replace("_", " "), " ".join(texts)))
    return shown
