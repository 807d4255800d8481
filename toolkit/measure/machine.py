"""Is the machine that measures fast enough, and does it have the time?"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from toolkit import documents

_CPU_STATISTICS = Path("/sys/fs/cgroup/cpu.stat")
_TICK = 0.05
_LATE = 0.005
_THROTTLED_SHARE = 0.01


class Machine:
    """Watches the event loop that measures: how late it is, and whether its container is throttled.

    `load` is the number of processes that wanted to run in the last minute, as the kernel counts them; 0 on Windows.
    """

    def __init__(self, load: float | None = None, cpu_statistics: Path = _CPU_STATISTICS) -> None:
        self._cpu_statistics = cpu_statistics
        counted = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        self._load = counted if load is None else load
        self._late: list[float] = []
        self._seconds = 0.0
        self._throttled = 0.0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        began, throttled_before = loop.time(), self._throttled_seconds()
        ticking = asyncio.ensure_future(self._tick())
        try:
            yield
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            self._seconds = loop.time() - began
            self._throttled = self._throttled_seconds() - throttled_before

    def notes(self) -> Iterator[str]:
        """What a reader must know of the machine."""
        cores = os.cpu_count() or 1
        if self._load > cores:
            yield f"this machine was busy before: a load of {self._load:.1f} on {cores} CPUs"
        late = sorted(self._late)[int(0.99 * len(self._late))] if self._late else 0.0
        if late > _LATE:
            yield f"the measuring process was up to {late * 1000:.0f} ms late (p99): latencies are that much less sure"
        if self._throttled > _THROTTLED_SHARE * self._seconds:
            yield f"the measuring container was throttled for {self._throttled:.1f} of {self._seconds:.0f} s"

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK
            await asyncio.sleep(_TICK)
            self._late.append(loop.time() - due)

    def _throttled_seconds(self) -> float:
        """How long the kernel has held back the processes of this container; 0 where no limit is set."""
        try:
            lines = documents.read_file(self._cpu_statistics).decode().splitlines()
        except (OSError, ValueError):
            return 0.0
        counters = dict(line.split(maxsplit=1) for line in lines if " " in line)
        microseconds = counters.get("throttled_usec", "0")
        return int(microseconds) / 1e6 if microseconds.isdigit() else 0.0
