"""What this machine has: the right system, packages, free memory, cores, and the features of its CPU."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from toolkit.errors import MissingPackage, UsageError
from toolkit.memory import control_groups

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def runs_here() -> bool:
    """Whether this system has what the daemon is made of: Windows has not."""
    return find_spec("fcntl") is not None


def require_system() -> None:
    """Raise UsageError on a system that the local platform does not run on."""
    if not runs_here():
        hint = "Use Linux, on Windows that of WSL 2; or add: --platform sagemaker"
        raise UsageError("the local platform does not run on this system", hint=hint)


def require_packages(names: Sequence[str], who: str, extra: str) -> None:
    """Raise MissingPackage, which names the extra, unless all packages are installed."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise MissingPackage(f"{who} needs packages that are not installed: {', '.join(missing)}", extra=extra)


def cpu_features(proc: Path = _PROC) -> frozenset[str]:
    """Instruction sets of the CPU, as the kernel calls them; empty where it does not list them."""
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", _read(proc / "cpuinfo"), re.M)
    return frozenset(line[1].split()) if line else frozenset()


def cores(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """Physical cores that this process may use; CPUs if the kernel does not say which of them share a core.

    Of a container's or a job's share of CPU time, as of `docker run --cpus`: more threads would wait for each other.
    """
    cpus = _read(proc / "cpuinfo").strip().split("\n\n")
    ids = {tuple(re.findall(r"^(?:physical|core) id\s*:(.*)$", cpu, re.M)) for cpu in cpus}
    allowed = len(os.sched_getaffinity(0))
    shares = (
        share for name in ("", "cpu") for folder in control_groups(name, proc, cgroup) for share in _shares(folder)
    )
    return max(1, min(allowed, allowed if () in ids else len(ids), *map(math.ceil, shares)))


def _shares(group: Path) -> Iterator[float]:
    """How many CPUs' time the group may have, by version 2 and 1; nothing where it may have all.

    https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/scheduler/sched-bwc.html
    """
    written = _read(group / "cpu.max") or f"{_read(group / 'cpu.cfs_quota_us')} {_read(group / 'cpu.cfs_period_us')}"
    with suppress(ValueError):  # `max 100000`, or no such files
        quota, period = map(int, written.split())
        if quota > 0 and period > 0:
            yield quota / period


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
