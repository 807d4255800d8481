"""Docker's own registry, from Debian, on a free port of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = "AWS"
# bcrypt, made with: htpasswd -nbBC 4 AWS first
HASHES = {
    "first": "$2y$04$1dMtS61eBabxwNQQNkuKo./Fa4dL1RIzpvvWZUXxZf1HNSMn1UnvK",
    "second": "$2y$04$KzvPyARTRQhx1.N10i/3oOwe7Es.V/4hGivGYlZWOGeiJiBIEIpnu",
}
_LISTENS = re.compile(r"listening on (127\.0\.0\.1:\d+)")
_START_SECONDS = 30
_INSTALL = """\
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -y -qq --no-install-recommends docker-registry
"""


def install() -> None:
    """See that the program is there, from Debian's packages if we may install them; else the tests are skipped."""
    if shutil.which("docker-registry"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("NOT TESTED: docker-registry is not installed, and only root of a Debian can install it")
    done = subprocess.run(_INSTALL, shell=True, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT TESTED: docker-registry cannot be installed: {done.stderr.strip()[-300:]}")


@contextmanager
def running(folder: Path, passwords: Path | None = None) -> Iterator[str]:
    """Host and port of a registry that keeps its blobs under `folder`, with a login if there is a password file.

    Skips the test where the program cannot be had.
    """
    install()
    auth = f"auth: {{htpasswd: {{realm: test, path: {passwords}}}}}\n" if passwords else ""
    config = folder / "registry.yml"
    config.write_text(
        "version: 0.1\n"
        "log: {level: info, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder / 'blobs'}}}, delete: {{enabled: true}}}}\n"
        'http: {addr: "127.0.0.1:0"}\n' + auth
    )
    # it takes every such variable for a setting of its own
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REGISTRY_")}
    said = folder / "registry.log"
    with said.open("w") as log:
        command = ["docker-registry", "serve", str(config)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    try:
        yield _address(process, said)
    finally:
        process.terminate()
        process.wait()


def set_password(path: Path, password: str) -> None:
    """Let only this password in from now on: the registry reads the file again when its time has changed."""
    earlier = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(f"{USER}:{HASHES[password]}\n")
    os.utime(path, ns=(earlier + 10**9, earlier + 10**9))


def _address(process: subprocess.Popen[bytes], said: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := _LISTENS.search(said.read_text()):
            return found[1]
        time.sleep(0.02)
    raise AssertionError(f"docker-registry did not start:\n{said.read_text()}")
