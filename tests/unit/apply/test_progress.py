"""Progress in plain lines, as a log or a notebook shows it."""

from __future__ import annotations

import io
import os
import pty
import sys
from contextlib import suppress

import pytest
from fakes import FakeClock
from rich.console import Console

from toolkit.apply.progress import NotebookProgress, PlainProgress, TerminalProgress, default_progress


def shown(*updates: tuple[float, str]) -> list[str]:
    """What is written when these texts are given, each after so many seconds."""
    written: list[str] = []
    clock = FakeClock()
    progress = PlainProgress(lambda text: written.append(text.strip()), clock)
    for seconds, text in updates:
        clock.sleep(seconds)
        progress.update(text)
    return written


def test_what_changes_is_written() -> None:
    assert shown((0, "starting"), (1, "loading")) == ["starting", "loading"]


def test_what_stays_the_same_is_written_once() -> None:
    assert shown((0, "starting"), (100, "starting")) == ["starting"]


def test_where_only_numbers_move_a_line_a_minute_is_enough() -> None:
    moving = [(5.0, f"loading 0:{second:02d} (1/9 shards)") for second in range(5, 60, 5)]
    assert shown(*moving, (5.0, "loading 1:00 (2/9 shards)"), (60.0, "loading 2:00 (3/9 shards)")) == [
        "loading 0:05 (1/9 shards)",
        "loading 2:00 (3/9 shards)",
    ]


def test_arms_that_are_measured_by_turns_are_a_line_a_minute_each() -> None:
    turns = [(1.0, f"{arm}: {number} requests") for number in range(1, 21) for arm in ("speculative", "baseline")]
    assert shown(*turns) == ["speculative: 1 requests", "baseline: 1 requests"]


def test_a_stage_tells_its_time_when_it_is_over() -> None:
    written: list[str] = []
    clock = FakeClock()
    with PlainProgress(written.append, clock).stage("wait"):
        clock.sleep(2.5)
    assert written == ["[   2.5 s] wait\n"]


@pytest.mark.parametrize(("no_color", "coloured"), [("1", False), ("", True)])
def test_a_terminal_has_no_colours_where_the_user_wants_none(
    monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = io.StringIO()
    with TerminalProgress(Console(file=terminal, force_terminal=True)).stage("wait"):
        pass
    assert ("\x1b[32m" in terminal.getvalue()) is coloured


@pytest.mark.parametrize(("error", "mark"), [(None, "✔ wait"), (RuntimeError, "✘ wait")])
def test_a_terminal_keeps_a_line_of_how_a_stage_ended(error: type[Exception] | None, mark: str) -> None:
    terminal = io.StringIO()
    with suppress(RuntimeError), TerminalProgress(Console(file=terminal)).stage("wait"):
        if error:
            raise error
    assert terminal.getvalue().strip().startswith(mark)


def test_a_notebook_has_one_box_that_is_brought_up_to_date() -> None:
    boxes: list[str] = []
    clock = FakeClock()
    progress = NotebookProgress(boxes.append, clock)
    for number in range(10):
        with progress.stage(f"step {number}"):
            clock.sleep(1)
    with suppress(RuntimeError), progress.stage("wait"):
        clock.sleep(1)
        progress.update("<starting> 0:01", "a log line")
        assert "&lt;starting&gt; 0:01" in boxes[-1]
        assert "a log line" in boxes[-1]
        raise RuntimeError
    folded, _, shown = boxes[-1].partition("</details>")
    assert "3 steps before" in folded
    assert "step 2" in folded
    assert "step 3" in shown
    assert "✘</span> wait" in shown
    assert "a log line" not in shown


def test_a_notebook_is_not_redrawn_for_each_of_many_updates() -> None:
    boxes: list[str] = []
    clock = FakeClock()
    progress = NotebookProgress(boxes.append, clock)
    with progress.stage("measure"):
        for number in range(100):
            clock.sleep(0.01)
            progress.update(str(number))
    assert 2 <= len(boxes) <= 10


def test_work_goes_on_when_its_terminal_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    went_on = False
    with suppress(OSError), os.fdopen(theirs, "w") as terminal:  # nor can what was left be written at the end
        monkeypatch.setattr(sys, "stderr", terminal)
        progress = default_progress()
        os.close(ours)
        with progress.stage("wait"):
            progress.say("half")
        went_on = isinstance(progress, TerminalProgress)
    assert went_on
