"""What the toolkit itself costs: whole processes, medians, in milliseconds. Prints, asserts nothing about time."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUNS = 9
TOOLKIT = str(Path(sys.executable).with_name("toolkit"))
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import toolkit": [sys.executable, "-c", "import toolkit"],
    "import toolkit; toolkit.load": [sys.executable, "-c", "import toolkit; toolkit.load"],
    "toolkit --help": [TOOLKIT, "--help"],
    "toolkit check tiny/p-eagle": [TOOLKIT, "check", "tiny/p-eagle"],
    "toolkit plan tiny/p-eagle": [TOOLKIT, "plan", "tiny/p-eagle"],
}


def test_whole_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {**os.environ, "TOOLKIT_HOME": str(tmp_path)}
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for run in range(RUNS + 1):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            if run:  # the first warms the disk cache
                times[name].append((time.perf_counter() - started) * 1000)
    with capsys.disabled():
        print()
        for name, runs in times.items():
            ratio = statistics.median(runs) / statistics.median(times["python -c pass"])
            spread = f"({min(runs):.0f} to {max(runs):.0f})"
            print(f"{name:32} {statistics.median(runs):6.0f} ms  {ratio:5.1f} x python  {spread}")
