"""`toolkit bench` on real sockets and in real time: two servers, one drifting clock, the same speed or 1.5 times it.

Each answer takes about 0.7 s, as slow as the machine was when it came (sd 10 %, tau 6 s). RUNS measurements (12) of
SECONDS each (60) between two equal arms, and a quarter as many with one that is 1.5 times as fast. Prints each
interval; what must hold: at most one false verdict, the truth in 32 of 36 intervals, and 8 of 9 gains found.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drifting_machines import drifting
from streaming_process import process_of
from streaming_server import DONE, Answer, Served, document, event

RUNS = int(os.environ.get("RUNS", "12"))
SECONDS = int(os.environ.get("SECONDS", "60"))
LOADS = "1,4,16"
FASTER = 1.5
TOKEN = 0.01
TOOLKIT = Path(sys.executable).with_name("toolkit")


@pytest.mark.timeout(36000)
def test_intervals_hold_and_verdicts_are_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prompts.jsonl").write_text("".join(f'{{"prompt": "Question {n}"}}\n' for n in range(24)))
    held, false, found, intervals, gains = 0, 0, 0, 0, 0
    for run in range(RUNS + RUNS // 4):
        speed = FASTER if run >= RUNS else 1.0
        report = _measured(run, speed, tmp_path)
        for row in report["speedups"]:
            if speed == 1.0:
                intervals += 1
                held += row["low"] <= 1 <= row["high"]
            else:
                gains += 1
                found += row["low"] > 1
        pays = [item["holds"] for item in report["verdicts"] if item["claim"] == "pays"]
        false += speed == 1.0 and True in pays
        with capsys.disabled():
            shown = (
                f"c={row['concurrency']} {row['ratio']:.3f} ({row['low']:.3f}-{row['high']:.3f})"
                for row in report["speedups"]
            )
            print(
                f"\n{speed}x, run {run}: {', '.join(shown)}; pays {pays}; load {os.getloadavg()[0]:.1f}",
                end="",
                flush=True,
            )
    with capsys.disabled():
        print(
            f"\n{held} of {intervals} intervals hold the truth, {false} false verdicts, {found} of {gains} gains found"
        )
    assert false <= 1
    assert held >= math.floor(intervals * 32 / 36)
    assert found >= math.floor(gains * 8 / 9)


def _measured(seed: int, speed: float, folder: Path) -> Any:
    began = time.time()
    with (
        process_of(partial(_answer, seed, began, 1.0)) as (baseline, _),
        process_of(partial(_answer, seed, began, speed)) as (arm, _),
    ):
        command = [TOOLKIT, "bench", arm, "--baseline", baseline, "--prompts", folder / "prompts.jsonl"]
        options = ["--concurrency", LOADS, "--time", f"{SECONDS}s", "--seed", seed, "--json"]
        environment = {**os.environ, "TOOLKIT_HOME": str(folder)}
        done = subprocess.run(
            [*map(str, (*command, *options))], env=environment, capture_output=True, text=True, check=False
        )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def _answer(seed: int, began: float, speed: float, request: Served) -> Answer:
    """A token at a time; of the same prompt always the same, in number too."""
    if request.path == "/v1/models":
        return document({"object": "list", "data": [{"id": "tiny", "object": "model"}]})
    if not request.body:
        return document({}, status=404)
    question = request.body["messages"][-1]["content"].rpartition("Question")[2]  # what comes before is never the same
    tokens = random.Random(question).randint(50, 90)
    stray = math.exp(random.gauss(-0.005, 0.1))
    pause = TOKEN / speed * _clock(seed)(time.time() - began) * stray
    chunks = [event(pause, _chunk({"content": f"word{number} "}, [number])) for number in range(tokens - 1)]
    last = _chunk({"content": "end"}, [tokens], finish="stop")
    usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": tokens + 9}
    return Answer([*chunks, event(pause, last, {"choices": [], "usage": usage}), DONE])


_CLOCKS: dict[int, Any] = {}


def _clock(seed: int) -> Any:
    return _CLOCKS.setdefault(seed, drifting(seed, 0.1, 6))


def _chunk(delta: Mapping[str, str], ids: list[int], finish: str | None = None) -> Mapping[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "token_ids": ids, "finish_reason": finish}]}
