"""What memory is free here: on this machine, and of a container's limit."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
# As a container sees them, of version 2 and 1: its limit, what it uses, and of that the part of the page cache that
# goes first. https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
_LIMITS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def free_bytes(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """Memory that can be used without swapping; all of it if the kernel does not say how much that is."""
    file = proc / "meminfo"
    said = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    line = re.search(r"^MemAvailable:\s+(\d+) kB$", said, re.M)
    free = int(line[1]) * 1024 if line else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(free, _left_of_limit(cgroup))


def _left_of_limit(cgroup: Path) -> int:
    """What a container may still use. Without one there is no file, or it says `max`, or more than any machine has."""
    for limit, usage, stat, droppable in _LIMITS:
        with suppress(OSError, ValueError):
            most, used = int((cgroup / limit).read_text()), int((cgroup / usage).read_text())
            cache = re.search(rf"^{droppable} (\d+)$", (cgroup / stat).read_text(), re.M)
            return max(0, most - used + (int(cache[1]) if cache else 0))
    return sys.maxsize


def has_gpu() -> bool:
    """Whether NVIDIA's driver has a GPU here, whose memory is not that of the machine."""
    return Path("/dev/nvidia0").exists()
