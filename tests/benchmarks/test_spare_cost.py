"""A deployment of the tiny pair after another, with and without the process that the local platform keeps in between.

Seconds, and seconds of CPU of the container from the deployment on. Prints, asserts nothing about time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest
from processes import processes_in, until

import toolkit
from toolkit.apply.progress import Silent
from toolkit.platforms.local import daemon

RECIPE = "tiny/p-eagle"
ROUNDS = 3
MINUTES = {"with": "15", "without": "0"}


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[dict[str, Path]]:
    homes = {name: tmp_path / name for name in MINUTES}
    yield homes
    for home in homes.values():
        daemon.stop(home / "local")


def cpu_seconds(processes: Sequence[int]) -> float:
    ticks = 0
    for pid in processes:
        _, _, stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        ticks += sum(int(field) for field in stat.split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def deployment(endpoints: Path) -> tuple[float, float]:
    """Seconds of a deployment, and of its container's CPU meanwhile; it is removed again."""
    before = cpu_seconds(processes_in(endpoints))
    began = time.monotonic()
    toolkit.deploy(RECIPE, progress=Silent())
    seconds = time.monotonic() - began
    used = cpu_seconds(processes_in(endpoints)) - before
    toolkit.destroy(RECIPE, progress=Silent())
    return seconds, used


@pytest.mark.timeout(3600)
def test_a_deployment_after_another(homes: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in MINUTES}
    first: dict[str, tuple[float, float]] = {}
    for number in range(ROUNDS + 1):
        for name, home in homes.items():
            monkeypatch.setenv("TOOLKIT_HOME", str(home))
            monkeypatch.setenv("TOOLKIT_LOCAL_SPARE_MINUTES", MINUTES[name])
            endpoints = home / "local" / "endpoints"
            measured = deployment(endpoints)
            if number:
                found[name].append(measured)
            else:
                first[name] = measured
            if name == "with":
                until(lambda folder=endpoints: list(folder.glob("spare/*/spare/tmp/spare.sock")), 300)  # type: ignore[misc]
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, measured_ones in found.items():
        seconds, cpu = (median(values) for values in zip(*measured_ones, strict=True))
        each = ", ".join(f"{one:.1f} ({used:.1f})" for one, used in measured_ones)
        print(f"{name} it: first {first[name][0]:.1f} s ({first[name][1]:.1f} of CPU), then {each}; ", end="")
        print(f"median {seconds:.1f} s, {cpu:.1f} of CPU")
