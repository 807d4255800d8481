"""`explain` of a log of any size, with its cause in the first MB: read once, in bounded memory.

Four MB always; 50 MB and a GB with $TOOLKIT_SCALE. Time is printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

WHOLE = bool(os.environ.get("TOOLKIT_SCALE"))
MOST_MEGABYTES = 80.0
DISK = "OSError: [Errno 28] No space left on device"
LINES = (
    "INFO 11-25 10:00:00 [loggers.py:257] Engine 000: Avg prompt throughput: {}.4 tokens/s, Running: 1 reqs",
    'INFO:     127.0.0.1:{} - "POST /v1/completions HTTP/1.1" 200 OK',
    "request {} has a prompt of 117 tokens and asks for 45 more",
)
EXPLAIN = """
import pathlib, re, sys
from toolkit.cli.main import run
assert run(["explain", sys.argv[1], "--json"]) == 0
print(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1], file=sys.stderr)
"""
ORDINARY = "".join(f"{line.format(number)}\n" for number in range(2_000) for line in LINES).encode()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("megabytes", [2, 50, 1000] if WHOLE else [4])
def test_the_cause_is_found_and_memory_does_not_grow(tmp_path: Path, megabytes: int) -> None:
    path = tmp_path / "container.log"
    with path.open("wb") as log:
        log.write(ORDINARY + DISK.encode() + b"\n")
        while log.tell() < megabytes * 1e6:
            log.write(ORDINARY)
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", EXPLAIN, str(path)], capture_output=True, check=True)
    seconds = time.perf_counter() - began
    peak = int(done.stderr) / 1024
    print(f"\n{megabytes} MB: {seconds:.1f} s, at most {peak:.0f} MB of memory")
    document = json.loads(done.stdout)
    assert (document["cause"], document["evidence"]) == ("disk-full", [DISK])
    assert peak < MOST_MEGABYTES
