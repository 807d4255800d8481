"""The energy that this machine's NVIDIA GPUs have used, by NVML's counters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from toolkit.measure.result import RequestResult


def gpu_energy() -> Callable[[], float] | None:
    """What reads the joules of all GPUs since their driver was loaded; None without a GPU that counts them.

    Source: `nvmlDeviceGetTotalEnergyConsumption` of NVML, in millijoules, for Volta and newer.
    """
    try:
        import pynvml
    except ImportError:  # without the extra `bench`
        return None
    try:
        pynvml.nvmlInit()
        gpus = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        for gpu in gpus:
            pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    except pynvml.NVMLError:
        return None

    def read() -> float:
        millijoules: int = sum(map(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpus))
        return millijoules / 1000

    return read if gpus else None


async def count_energy(read: Callable[[], float], block: Awaitable[list[RequestResult]]) -> list[RequestResult]:
    """The results of a block of requests, each with a share of the joules used meanwhile, by its output tokens.

    What idle GPUs use, and what other processes do, counts too.
    """
    before = read()
    results = await block
    tokens = sum(result.output_tokens for result in results)
    used = read() - before
    return [replace(item, joules=used * item.output_tokens / tokens) for item in results] if tokens else results
