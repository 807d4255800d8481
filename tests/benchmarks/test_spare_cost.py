"""`toolkit deploy tiny/p-eagle` after another, with and without the process that the local platform keeps in between.

Seconds of the command, and seconds of CPU of the container from its beginning on. Prints, asserts nothing about time.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import pytest
from processes import processes_in, until

from toolkit.children import python_command
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


def toolkit(home: Path, name: str, *words: str) -> None:
    variables = {**os.environ, "TOOLKIT_HOME": str(home), daemon.SPARE_MINUTES: MINUTES[name]}
    subprocess.run(python_command("-m", "toolkit", *words), env=variables, check=True, stdout=subprocess.DEVNULL)


def cpu_seconds(processes: Sequence[int]) -> float:
    ticks = 0
    for pid in processes:
        _, _, stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        ticks += sum(int(field) for field in stat.split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def waits(endpoints: Path) -> bool:
    """Whether a spare is there, and has nothing more to import."""
    before = cpu_seconds(processes_in(endpoints / "spare"))
    time.sleep(1)
    return 0 < before == cpu_seconds(processes_in(endpoints / "spare"))


def deployment(home: Path, name: str) -> tuple[float, float]:
    """Seconds of a deployment, and of its container's CPU meanwhile; it is removed again."""
    endpoints = home / "local" / "endpoints"
    before = cpu_seconds(processes_in(endpoints))
    began = time.monotonic()
    toolkit(home, name, "deploy", RECIPE, "--no-prove", "--yes")
    seconds = time.monotonic() - began
    used = cpu_seconds(processes_in(endpoints)) - before
    toolkit(home, name, "destroy", RECIPE, "--yes")
    return seconds, used


@pytest.mark.timeout(3600)
def test_a_deployment_after_another(homes: dict[str, Path]) -> None:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in MINUTES}
    for _ in range(1 + ROUNDS):
        for name, home in homes.items():
            found[name].append(deployment(home, name))
            if name == "with":
                until(partial(waits, home / "local" / "endpoints"), 300)
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, (first, *others) in found.items():
        seconds, cpu = (median(values) for values in zip(*others, strict=True))
        each = ", ".join(f"{one:.1f} ({used:.1f})" for one, used in others)
        print(f"{name} it: first {first[0]:.1f} s ({first[1]:.1f} of CPU), then {each}; ", end="")
        print(f"median {seconds:.1f} s, {cpu:.1f} of CPU")
