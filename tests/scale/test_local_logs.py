"""A log of 100,000 lines on this machine, with $TOOLKIT_SCALE of a million: memory that does not grow, a fast end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WHOLE = bool(os.environ.get("TOOLKIT_SCALE"))
LINES = 1_000_000 if WHOLE else 100_000
MOST_GROWTH_MB, MOST_SECONDS = 8.0, 0.05
PROGRAM = """
import pathlib, re, sys, time
from toolkit.platforms.local.log_store import StreamOnDisk
from moto.logs.models import LogGroup

def memory():
    return int(re.search(r"VmRSS:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024

stream = StreamOnDisk(LogGroup("123456789012", "us-west-2", "g"), "s", pathlib.Path(sys.argv[1]))
count, growth = int(sys.argv[2]), []
for begin in range(0, count, 10):
    if begin == count // 10:
        before = memory()
    stream.put_log_events([{"timestamp": n, "message": f"line {n} " + "x" * 60} for n in range(begin, begin + 10)])
print(memory() - before)
began = time.perf_counter()
page, *_ = stream.get_log_events(None, None, 1, None, False)
print(time.perf_counter() - began)
assert page[0]["message"].startswith(f"line {count - 1} ")
began = time.perf_counter()
page, *_ = stream.get_log_events(count - 5, None, None, None, True)
print(time.perf_counter() - began)
assert len(page) == 5
"""


def test_memory_does_not_grow_and_the_end_is_near(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(LINES)], capture_output=True, text=True, check=True
    )
    growth, tail, since = map(float, done.stdout.split())
    print(
        f"\n{LINES} lines: {growth:.1f} MB more, the last one in {tail * 1000:.1f} ms, a time in {since * 1000:.1f} ms"
    )
    assert growth < MOST_GROWTH_MB
    if WHOLE:
        assert max(tail, since) < MOST_SECONDS
