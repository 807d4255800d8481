"""How far a training job is, as lines that both a job's log and `progress.jsonl` have."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TextIO

from toolkit import documents
from toolkit.files import write_whole

FILE = "progress.jsonl"
PREFIX = "train: "

Stage = Literal["data", "states", "train", "evaluate", "head"]


@dataclass(frozen=True)
class TrainingProgress:
    """`done` of `total` of a stage: conversations, samples or optimizer steps.

    `loss` and `accuracy` (by depth, share of drafts that are right up to there) are those of the training data, or with
    `held_out` of the held-out data. `seconds_left` is an estimate of the stage; `stops_at` of the step after which
    the job's time is up, None if it suffices.
    """

    __pydantic_config__ = documents.NO_OTHER_KEYS

    stage: Stage
    done: int
    total: int
    loss: float | None = None
    accuracy: tuple[float, ...] = ()
    held_out: bool = False
    seconds_left: float | None = None
    tokens_per_second: float | None = None
    stops_at: int | None = None

    def text(self) -> str:
        """For people: `train 120/800, 4 min left, loss 1.312, right by depth 81% 70% 62%`."""
        shares = " ".join(f"{share:.0%}" for share in self.accuracy)
        return f"{self.brief()}, right by depth {shares}" if shares else self.brief()

    def brief(self) -> str:
        """The same without the accuracy."""
        parts = [f"{self.stage} {self.done}/{self.total}"]
        if self.stops_at is not None:
            parts.append(f"max_hours will be over near step {self.stops_at}: raise it, or lower steps")
        elif self.seconds_left:
            minutes = self.seconds_left / 60
            parts.append(f"{minutes:.0f} min left" if minutes >= 1 else f"{self.seconds_left:.0f} s left")
        if self.loss is not None:
            parts.append(f"{'held-out ' if self.held_out else ''}loss {self.loss:.3f}")
        return ", ".join(parts)


Report = Callable[[TrainingProgress], None]


def report(progress: TrainingProgress, folder: Path, stream: TextIO | None = None) -> None:
    """Write the line to the log, and add it to `progress.jsonl` of the folder, where it outlasts the log."""
    defaults = asdict(TrainingProgress(progress.stage, -1, -1))
    line = json.dumps(
        {key: value for key, value in asdict(progress).items() if value != defaults[key] or key == "stage"}
    )
    print(PREFIX + line, file=stream or sys.stdout, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("a") as file:
        file.write(line + "\n")


def forget_after(folder: Path, stage: Stage, done: int) -> None:
    """Take from `progress.jsonl` what that stage reported after `done`: it is done again, from a checkpoint."""
    path = folder / FILE
    if path.exists():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        told = [(line, parse(PREFIX + line)) for line in lines]  # None of a line that was cut off
        kept = [line for line, one in told if one and not (one.stage == stage and one.done > done)]
        write_whole(path, "".join(kept))


def parse(line: str) -> TrainingProgress | None:
    """The progress that a line of a log reports; None for any other line."""
    if not line.startswith(PREFIX):
        return None
    try:
        return documents.parse(TrainingProgress, line.removeprefix(PREFIX))
    except documents.Unfit:
        return None
