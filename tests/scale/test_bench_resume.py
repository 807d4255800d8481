"""`bench --resume` of 3,000 results, with $TOOLKIT_SCALE of 100,000: what a result takes of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.endpoint.generation import Acceptance, Arrival
from toolkit.measure.journal import Journal
from toolkit.measure.result import RequestResult

WHOLE = bool(os.environ.get("TOOLKIT_SCALE"))
RESULTS = 100_000 if WHOLE else 3_000
PROMPTS, PROMPT_TOKENS, ARRIVALS = 200, 500, 30
MOST_KILOBYTES_EACH, MOST_MEGABYTES = 2.0, 200.0
RESUME = """
import json, pathlib, re, sys
from toolkit.measure.journal import Journal

def memory(key):
    return int(re.search(key + r":\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

Journal(pathlib.Path(sys.argv[2]), {}).results()  # loads what reading takes
before = memory("VmRSS")
found = Journal(pathlib.Path(sys.argv[1]), {}).results()
each = (memory("VmRSS") - before) / len(found)
print(json.dumps({"count": len(found), "each": each, "peak": memory("VmHWM") / 1024}))
"""


def result(number: int) -> RequestResult:
    """Answers that differ in all of their 60 tokens, in text and in times."""
    prompt = number % PROMPTS
    return RequestResult(
        "speculative",
        "chat",
        prompt,
        number // PROMPTS,
        4.0,
        number / 10,
        1.5,
        "successful",
        arrivals=tuple(Arrival(number / 1e6 + n / 40, 2) for n in range(ARRIVALS)),
        prompt_tokens=PROMPT_TOKENS,
        output_tokens=2 * ARRIVALS,
        finish_reason="stop",
        acceptance=Acceptance((number % 7, 10, 5)),
        prompt_token_ids=tuple(prompt * 300 + n for n in range(PROMPT_TOKENS)),
        token_ids=tuple((number * 31 + n * 17) % 150_000 for n in range(2 * ARRIVALS)),
        text=f"{number} is a number " * 12,
    )


@pytest.mark.timeout(1800)
def test_results_take_little_memory(tmp_path: Path) -> None:
    path, small = tmp_path / "run.jsonl", tmp_path / "small.jsonl"
    Journal(small, {}).add([result(0)])
    journal = Journal(path, {})
    for first in range(0, RESULTS, 500):
        journal.add([result(number) for number in range(first, first + 500)])
    done = subprocess.run([sys.executable, "-c", RESUME, str(path), str(small)], capture_output=True, check=True)
    found = json.loads(done.stdout)
    size = path.stat().st_size / 1e6
    print(f"\n{RESULTS} results: {found['each']:.2f} kB each, {found['peak']:.0f} MB at most, {size:.0f} MB on disk")
    assert found["count"] == RESULTS
    if WHOLE:
        assert found["peak"] < MOST_MEGABYTES
    else:  # most of it are the 60,000 numbers of prompts, of which there are no more in a longer file
        assert found["each"] < 3 * MOST_KILOBYTES_EACH
