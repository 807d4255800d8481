"""How far a training job is, as lines that both a job's log and `progress.jsonl` have."""

from __future__ import annotations

import json
import sys
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
    `held_out` of the held-out data. `seconds_left` is an estimate of the stage.
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

    def text(self) -> str:
        """For people: `train 120/800, loss 1.31, right at depth 1-3: 81 % 70 % 62 %, 4 min left`."""
        parts = [f"{self.stage} {self.done}/{self.total}"]
        if self.loss is not None:
            parts.append(f"{'held-out ' if self.held_out else ''}loss {self.loss:.3f}")
        if self.accuracy:
            shares = " ".join(f"{share:.0%}" for share in self.accuracy)
            parts.append(f"right by depth {shares}")
        if self.seconds_left is not None:
            parts.append(f"{self.seconds_left / 60:.0f} min left")
        return ", ".join(parts)


def report(progress: TrainingProgress, folder: Path, stream: TextIO | None = None) -> None:
    """Write the line to the log, and add it to `progress.jsonl` of the folder, where it outlasts the log."""
    defaults = asdict(TrainingProgress(progress.stage, -1, -1))
    line = json.dumps(
        {key: value for key, value in asdict(progress).items() if value != defaults[key] or key == "stage"}
    )
    print(PREFIX + line, file=stream or sys.stdout, flush=True)
    with (folder / FILE).open("a") as file:
        file.write(line + "\n")


def forget_after(folder: Path, stage: Stage, done: int) -> None:
    """Take from `progress.jsonl` what that stage reported after `done`: it is done again, from a checkpoint."""
    path = folder / FILE
    if path.exists():
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if not _after(parse(PREFIX + line), stage, done)]
        write_whole(path, "".join(kept))


def _after(progress: TrainingProgress | None, stage: Stage, done: int) -> bool:
    """Also of a line that was cut off."""
    return progress is None or (progress.stage == stage and progress.done > done)


def parse(line: str) -> TrainingProgress | None:
    """The progress that a line of a log reports; None for any other line."""
    if not line.startswith(PREFIX):
        return None
    try:
        return documents.parse(TrainingProgress, line.removeprefix(PREFIX))
    except documents.Unfit:
        return None
