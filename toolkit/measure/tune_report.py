"""The result of `toolkit tune`: every setting, as predicted and as measured, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from toolkit.display import Tone, bullets, card, data_frame, table
from toolkit.measure.find_k import Point
from toolkit.measure.tune import Aim, Candidate, Goal
from toolkit.measure.wording import dollars, interval, ratio
from toolkit.recipe.schema import Evidence
from toolkit.text import inert

COLUMNS = ("setting", "workload", "load", "predicted", "speedup", "acceptance", "$/M", "SLO", "")
"""Columns of a report's table."""

_SLO = {True: "met", False: "not met", None: ""}


@dataclass(frozen=True)
class TuneRow:
    """A setting at one workload and concurrency: its speedup over the baseline, as predicted and as measured.

    `predicted` is None for the settings that the predictions are made from. The measured figures are None for a K that
    was only predicted. `measurement` is 2 where the best setting was measured again.
    """

    setting: str
    workload: str
    concurrency: int
    predicted: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    acceptance_length: float | None = None
    price_per_million_output_tokens: float | None = None
    meets_slo: bool | None = None
    measurement: int = 1

    def cells(self, winner: str | None) -> tuple[str, ...]:
        """The row in the order of COLUMNS."""
        measured = self.ratio is not None and self.low is not None and self.high is not None
        return (
            self.setting,
            self.workload,
            str(self.concurrency),
            ratio(self.predicted) if self.predicted else "",
            f"{ratio(self.ratio or 0)} ({self.low:.2f}-{self.high:.2f})" if measured else "",
            f"{self.acceptance_length:.2f}" if self.acceptance_length else "",
            dollars(self.price_per_million_output_tokens),
            _SLO[self.meets_slo],
            "again" if self.measurement > 1 else "best" if self.setting == winner else "",
        )


@dataclass(frozen=True)
class TuneReport:
    """Which setting is best. Truthy if one is better than the baseline.

    `winner` is its name, `speculation` the keys of a recipe's `speculation` that make it; both are empty if there is
    none. `schedule_pays` says whether a K by batch size beats a fixed K and the baseline; None if it was not measured.
    `written` is the recipe that it was written into.
    """

    title: str
    goal: Goal
    rows: tuple[TuneRow, ...]
    winner: str | None = None
    speculation: Mapping[str, Any] = field(default_factory=dict)
    measured: int = 0
    schedule_pays: bool | None = None
    notes: tuple[str, ...] = ()
    setting: Mapping[str, Any] = field(default_factory=dict)
    written: str | None = None

    @property
    def ok(self) -> bool:
        """Whether a setting is better than the baseline."""
        return self.winner is not None

    def __bool__(self) -> bool:
        return self.ok

    @property
    def answer(self) -> str:
        """The result in a sentence."""
        if self.winner is None:
            return "no setting is shown to be better than the baseline"
        winners = [row for row in self.rows if row.setting == self.winner and row.ratio is not None]
        last = max(row.measurement for row in winners)
        speeds = "; ".join(
            f"{ratio(row.ratio or 0)} on {row.workload}, load {row.concurrency}"
            for row in winners
            if row.measurement == last
        )
        again = " when measured again" if last > 1 else ""
        return f"{self.winner} has the lowest {self.goal}: {speeds}{again}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit tune --json`."""
        return {"ok": self.ok, "answer": self.answer, **asdict(self)}

    def lines(self) -> list[str]:
        """What stands below the table."""
        written = [f"Written into {self.written}"] if self.written else []
        if self.winner and not self.written:
            written = [f"In the recipe: speculation: {dict(self.speculation)}"]
        measured = ", ".join(f"{key}: {value}" for key, value in self.setting.items())
        return [*written, *self.notes, f"{self.measured} settings measured with {measured}"]

    def __repr__(self) -> str:
        rows = [", ".join(filter(None, row.cells(self.winner))) for row in self.rows]
        lines = [f"<TuneReport {self.title}: {self.answer}>", *rows, *self.lines()]
        return inert("\n  ".join(lines))

    def _repr_html_(self) -> str:
        rows = [row.cells(self.winner) for row in self.rows]
        tone: Tone = "good" if self.ok else "soft"
        return card(self.answer, table(rows, COLUMNS), bullets(self.lines()), says=self.title, tone=tone)

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each setting, workload and load."""
        return data_frame(asdict(row) for row in self.rows)


def tune_rows(
    candidates: Sequence[Candidate], aim: Aim, predictions: Mapping[str, Mapping[Point, float]]
) -> tuple[TuneRow, ...]:
    """All candidates, and the K of `predictions` that were not measured: first by K, then what is no K."""
    measured = {candidate.name for candidate in candidates}
    rows = [row for candidate in candidates for row in _rows(candidate, aim)]
    rows += [
        TuneRow(name, workload, concurrency, predicted)
        for name, points in predictions.items()
        if name not in measured
        for (workload, concurrency), predicted in points.items()
    ]
    return tuple(sorted(rows, key=_by_k))


def measurement_notes(candidates: Sequence[Candidate]) -> list[str]:
    """How far the baseline strayed from itself, and what was noticed during the measurements."""
    noise = [f"{one.name} {interval(one.report.noise)}" for one in candidates if one.report.noise]
    strayed = [f"Noise, the baseline against itself: {'; '.join(noise)}"] if noise else []
    return [*strayed, *dict.fromkeys(note for one in candidates for note in one.report.notes)]


def _by_k(row: TuneRow) -> float:
    k = row.setting.removeprefix("K=")
    return int(k) if k.isdecimal() else math.inf


def _rows(candidate: Candidate, aim: Aim) -> Iterator[TuneRow]:
    for point, speedup in candidate.speedups.items():
        row = candidate.row(point)
        yield TuneRow(
            candidate.name,
            *point,
            predicted=candidate.predicted.get(point),
            ratio=speedup.ratio,
            low=speedup.low,
            high=speedup.high,
            acceptance_length=row.acceptance_length if row else None,
            price_per_million_output_tokens=row.price_per_million_output_tokens if row else None,
            meets_slo=aim.met(row) if aim.slo else None,
            measurement=candidate.measurement,
        )


def evidence(candidate: Candidate, command: str) -> list[Evidence]:
    """What a command has measured of a candidate, for a recipe's `evidence`."""
    setting = candidate.report.setting
    return [
        Evidence(
            workload=workload,
            num_speculative_tokens=None if candidate.schedule else candidate.k,
            concurrency=concurrency,
            acceptance_length=_round(
                row.acceptance_length if (row := candidate.row((workload, concurrency))) else None
            ),
            speedup=round(speedup.ratio, 2),
            hardware=setting["hardware"],
            engine=setting["engine"],
            date=setting["date"],
            source=f"{command} {setting['toolkit']}: {interval(speedup)}",
        )
        for (workload, concurrency), speedup in candidate.speedups.items()
    ]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
