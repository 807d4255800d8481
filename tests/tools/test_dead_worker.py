"""Of the processes that run the tests one may die: that is one failed test, and all others are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
PASSES = "def test_{}() -> None: ...\n"
DIES = "def test_2() -> None: __import__('os')._exit(9)\n"


def test_a_process_that_dies_leaves_no_test_undone(tmp_path: Path) -> None:
    """Much has passed before, which must not be given out again."""
    for number in range(40):
        tests = [DIES if (number, test) == (25, 2) else PASSES.format(test) for test in range(4)]
        (tmp_path / f"test_{number:02}.py").write_text("".join(tests))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    options = ["-q", "-p", "conftest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", tmp_path],
        env={**environment, "PYTHONPATH": str(TESTS)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert "1 failed, 159 passed" in ended.stdout, ended.stdout + ended.stderr
