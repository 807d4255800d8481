"""A start of the tiny pair with what an earlier one has compiled, and without: seconds of CPU, as machines are busy.

Prints, asserts nothing about time. No figure of a GPU.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from warm_programs import LONGEST_SECONDS, STARTED, Program, forget


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start(folder: Path, artifacts: Path, key: str) -> float:
    before = children_seconds()
    program = Program("serve", folder, artifacts, key)
    try:
        assert STARTED in program.log_with(STARTED), program.log
    finally:
        program.end()
    return children_seconds() - before


def test_a_warm_start_beside_a_cold_one(tmp_path: Path) -> None:
    key = os.urandom(6).hex()
    artifacts = tmp_path / "artifacts"
    cold = start(tmp_path / "cold", artifacts, key)
    program = Program("compile", tmp_path / "job", artifacts, key)
    assert program.process.wait(LONGEST_SECONDS) == 0, program.log
    warm = start(tmp_path / "warm", artifacts, key)
    forget(key)
    size = sum(file.stat().st_size for file in artifacts.rglob("*") if file.is_file())
    print(f"\nstart until vLLM serves: cold {cold:.0f} s of CPU, warm {warm:.0f} s ({warm / cold:.2f} of it)")
    print(f"what is kept: {size / 1e6:.1f} MB")
