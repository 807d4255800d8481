"""Reports of an engine whose steps and prompts take a known time, so that what is read of them is known too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from toolkit.measure.measurement import ArmReport, Percentiles
from toolkit.measure.report import BenchReport

ACCEPTED = (0.8, 0.64, 0.5, 0.4, 0.3, 0.2, 0.1)
PROMPT, ANSWER, READING = 800, 201, 0.04
LOADS = (1, 4, 16, 64)


def step(k: int, requests: int, slower: float = 1.0) -> float:
    """Seconds of a step without prompts."""
    return slower * (0.01 + 0.0005 * requests + 0.0006 * k + 0.00005 * k * requests)


def length(k: int) -> float:
    return 1 + sum(ACCEPTED[:k])


def report(
    instance: str = "ml.g7e.2xlarge",
    k: int = 7,
    *,
    loads: Sequence[int] = LOADS,
    slower: float = 1.0,
    workloads: Sequence[str] = ("chat",),
    method: str = "p-eagle",
) -> BenchReport:
    """What `bench` reports of the recipe and its baseline on an instance type; empty: on this machine."""
    arms = [
        _arm(name, workload, drafted, load, slower)
        for workload in workloads
        for name, drafted in (("baseline", 0), ("speculative", k))
        for load in loads
    ]
    setting = {"engine": "vllm 0.32.0", "speculation": f"{method} K={k}", "date": "2026-11-26"}
    return BenchReport("toy", (), tuple(arms), setting=setting | ({"instance types": instance} if instance else {}))


def write_report(path: Path, report: BenchReport) -> str:
    path.write_text(json.dumps(report.to_dict()))
    return str(path)


def _arm(name: str, workload: str, k: int, load: int, slower: float) -> ArmReport:
    alone, steps = step(k, load, slower), (ANSWER - 1) / length(k)
    tpot = (alone + (load - 1) * READING / steps) / length(k)
    ttft = step(k, load, slower) + READING

    def times(median: float) -> Percentiles:
        return Percentiles(median, median * 1.2, None, 48)

    return ArmReport(
        arm=name,
        workload=workload,
        concurrency=load,
        requests=48,
        failed=0,
        incomplete=0,
        ttft=times(ttft),
        itl=None,
        tpot=times(tpot),
        e2e=times(ttft + (ANSWER - 1) * tpot),
        output_tokens_per_second=load / tpot,
        acceptance_length=length(k) if k else None,
        acceptance_per_position=ACCEPTED[:k],
        prompt_tokens=float(PROMPT),
        answer_tokens=float(ANSWER),
    )
