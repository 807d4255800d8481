"""What this machine has: free memory, cores, and the features of its CPU."""

from __future__ import annotations

import os
import re
from pathlib import Path

_PROC = Path("/proc")


def free_bytes(proc: Path = _PROC) -> int:
    """Memory that can be used without swapping; all of it if the kernel does not say how much that is."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _read(proc / "meminfo"), re.M)
    return int(found[1]) * 1024 if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cpu_features(proc: Path = _PROC) -> frozenset[str]:
    """Instruction sets of the CPU, as the kernel calls them; empty where it does not list them."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", _read(proc / "cpuinfo"), re.M)
    return frozenset(found[1].split()) if found else frozenset()


def cores(proc: Path = _PROC) -> int:
    """Physical cores that this process may use; CPUs if the kernel does not say which of them share a core."""
    cpus = _read(proc / "cpuinfo").strip().split("\n\n")
    found = {tuple(re.findall(r"^(?:physical|core) id\s*:(.*)$", cpu, re.M)) for cpu in cpus}
    allowed = len(os.sched_getaffinity(0))
    return allowed if () in found else min(allowed, len(found))


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
