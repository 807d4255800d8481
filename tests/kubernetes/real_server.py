"""A genuine etcd, kube-apiserver and kube-controller-manager on the loopback, without nodes: nothing runs a pod.

The folder with the three programs is named by KUBEBUILDER_ASSETS, as for controller-runtime's envtest.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

TOKEN = "admin-token"
ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS", "")).resolve()
_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
_LACKING = [name for name in _PROGRAMS if not os.access(ASSETS / name, os.X_OK)]
_LACKING += [name for name in ("openssl", "setpriv") if not shutil.which(name)]
WITHOUT = f"NOT TESTED: there is no {', '.join(_LACKING)} to run; CONTRIBUTING.md says where from" if _LACKING else ""
"""Why there is none; empty where there is one."""

KUBECTL = shutil.which("kubectl", path=f"{os.environ['PATH']}{os.pathsep}{ASSETS}")

# Its address in the cluster. Without one it looks for a route that leads out of this machine.
_ADVERTISED = "192.0.2.1"
_START_SECONDS = 60.0
_LOG_END = 2000


@contextmanager
def real_server(folder: Path, *flags: str) -> Iterator[dict[str, Any]]:
    """The kubeconfig of a server that answers, until the block ends. `flags` are kube-apiserver's, besides ours."""
    etcd, peer, port = (_free_port() for _ in range(3))
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\nguest-token,guest,guest,\n")
    key = folder / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    certificate = {"certificate-authority": str(folder / "apiserver.crt")}
    config = kubeconfig_of(f"https://127.0.0.1:{port}", {"token": TOKEN}, **certificate)
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    with ExitStack() as held:
        running: dict[str, subprocess.Popen[bytes]] = {}

        def start(name: str, *arguments: str) -> None:
            running[name] = held.enter_context(_program(folder, name, *arguments))

        start(
            "etcd", f"--data-dir={folder / 'etcd'}", f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )  # fmt: skip
        start(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}", f"--cert-dir={folder}",
            "--bind-address=127.0.0.1", f"--advertise-address={_ADVERTISED}", f"--secure-port={port}",
            f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=RBAC",
            f"--service-cluster-ip-range={_services(port)}", "--allow-privileged",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--disable-admission-plugins=ServiceAccount", *flags,
        )  # fmt: skip
        _wait_ready(f"https://127.0.0.1:{port}", folder, running)
        # Up to 1.23 it had a second port, on all addresses.
        version = subprocess.check_output([ASSETS / "kube-controller-manager", "--version"], text=True)
        old = ["--port=0"] if int(version.split(".")[1]) < 24 else []
        start(
            "kube-controller-manager", *old, f"--kubeconfig={folder / 'kubeconfig'}", "--leader-elect=false",
            f"--cert-dir={folder}", "--secure-port=0", "--use-service-account-credentials=false",
            f"--service-account-private-key-file={key}",
        )  # fmt: skip
        yield config


def write_kubeconfig(config: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a cluster's configuration into a file that KUBECONFIG names."""
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def kubeconfig_of(url: str, user: Mapping[str, str], **cluster: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "admin", "user": {**user}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
        "current-context": "real",
    }


def _services(port: int) -> str:
    """Addresses of Services, which other control planes of this machine have none of, as they have other ports.

    No route of a machine leads to that class of addresses (RFC 1112); Linux takes them as any others.
    """
    return f"240.{port >> 8}.{port & 255}.0/24"


@contextmanager
def _program(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Started. It does not outlive the tests, however they end."""
    with _log(folder, name).open("wb") as log:
        command = ["setpriv", "--pdeathsig", "KILL", str(ASSETS / name), *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.kill()  # nothing of it is kept, and an API server whose etcd is gone does not heed SIGTERM
        process.wait()
        print(f"{name}: {_end(folder, name)}")  # shown where a test has failed


def _log(folder: Path, name: str) -> Path:
    return folder / f"{name}.log"


def _wait_ready(url: str, folder: Path, running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    certificate = folder / "apiserver.crt"
    deadline, token = time.monotonic() + _START_SECONDS, {"Authorization": f"Bearer {TOKEN}"}
    while time.monotonic() < deadline:
        if certificate.exists():
            with urllib3.PoolManager(ca_certs=str(certificate)) as pool, suppress(urllib3.exceptions.HTTPError):
                if pool.request("GET", f"{url}/readyz", retries=False, headers=token).status == 200:
                    return
        for name, process in running.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} has ended: {_end(folder, name)}")
        time.sleep(0.2)
    raise TimeoutError(f"kube-apiserver is not ready: {_end(folder, 'kube-apiserver')}")


def _end(folder: Path, name: str) -> str:
    return _log(folder, name).read_text()[-_LOG_END:]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
