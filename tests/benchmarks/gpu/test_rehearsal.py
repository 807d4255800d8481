"""The GPU script, rehearsed on this CPU: every table is filled, whatever the figures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("run.py")
TWO_DIGITS = r"\d+\.\d\d"
INTERVAL = rf"{TWO_DIGITS} \({TWO_DIGITS}-{TWO_DIGITS}\)"


@pytest.mark.serving
@pytest.mark.timeout(2400)
def test_all_parts_run_where_there_is_no_gpu(tmp_path: Path) -> None:
    out = tmp_path / "results.md"
    command = [sys.executable, str(SCRIPT), "--rehearse", "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == out.read_text().strip()
    assert ended.stdout.startswith("REHEARSAL on a CPU: no figure below means anything. ")
    for pattern in (
        r"\| 1 \| skipped: batch invariance is for GPUs",
        r"\| 0 \| (yes|not shown) \| \d+%",
        rf"\| the same \| (yes|not shown) \| 1 \| {INTERVAL} \| not shown \|",
        rf"\| another dtype \| NO \| 1 \| {INTERVAL} \|",
        rf"\| tiny \| rehearsal \| 1 \| {INTERVAL} \| {INTERVAL} \| {INTERVAL} \| +\|",
        rf"\| tiny \| eagle3 K=3 at 2\.00 \| 1 \| ({TWO_DIGITS}|none) \|",
        rf"\| tiny \| 3 \| 2\.81 \| 2 \| {INTERVAL} \|",
    ):
        assert re.search(pattern, ended.stdout), f"{pattern} in\n{ended.stdout}"
