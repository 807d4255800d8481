"""Commands in this process, daemons and small disks for tests of what goes wrong around them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolkit.platforms.local.daemon import start, stop

EVERY_FAULT = bool(os.environ.get("TOOLKIT_EVERY_CRASH"))
"""Whether `make test-exhaustive` runs, and not a sample."""

CONTAINERS = Path(__file__).parent / "containers"


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str


Toolkit = Callable[..., Ran]


@contextmanager
def daemon_in(home: Path) -> Iterator[Path]:
    try:
        start(home / "local", CONTAINERS)
        yield home
    finally:
        stop(home / "local")


@contextmanager
def small_disk(folder: Path, size: str = "64k") -> Iterator[Path]:
    """A disk of that size in the folder."""
    folder.mkdir()
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, text=True
        )
        if os.geteuid() == 0
        else None
    )
    if mounted is None or mounted.returncode:
        pytest.skip(f"no small disk: {mounted.stderr if mounted else 'only root may mount one'}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def read_only(disk: Path) -> Iterator[Path]:
    """The same files, in a folder where they cannot be written."""
    view = disk.with_name(f"{disk.name}-read-only")
    view.mkdir()
    subprocess.run(["mount", "--bind", str(disk), str(view)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(view)], check=True)
        yield view
    finally:
        subprocess.run(["umount", "--lazy", str(view)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[Path]:
    """The disk, without room for another byte."""
    with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(2**20))
    yield disk
