"""What memory is free here: on this machine, and of a container's limit; and the control groups that have limits."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
# Of version 2 and 1: the controller, its limit, what is used, and of that the part of the page cache that goes first.
# https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
_LIMITS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def free_bytes(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """Memory that can be used without swapping; all of it if the kernel does not say how much that is."""
    file = proc / "meminfo"
    said = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    line = re.search(r"^MemAvailable:\s+(\d+) kB$", said, re.M)
    free = int(line[1]) * 1024 if line else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(free, _left_of_limit(proc, cgroup))


def _left_of_limit(proc: Path, cgroup: Path) -> int:
    """What a container, a unit of systemd or a job of Slurm may still use: by its own limit, and those of all above it.

    Without one there is no file, or it says `max`, or more than any machine has.
    """
    left = [sys.maxsize]
    for controller, limit, usage, droppable in _LIMITS:
        for folder in control_groups(controller, proc, cgroup):
            with suppress(OSError, ValueError):
                most, used = int((folder / limit).read_text()), int((folder / usage).read_text())
                cache = re.search(rf"^{droppable} (\d+)$", (folder / "memory.stat").read_text(), re.M)
                left.append(max(0, most - used + (int(cache[1]) if cache else 0)))
    return min(left)


def control_groups(controller: str, proc: Path = _PROC, cgroup: Path = _CGROUP) -> Iterator[Path]:
    """The folders of our own control group, and of all above it; the controller of version 2 is called ``."""
    own = _own_group(proc, controller)
    for group in (own, *own.parents):
        yield cgroup / controller / group.relative_to("/")


def _own_group(proc: Path, controller: str) -> PurePosixPath:
    """As the kernel names it; the root where a container sees no other."""
    with suppress(OSError, ValueError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            parts = line.split(":", 2)
            if len(parts) == 3 and controller in parts[1].split(","):
                return PurePosixPath("/", parts[2])
    return PurePosixPath("/")


def has_gpu() -> bool:
    """Whether NVIDIA's driver has a GPU here, whose memory is not that of the machine."""
    return Path("/dev/nvidia0").exists()
