"""A measurement of 6,000 results, with $TOOLKIT_SCALE a million: what they take, held and summarised.

Answers differ in all of their 60 tokens. The sample keeps as small a share of them whole as a million do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WHOLE = bool(os.environ.get("TOOLKIT_SCALE"))
RESULTS, KEPT_WHOLE = (1_000_000, 20_000) if WHOLE else (6_000, 120)
# In the sample what all results share, as the numbers of the vocabulary, is a third of it.
MOST_KILOBYTES_EACH, MOST_KILOBYTES_AT_PEAK = (0.8, 1.6) if WHOLE else (1.3, 2.2)
FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
PROGRAM = """
import json, pathlib, re, sys
from dataclasses import replace
from types import SimpleNamespace
count, whole, *folders = sys.argv[1:]
sys.path[:0] = folders
from test_bench_resume import result
from toolkit.measure.journal import Same
from toolkit.measure.summary import summarise
from toolkit.measure.thinning import Thinned

def memory(key):
    return int(re.search(key + r":\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

same, kept, count = Same(), Thinned(int(whole)), int(count)
for number in range(1000):  # loads what it takes
    kept.add([same.share(replace(result(number), arm="base"))])
kept, before = Thinned(int(whole)), memory("VmRSS")
for number in range(count):
    arm = "speculative" if number % 2 else "base"
    kept.add([same.share(replace(result(number // 2), arm=arm, block=number // 8))])
held = memory("VmRSS") - before
arms = [SimpleNamespace(name=name, price_per_hour=None) for name in ("speculative", "base")]
found = summarise(kept.results, arms[:1], arms[1])
print(json.dumps({"held": held / count, "peak": (memory("VmHWM") - before) / count, "rows": len(found.arms)}))
"""


@pytest.mark.timeout(7200)
def test_a_result_takes_little_memory() -> None:
    command = [sys.executable, "-c", PROGRAM, str(RESULTS), str(KEPT_WHOLE), *FOLDERS]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    print(f"\n{RESULTS} results: {found['held']:.2f} kB each, {found['peak']:.2f} kB each at the peak of the summary")
    assert found["rows"] == 2
    assert found["held"] < MOST_KILOBYTES_EACH
    assert found["peak"] < MOST_KILOBYTES_AT_PEAK
