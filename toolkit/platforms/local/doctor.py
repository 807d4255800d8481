"""Check that this machine has what the local platform needs."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from toolkit import registry
from toolkit.catalog import lookup
from toolkit.platforms.examined import Examined
from toolkit.platforms.local.session import runs_here
from toolkit.version import DISTRIBUTION, REINSTALL, __version__, install_command

# An endpoint of the tiny pair holds 1.9 GB (three processes of vLLM), its weights and log some MB.
_MEMORY_GB = 2.5
_DISK_GB = 1.0
_GB = 1e9


def examine(home: Path) -> Iterator[Examined]:
    """Look at Python, packages, memory, disk and the folder that the platform keeps its state in."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Examined("python", sys.version_info >= (3, 11), python, "Use Python 3.11 or newer.")
    yield Examined("system", runs_here(), platform.system(), "Use Linux, on Windows that of WSL 2.")
    yield _own_package()
    for name in registry.engines():
        if cpu := registry.engine_rules(name).cpu:
            yield _package(cpu.package, lookup.images("local", name)[0].version)
    yield _package("moto", None)
    yield _memory()
    yield _disk(home)


def _own_package() -> Examined:
    """Only one distribution may write the package `toolkit`: removing the other one would take our files along."""
    try:
        other = version("toolkit")
    except PackageNotFoundError:
        return Examined("package", True, f"{DISTRIBUTION} {__version__}")
    detail = f"the package `toolkit` {other} of another project is installed too"
    return Examined("package", False, detail, REINSTALL)


def _package(name: str, wanted: str | None) -> Examined:
    hint = install_command("local")
    try:
        found = version(name)
    except PackageNotFoundError:
        return Examined(name, False, "not installed", hint)
    return Examined(name, wanted in (None, found), found, f"version {wanted} is needed: {hint}")


def _memory() -> Examined:
    meminfo = Path("/proc/meminfo")
    if not meminfo.is_file():
        return Examined("memory", True, "unknown on this system")
    fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="utf-8").splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024 / _GB
    hint = f"An endpoint needs {_MEMORY_GB} GB: close other programs."
    return Examined("memory", free >= _MEMORY_GB, f"{free:.1f} GB available", hint)


def _disk(home: Path) -> Examined:
    parent = next(folder for folder in (home, *home.parents) if folder.is_dir())
    free = shutil.disk_usage(parent).free / _GB
    writable = os.access(parent, os.W_OK)
    detail = f"{free:.1f} GB free at {parent}" if writable else f"{parent} is not writable"
    return Examined(
        "disk", writable and free >= _DISK_GB, detail, "Free disk space, or set TOOLKIT_HOME to another folder."
    )
