"""Pulp's registry, which shares no code with Docker's: from PyPI, on PostgreSQL from Debian, on free ports.

It has its blobs answered by another program, to which it leads with a redirect. To install and to set it up takes
minutes, so only `make test-exhaustive` does.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest
from system_packages import install

LOGIN = ("admin", "password")

_PACKAGES = ("pulp-container==2.30.0", "pulpcore==3.123.1")
_POSTGRES = "/usr/lib/postgresql"
_START_SECONDS = 120
_SETTINGS = """\
SECRET_KEY = "tests"
DATABASES = {{"default": {{
    "ENGINE": "django.db.backends.postgresql", "NAME": "pulp", "USER": "pulp", "HOST": "{folder}/socket"
}}}}
CONTENT_ORIGIN = "http://{content}"
DB_ENCRYPTION_KEY = "{folder}/key"
DEPLOY_ROOT = MEDIA_ROOT = "{folder}/data"
STATIC_ROOT = "{folder}/data/static"
WORKING_DIRECTORY = FILE_UPLOAD_TEMP_DIR = "{folder}/data/tmp"
TOKEN_AUTH_DISABLED = True
ANALYTICS = False
"""


@contextmanager
def running_pulp(folder: Path) -> Iterator[str]:
    """Host and port of a Pulp that keeps all in `folder`, until the block ends. The test is skipped without it."""
    install("pg_ctlcluster", "runuser")
    binaries, content, api = folder / "venv" / "bin", _free_address(), _free_address()
    _run([sys.executable, "-m", "venv", str(folder / "venv")])
    _run([str(binaries / "pip"), "install", "--quiet", *_PACKAGES])
    folder.chmod(0o755)  # PostgreSQL runs as a user of its own
    (folder / "data" / "tmp").mkdir(parents=True)
    (folder / "settings.py").write_text(_SETTINGS.format(folder=folder, content=content))
    key = "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"
    (folder / "key").write_text(_run([str(binaries / "python"), "-c", key]))
    environment = {"PULP_SETTINGS": str(folder / "settings.py"), "DJANGO_SETTINGS_MODULE": "pulpcore.app.settings"}
    with ExitStack() as stack:
        stack.enter_context(_postgres(folder))
        _run([str(binaries / "pulpcore-manager"), "migrate", "--noinput"], environment)
        _run([str(binaries / "pulpcore-manager"), "reset-admin-password", "--password", LOGIN[1]], environment)
        for program in (["pulpcore-api", "--bind", api], ["pulpcore-content", "--bind", content], ["pulpcore-worker"]):
            command = [str(binaries / program[0]), *program[1:]]
            stack.enter_context(_started(command, folder / f"{program[0]}.log", environment))
        _wait_until(lambda: _answers(f"http://{api}/v2/") and _answers(f"http://{content}/pulp/content/"))
        yield api


@contextmanager
def _postgres(folder: Path) -> Iterator[None]:
    programs = next(iter(sorted(Path(_POSTGRES).glob("*/bin"), reverse=True)))
    as_its_user = ["runuser", "-u", "postgres", "--"]
    for name in ("database", "socket"):
        (folder / name).mkdir()
        shutil.chown(folder / name, "postgres")
    place = ["-h", str(folder / "socket")]
    _run([*as_its_user, f"{programs}/initdb", "-D", f"{folder}/database", "-A", "trust", "-U", "pulp"])
    options = ["-k", f"{folder}/socket", "-c", "listen_addresses=", "-c", "fsync=off"]
    server = [*as_its_user, f"{programs}/postgres", "-D", f"{folder}/database", *options]
    with _started(server, folder / "postgres.log"):
        asked = [*as_its_user, f"{programs}/pg_isready", *place, "-q"]
        _wait_until(lambda: subprocess.run(asked, check=False).returncode == 0)
        _run([*as_its_user, f"{programs}/createdb", *place, "-U", "pulp", "pulp"])
        yield


@contextmanager
def _started(
    command: Sequence[str], log: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    with log.open("w") as out:
        both = {**os.environ, **environment}
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=both)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _run(command: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})) -> str:
    # tests of wheels leave pip nothing but their own folder
    usual = {name: value for name, value in os.environ.items() if name not in ("PIP_NO_INDEX", "PIP_FIND_LINKS")}
    done = subprocess.run(command, capture_output=True, text=True, env={**usual, **environment}, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout.strip()


def _free_address() -> str:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code < httpx.codes.INTERNAL_SERVER_ERROR
    except httpx.TransportError:
        return False


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "Pulp does not start"
        time.sleep(0.1)
