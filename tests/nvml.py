"""A library like NVIDIA's NVML, made with this machine's C compiler: two GPUs whose counters grow with each reading."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# The functions of nvml.h that are called. Each reading finds 1500 mJ more than the last, of either GPU.
_SOURCE = """
typedef int result;
static unsigned long long used = 7000;
result nvmlInitWithFlags(unsigned flags) { return 0; }
result nvmlInit_v2(void) { return 0; }
result nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
result nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &used; return 0; }
result nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy) {
    used += 1500; *energy = used; return CODE;
}
const char *nvmlErrorString(result code) { return "Not Supported"; }
"""


def nvml(folder: Path, code: int = 0) -> dict[str, str]:
    """What makes a new process find it; its counters answer with that code. Skips where it cannot be made."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("a library is made with a C compiler on Linux")
    source = folder / "nvml.c"
    source.write_text(_SOURCE.replace("CODE", str(code)))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}
