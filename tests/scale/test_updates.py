"""Eight updates of one endpoint, with $TOOLKIT_SCALE a thousand: what the next one costs, and what they leave.

One every two hours, for AWS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median

import pytest
from crowd import write_recipes
from standin import StandIn
from standin_ages import pass_days
from standin_user import User

WHOLE = bool(os.environ.get("TOOLKIT_SCALE"))
UPDATES = 1000 if WHOLE else 8
TOLD_EVERY, HOURS_BETWEEN = 100, 2
MOST_REQUESTS, MOST_GROWTH_MB, MOST_RECORD_MB = 85, 40.0, 8.5
UPDATE = """
import json, pathlib, re, sys, time
import toolkit
from toolkit.apply.progress import Silent

recipe = pathlib.Path(sys.argv[1])
text = recipe.read_text()
for number, _ in enumerate(sys.stdin):
    recipe.write_text(text.replace("max_model_len: 1024", f"max_model_len: {1023 - number % 500}"))
    began = time.perf_counter()
    toolkit.deploy(recipe, progress=Silent())
    status = pathlib.Path("/proc/self/status").read_text()
    memory = int(re.search(r"VmRSS:\\s+(\\d+)", status)[1]) / 1024
    print(json.dumps({"seconds": time.perf_counter() - began, "memory": memory}), flush=True)
"""


@pytest.mark.timeout(7200)
def test_an_update_costs_what_the_one_before_did(
    standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLKIT_POLL_SECONDS", "0.01")
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    User(standin)
    (recipe,) = write_recipes(tmp_path, ["chat"])
    before, requests, seconds, memory = set(standin.leftovers()), list[int](), list[float](), list[float]()
    command = [sys.executable, "-c", UPDATE, str(recipe)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as updating:
        assert updating.stdin
        assert updating.stdout
        for number in range(1, UPDATES + 1):
            pass_days(HOURS_BETWEEN / 24)
            standin.calls.clear()
            print(file=updating.stdin, flush=True)
            took = json.loads(updating.stdout.readline())
            requests.append(len(standin.calls))
            seconds.append(took["seconds"])
            memory.append(took["memory"])
            if number % TOLD_EVERY == 0:
                last = slice(-TOLD_EVERY, None)
                cost = f"{median(requests[last])} requests, {median(seconds[last]):.2f} s, {memory[-1]:.0f} MB"
                print(f"update {number}: {cost}", flush=True)
        updating.stdin.close()
    left = Counter(item.split()[0] + " " + item.split()[1] for item in standin.leftovers() if item not in before)
    files = sum(path.stat().st_size for path in (tmp_path / "home").rglob("*") if path.is_file()) / 1e6
    tenth = max(3, UPDATES // 10)
    print(f"\n{UPDATES} updates: {median(requests[1:tenth])} requests at first, {median(requests[-tenth:])} at the end")
    print(
        f"{median(seconds[1:tenth]):.2f} s and {median(seconds[-tenth:]):.2f} s; {memory[2]:.0f} to {memory[-1]:.0f} MB"
    )
    print(f"left: {dict(left)}; {files:.2f} MB in ~/.toolkit")
    assert max(requests[-tenth:]) <= max(requests[2:tenth] or requests[1:2]) <= MOST_REQUESTS
    assert left["sagemaker model"] <= 2
    assert left["sagemaker endpoint-config"] <= 2
    assert max(left.values()) <= 12
    assert files < MOST_RECORD_MB
    assert memory[-1] - memory[tenth] < MOST_GROWTH_MB
