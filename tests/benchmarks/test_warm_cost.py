"""A start of the tiny pair with what an earlier one compiled, beside that one: seconds of CPU, as machines are busy.

Prints, asserts nothing about time. No figure of a GPU.
"""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

from warm_programs import LONGEST_SECONDS, STARTED, Program, forget


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_warm_start_beside_the_one_that_compiled(tmp_path: Path) -> None:
    key, artifacts = os.urandom(6).hex(), tmp_path / "artifacts"
    before = children_seconds()
    program = Program("compile", tmp_path / "job", artifacts, key)
    assert program.process.wait(LONGEST_SECONDS) == 0, program.log
    program.end()
    shutil.rmtree(tmp_path / "job")  # a job is gone with its models
    cold = children_seconds() - before

    program = Program("serve", tmp_path / "endpoint", artifacts, key)
    try:
        assert STARTED in program.log_with(STARTED), program.log
    finally:
        program.end()
    warm = children_seconds() - before - cold
    forget(key)

    size = sum(file.stat().st_size for file in artifacts.rglob("*") if file.is_file())
    print(f"\ntoolkit compile's start: {cold:.0f} s of CPU, with its first generation")
    print(f"a start with what that has compiled ({size / 1e6:.1f} MB): {warm:.0f} s ({warm / cold:.2f} of it)")
