"""Programs of Debian that tests use: installed when they are missing and we may, else the tests are skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_PACKAGES = {
    "buildah": "buildah",
    "podman": "podman",
    "runc": "runc",
    "netavark": "netavark",
    "iptables": "iptables",
    "dockerd": "docker.io",
    "docker": "docker.io",
    "nsenter": "util-linux",
    "runuser": "util-linux",
    "curl": "curl",
    "busybox": "busybox-static",
    "pg_ctlcluster": "postgresql",
    "chromium-headless-shell": "chromium-headless-shell",
}
_ALSO_AT = "/usr/lib/podman"


def install(*programs: str) -> None:
    """See that the programs are there, from Debian's packages if we may install them; else the tests are skipped."""
    missing = [name for name in programs if shutil.which(name) is None and not (Path(_ALSO_AT) / name).exists()]
    if not missing:
        return
    names = ", ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(f"NOT TESTED: {names} missing, and only root of a Debian can install them")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    packages = sorted({_PACKAGES[name] for name in missing})
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *command], capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            pytest.skip(f"NOT TESTED: {names} cannot be installed: {done.stderr.strip()[-300:]}")
