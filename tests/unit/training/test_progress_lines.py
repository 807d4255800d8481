"""A job's progress lines: written, read again, and shown to people."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from toolkit.training.progress import TrainingProgress, parse, report


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (TrainingProgress("data", 0, 2964), "data 0/2964"),
        (
            TrainingProgress("train", 120, 800, loss=1.3125, accuracy=(0.81, 0.7), seconds_left=240),
            "train 120/800, 4 min left, loss 1.312, right by depth 81% 70%",
        ),
        (TrainingProgress("evaluate", 5, 5, loss=0.0, held_out=True), "evaluate 5/5, held-out loss 0.000"),
    ],
)
def test_a_line_is_read_as_it_was_written(progress: TrainingProgress, text: str, tmp_path: Path) -> None:
    stream = io.StringIO()
    report(progress, tmp_path, stream)
    assert parse(stream.getvalue()) == progress
    assert progress.text() == text


@pytest.mark.parametrize("line", ["starts", "train: ", "train: {", 'train: {"stage": "dance", "done": 1, "total": 2}'])
def test_other_lines_of_a_log_are_no_progress(line: str) -> None:
    assert parse(line) is None
