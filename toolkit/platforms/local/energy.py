"""The energy that this machine's NVIDIA GPUs have used, by NVML's counters."""

from __future__ import annotations

from collections.abc import Callable


def gpu_energy() -> Callable[[], float | None] | None:
    """What reads the joules of all GPUs since their driver was loaded, None if they no longer answer.

    None without a GPU that counts them.

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

    def read() -> float | None:
        try:
            millijoules: int = sum(map(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpus))
        except pynvml.NVMLError:
            return None
        return millijoules / 1000

    return read if gpus else None
