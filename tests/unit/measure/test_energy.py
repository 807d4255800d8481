"""Joules per output token: NVML's counters are read around each block, by the genuine binding."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from nvml import nvml

from toolkit.cli.report_text import report_text
from toolkit.measure.arm import Arm, count_energy
from toolkit.measure.report import BenchReport
from toolkit.measure.result import RequestResult
from toolkit.measure.summary import summarise

READ = "from toolkit.platforms.local.platform import gpu_energy as e; r = e(); print(r and [r(), r()])"


class Meter:
    """What a machine has used, in the order in which it is read."""

    def __init__(self, *joules: float | None) -> None:
        self.joules = list(joules)

    def __call__(self) -> float | None:
        return self.joules.pop(0)


def answer(tokens: int, arm: str = "a", number: int = 0) -> RequestResult:
    return RequestResult(arm, "w", number, 0, 2, 0.0, 1.0, "successful", output_tokens=tokens)


def counted(meter: Meter, *results: RequestResult) -> list[RequestResult]:
    async def block() -> list[RequestResult]:
        assert len(meter.joules) == 1, "it was read before"
        return list(results)

    return asyncio.run(count_energy(meter, block()))


@pytest.mark.parametrize(("code", "read"), [(0, "[24.5, 30.5]"), (3, "None")], ids=["two GPUs", "not supported"])
def test_the_counters_of_all_gpus_are_joules(tmp_path: Path, code: int, read: str) -> None:
    environment = {**os.environ, **nvml(tmp_path, code)}
    done = subprocess.run([sys.executable, "-c", READ], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == read


def test_requests_of_a_block_share_its_energy_by_their_tokens() -> None:
    results = counted(Meter(1000.0, 1080.0), answer(10), answer(30), answer(0))
    assert [item.joules for item in results] == [20.0, 60.0, 0.0]


def test_a_block_without_tokens_has_no_energy_to_share() -> None:
    assert counted(Meter(1000.0, 1080.0), answer(0))[0].joules is None


def test_a_gpu_that_no_longer_answers_costs_no_measurement() -> None:
    assert counted(Meter(1000.0, None), answer(10))[0].joules is None


def test_a_report_has_the_joules_per_token_of_each_arm() -> None:
    arms = [Arm("a", None), Arm("b", None)]  # type: ignore[arg-type]
    results = [
        *counted(Meter(0.0, 80.0), answer(10), answer(30, number=1)),
        *counted(Meter(0.0, 20.0), answer(40, "b")),
    ]
    rows = summarise(results, arms).arms
    assert [row.joules_per_output_token for row in rows] == [2.0, 0.5]
    shown = report_text(BenchReport("t", (), rows))
    assert "J/token" in shown
    assert "what all GPUs of this machine used" in shown


def test_without_a_meter_nothing_is_said_of_energy() -> None:
    (row,) = summarise([answer(10)], [Arm("a", None)]).arms  # type: ignore[arg-type]
    assert row.joules_per_output_token is None
    assert "J/token" not in report_text(BenchReport("t", (), (row,)))
