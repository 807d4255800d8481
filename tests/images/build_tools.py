"""The build tools of Debian for the tests: installed, set up apart from the user's own, run, and cleaned away.

What only a machine like CI's needs (no right to raise limits, hybrid cgroups, no user namespaces) stands in
configuration files and variables that the tools read themselves.
"""

from __future__ import annotations

import http
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from loopback_registry import USER, running
from system_packages import install

from toolkit.home import containers_dir
from toolkit.images.auth import Credentials
from toolkit.images.spec import Builder, ContextFile, ImageSpec
from toolkit.platforms.image import programs

_START_SECONDS = 60
_STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
_CONTAINERS = (
    '[containers]\ndefault_ulimits = []\ncgroupns = "host"\n'
    '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
)


@contextmanager
def own_storage(folder: Path) -> Iterator[None]:
    """Give buildah and podman settings and images of their own, until the block ends.

    Where containers run, the folder's path must be short: with one of 48 characters podman 4.3 looks for the end of
    each container in vain, for 10 to 20 seconds; with 38 it does not.
    """
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: building images here takes root")
    install("buildah", "podman", "runc", "netavark", "nsenter", "curl")
    files = {"storage.conf": _STORAGE.format(folder=folder), "containers.conf": _CONTAINERS, "auth.json": "{}"}
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
        environment.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
        environment.setenv("REGISTRY_AUTH_FILE", str(folder / "auth.json"))
        environment.setenv("BUILDAH_ISOLATION", "chroot")
        try:
            yield
        finally:
            tool("podman", "rm", "--all", "--force", "--time", "0")
            tool("buildah", "rm", "--all")
            subprocess.run(["umount", folder / "graph" / "overlay"], capture_output=True, check=False)
            shutil.rmtree(folder / "graph", ignore_errors=True)


@contextmanager
def docker_engine(folder: Path) -> Iterator[None]:
    """A Docker engine of our own, with Studio's network; its commands reach it until the block ends.

    It touches no iptables and makes no link but that network's, which goes with it.
    """
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a Docker engine takes root")
    install("dockerd", "docker")
    (folder / "config").mkdir()
    command = ["dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "pid"]
    command += ["--host", f"unix://{folder}/socket", "--iptables=false", "--bridge=none", "--storage-driver=overlay2"]
    with (folder / "log").open("w") as log, pytest.MonkeyPatch.context() as environment:
        environment.setenv("DOCKER_HOST", f"unix://{folder}/socket")
        environment.setenv("DOCKER_CONFIG", str(folder / "config"))
        engine = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_for_engine(engine, folder / "log")
            tool("docker", "network", "create", "--subnet", "10.198.0.0/24", "sagemaker")
            try:
                yield
            finally:
                tool("docker", "network", "rm", "sagemaker")
        finally:
            engine.terminate()
            engine.wait()
            subprocess.run(["umount", folder / "exec" / "netns" / "default"], capture_output=True, check=False)
            shutil.rmtree(folder / "data", ignore_errors=True)


def _wait_for_engine(engine: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while subprocess.run(["docker", "version"], capture_output=True, check=False).returncode:
        if engine.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"dockerd did not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)


def tool(*command: str) -> str:
    """What the command writes. It must work."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout.strip()


def blobs_with(folder: Path, *secrets: str) -> list[Path]:
    """Which blobs of a registry that keeps them under `folder` hold one of the texts, unpacked."""
    return [
        blob
        for blob in folder.rglob("blobs/*/*/*/data")
        for content in [subprocess.run(["gzip", "-dcf", blob], capture_output=True, check=True).stdout]
        if any(secret.encode() in content for secret in secrets)
    ]


def build_and_look_for_the_login(make: Callable[[Credentials], Builder], base: str, name: str, folder: Path) -> None:
    """Build into a registry whose password is set in `folder`: it is in no layer, line, command or file."""
    seen: list[str] = []

    def watch(line: str) -> None:
        seen.extend((line, tool("ps", "-e", "-ww", "-o", "args=")))

    with running(folder, folder / "passwords") as private:
        login = {private: (USER, "first")}
        make(login.get).build(our_image(base), f"{private}/{name}:1", watch)
    secrets = ("AWS:first", "QVdTOmZpcnN0")
    assert blobs_with(folder, "a note")
    assert blobs_with(folder, *secrets) == []
    assert not [secret for secret in secrets if secret in "\n".join(seen)]
    assert list(Path("/dev/shm").glob("toolkit-login-*")) == []


def wait_until_gone(command: str, seconds: float) -> None:
    """Until no process runs that command."""
    deadline = time.monotonic() + seconds
    while command in tool("ps", "-e", "-ww", "-o", "args=").splitlines():
        assert time.monotonic() < deadline, f"{command} still runs"
        time.sleep(0.1)


def our_image(base: str, fragment: str = "", **changes: Any) -> ImageSpec:
    """What the container of vLLM puts on a base, and a recipe's own instructions."""
    dockerfile = (containers_dir() / "vllm" / "Dockerfile").read_text()
    files = {f"/opt/toolkit/{name}": file for name, file in programs("vllm").items()}
    fields = {
        "base": base,
        "dockerfile": dockerfile + 'LABEL maker="test"\n' + fragment,
        "files": {**files, "/opt/toolkit/deep/er/note": ContextFile(0o640, b"a note")},
        "env": {},
        "labels": {"maker": "test"},
        "entrypoint": ("/opt/toolkit/serve",),
        "user": "0",
        "wheels": (),
        "python": "3.11",
        "needs_run": bool(fragment),
        "tag": "0123456789abcdef",
    }
    return ImageSpec(**{**fields, **changes})


@dataclass(frozen=True)
class Answer:
    status: int
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Container:
    """A running container without network: requests are made from inside its own."""

    name: str
    process: str

    def request(self, path: str, document: object = None) -> Answer:
        """The answer; status 0 where nobody answers."""
        done = subprocess.run(self.request_command(path, document), capture_output=True, text=True, check=False)
        body, _, status = done.stdout.rpartition("\n")
        return Answer(int(status or 0), body)

    def request_command(self, path: str, document: object = None) -> list[str]:
        """The command that makes it, for one that is to run meanwhile."""
        sent = ["-H", "Content-Type: application/json", "-d", json.dumps(document)] if document is not None else []
        curl = ["curl", "--silent", "--write-out", "\n%{http_code}", *sent, f"http://127.0.0.1:8080{path}"]
        return ["nsenter", "--target", self.process, "--net", *curl]

    def wait_for_ping(self, seconds: float) -> None:
        """Until it is healthy."""
        deadline = time.monotonic() + seconds
        while self.request("/ping").status != http.HTTPStatus.OK:
            assert self.is_running(), f"it died:\n{self.logs()}"
            assert time.monotonic() < deadline, f"not healthy after {seconds} s:\n{self.logs()}"
            time.sleep(0.2)

    def is_running(self) -> bool:
        return tool("podman", "inspect", "--format", "{{.State.Running}}", self.name) == "true"

    def stop(self, grace_seconds: int) -> int:
        """SIGTERM, and SIGKILL after the grace; the exit code."""
        tool("podman", "stop", "--time", str(grace_seconds), self.name)
        return int(tool("podman", "inspect", "--format", "{{.State.ExitCode}}", self.name))

    def logs(self) -> str:
        done = subprocess.run(["podman", "logs", self.name], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr


@contextmanager
def container(image: str, environment: Mapping[str, str], options: Sequence[str] = ()) -> Iterator[Container]:
    """Run an image of a registry, pulled, with read-only root and without network, until the block ends."""
    tool("podman", "pull", "--tls-verify=false", image)
    variables = [option for name, value in environment.items() for option in ("--env", f"{name}={value}")]
    name = tool("podman", "run", "--detach", "--network", "none", "--read-only", *variables, *options, image)
    try:
        yield Container(name, tool("podman", "inspect", "--format", "{{.State.Pid}}", name))
    finally:
        tool("podman", "rm", "--force", "--time", "0", name)
