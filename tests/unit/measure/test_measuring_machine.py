"""Notes on a machine that has no time to measure."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from toolkit.measure.running import Machine


def notes(machine: Machine, work: Callable[[], object]) -> list[str]:
    async def watch() -> None:
        async with machine.watched():
            await asyncio.sleep(0.06)
            work()
            await asyncio.sleep(0.06)

    asyncio.run(watch())
    return list(machine.notes())


def statistics(file: Path, throttled_seconds: float) -> Path:
    file.write_text(f"usage_usec 5000\nnr_throttled 3\nthrottled_usec {throttled_seconds * 1e6:.0f}\n")
    return file


def test_other_processes_that_want_the_cpus_are_noted() -> None:
    (note, *_) = notes(Machine(load=1000.0), lambda: None)
    assert note == f"this machine was busy before: a load of 1000.0 on {os.cpu_count()} CPUs"


def test_a_loop_that_comes_late_is_noted() -> None:
    (note,) = notes(Machine(load=0), lambda: time.sleep(0.2))
    assert "the measuring process was up to" in note


def test_a_throttled_container_is_noted(tmp_path: Path) -> None:
    file = statistics(tmp_path / "cpu.stat", 1)
    assert any("throttled for 4.0 of 0 s" in note for note in notes(Machine(0, file), lambda: statistics(file, 5)))


@pytest.mark.parametrize("content", [None, "", "throttled_usec many", b"\xff"])
def test_without_such_statistics_nothing_is_noted(tmp_path: Path, content: str | bytes | None) -> None:
    file = tmp_path / "cpu.stat"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert not any("throttled" in note for note in notes(Machine(0, file), lambda: None))
