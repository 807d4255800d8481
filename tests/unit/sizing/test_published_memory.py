"""The KV cache memory that is predicted, against published start-up logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import models
import pytest

from toolkit.engines.vllm.memory import uncertainty, workspace
from toolkit.engines.vllm.settings import Settings, sampler_bytes_per_logit
from toolkit.sizing.fit import GIB
from toolkit.sizing.shape import shape_of

LOGS = json.loads(Path(__file__).with_name("published_memory.json").read_text(encoding="utf-8"))["logs"]
# With two GPUs, the sampler of that log took less than half of what the same model took on one.
OUTSIDE = {"Qwen3-32B, two GPUs"}


def predicted_workspace(log: Mapping[str, Any]) -> int:
    settings = Settings(
        None,
        log["max_num_seqs"],
        log["max_num_batched_tokens"],
        0,
        enforce_eager=log["eager"],
        sampler_bytes_per_logit=sampler_bytes_per_logit(log["version"]),
        graphs_counted=tuple(map(int, log["version"].split("."))) >= (0, 21),
    )
    shape = shape_of(models.facts(getattr(models, log["config"])))
    return workspace(shape, None, settings, dtype_bytes=2, tensor_parallel=log["tensor_parallel"], on_cpu=False).total


def off_by(log: Mapping[str, Any]) -> float:
    """GiB by which the predicted KV cache differs from the logged one."""
    left = log["memory"] * log["utilization"] - log["weights"] - predicted_workspace(log) / GIB
    return float(abs(left - log["kv_cache"]))


def test_the_median_error_is_small() -> None:
    assert median(off_by(log) / abs(log["kv_cache"]) for log in LOGS) <= 0.08


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log['model']} {log['version']}")
def test_each_log_is_within_the_uncertainty(log: Mapping[str, Any]) -> None:
    within = off_by(log) <= uncertainty(predicted_workspace(log)) / GIB
    assert within is (log["model"] not in OUTSIDE)


def test_every_log_has_a_source() -> None:
    assert all(log["source"] for log in LOGS)
