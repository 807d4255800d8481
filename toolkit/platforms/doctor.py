"""What `toolkit doctor` finds: of this machine, and of AWS, such as in Studio."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from toolkit.catalog import lookup
from toolkit.engines import registry as engine_registry
from toolkit.errors import ToolkitError
from toolkit.memory import free_bytes
from toolkit.platforms.local.machine import runs_here
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.role import STUDIO_METADATA, find_role
from toolkit.platforms.sagemaker.rules.access import ROLE_VARIABLE
from toolkit.platforms.sagemaker.rules.names import bucket_name
from toolkit.platforms.sagemaker.session import SESSION, has_credentials
from toolkit.version import DISTRIBUTION, REINSTALL, __version__, install_command

# An endpoint of the tiny pair holds 1.9 GB (three processes of vLLM), its weights and log some MB.
_MEMORY_GB = 2.5
_DISK_GB = 1.0
_GB = 1e9


@dataclass(frozen=True)
class Examined:
    """The result of one check. `hint` says how to fix it if it is not `ok`.

    `needed` is False for what the local platform does without.
    """

    name: str
    ok: bool
    detail: str
    hint: str = ""
    needed: bool = True


def examine(home: Path) -> Iterator[Examined]:
    """Look at Python, packages, memory, disk and the folder that the platform keeps its state in."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Examined("python", sys.version_info >= (3, 11), python, "Use Python 3.11 or newer.")
    yield Examined("system", runs_here(), platform.system(), "Use Linux, on Windows that of WSL 2.")
    yield _own_package()
    for name in engine_registry.engines():
        if cpu := engine_registry.engine_rules(name).cpu:
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
        installed = version(name)
    except PackageNotFoundError:
        return Examined(name, False, "not installed", hint)
    return Examined(name, wanted in (None, installed), installed, f"version {wanted} is needed: {hint}")


def _memory() -> Examined:
    if not Path("/proc/meminfo").is_file():
        return Examined("memory", True, "unknown on this system")
    free = free_bytes() / _GB
    hint = f"An endpoint needs {_MEMORY_GB} GB: close other programs."
    return Examined("memory", free >= _MEMORY_GB, f"{free:.1f} GB available", hint)


def _disk(home: Path) -> Examined:
    # `Path.is_dir` raises PermissionError in somebody else's home, before Python 3.14.
    parent = next(folder for folder in (home, *home.parents) if os.path.isdir(folder))  # noqa: PTH112
    free = shutil.disk_usage(parent).free / _GB
    writable = os.access(parent, os.W_OK)
    detail = f"{free:.1f} GB free at {parent}" if writable else f"{parent} is not writable"
    return Examined(
        "disk", writable and free >= _DISK_GB, detail, "Free disk space, or set TOOLKIT_HOME to another folder."
    )


def examine_aws(open_clients: Callable[[], Clients] = lambda: SESSION.glance().clients) -> Examined:
    """What there is of AWS; the local platform needs nothing of it."""
    if not has_credentials():
        return Examined("aws", True, "no credentials; only SageMaker needs them")
    try:
        return Examined("aws", True, session_text(open_clients(), os.environ))
    except ToolkitError as error:
        return Examined("aws", False, error.message, error.hint, needed=False)


def session_text(clients: Clients, environ: Mapping[str, str], studio_metadata: Path = STUDIO_METADATA) -> str:
    """Account, region, execution role and bucket of recipes that name none of them. Raises PlatformError."""
    with aws_errors("reading the AWS identity"):
        account = clients.account
    role_found = find_role(clients, written=None, environ=environ, studio_metadata=studio_metadata)
    role = (
        f"{role_found.arn} ({role_found.source})"
        if role_found
        else f"no role: set ${ROLE_VARIABLE}, or write `role: create`"
    )
    return f"account {account.id}, {account.region}; endpoints run as {role}; weights in s3://{bucket_name(account)}"
