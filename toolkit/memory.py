"""What memory this machine has free."""

from __future__ import annotations

import os
import re
from pathlib import Path

_PROC = Path("/proc")


def free_bytes(proc: Path = _PROC) -> int:
    """Memory that can be used without swapping; all of it if the kernel does not say how much that is."""
    file = proc / "meminfo"
    said = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    line = re.search(r"^MemAvailable:\s+(\d+) kB$", said, re.M)
    return int(line[1]) * 1024 if line else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def has_gpu() -> bool:
    """Whether NVIDIA's driver has a GPU here, whose memory is not that of the machine."""
    return Path("/dev/nvidia0").exists()
