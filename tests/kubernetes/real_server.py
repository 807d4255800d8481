"""A genuine etcd, kube-apiserver and kube-controller-manager on the loopback, without nodes: nothing runs a pod.

The folder with the three programs is named by KUBEBUILDER_ASSETS, as for controller-runtime's envtest.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

TOKEN = "admin-token"
SERVICES = "203.0.113.0/24"
"""Of documents (RFC 5737): no other route of a machine leads there."""

ASSETS = os.environ.get("KUBEBUILDER_ASSETS", "")
_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
WITHOUT = (
    ""
    if ASSETS and all(Path(ASSETS, name).exists() for name in _PROGRAMS)
    else f"NOT TESTED: it takes {', '.join(_PROGRAMS)} in $KUBEBUILDER_ASSETS; CONTRIBUTING.md says where from"
)
"""Why there is none; empty where there is one."""

_START_SECONDS = 60.0


@contextmanager
def real_server(folder: Path) -> Iterator[dict[str, Any]]:
    """The kubeconfig of a server that answers, until the block ends."""
    etcd, peer, port = (_free_port() for _ in range(3))
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\nguest-token,guest,guest,\n")
    key = folder / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    config = _kubeconfig(f"https://127.0.0.1:{port}", folder / "apiserver.crt", TOKEN)
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    with ExitStack() as running:
        running.enter_context(
            _program(
                folder, "etcd", f"--data-dir={folder / 'etcd'}", f"--listen-client-urls=http://127.0.0.1:{etcd}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
                "--unsafe-no-fsync",
            )
        )  # fmt: skip
        running.enter_context(
            _program(
                folder, "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}", f"--cert-dir={folder}",
                "--bind-address=127.0.0.1", f"--secure-port={port}", f"--token-auth-file={folder / 'tokens.csv'}",
                "--authorization-mode=RBAC", f"--service-cluster-ip-range={SERVICES}", "--allow-privileged",
                "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}", "--disable-admission-plugins=ServiceAccount",
            )
        )  # fmt: skip
        _wait_ready(f"https://127.0.0.1:{port}", folder / "apiserver.crt")
        # Up to 1.23 it had a second port, on all addresses.
        version = subprocess.check_output([Path(ASSETS) / "kube-controller-manager", "--version"], text=True)
        old = ["--port=0"] if int(version.split(".")[1]) < 24 else []
        running.enter_context(
            _program(
                folder, "kube-controller-manager", *old, f"--kubeconfig={folder / 'kubeconfig'}",
                "--leader-elect=false",
                f"--cert-dir={folder}", "--secure-port=0", "--use-service-account-credentials=false",
                f"--service-account-private-key-file={key}",
            )
        )  # fmt: skip
        yield config


def write_kubeconfig(config: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a cluster's configuration into a file that KUBECONFIG names."""
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def _kubeconfig(url: str, certificate: Path, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": {"server": url, "certificate-authority": str(certificate)}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
        "current-context": "real",
    }


@contextmanager
def _program(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([Path(ASSETS) / name, *arguments], stdout=log, stderr=log, cwd=folder)
    try:
        yield
    finally:
        process.kill()  # nothing of it is kept, and an API server whose etcd is gone does not heed SIGTERM
        process.wait()


def _wait_ready(url: str, certificate: Path) -> None:
    deadline, token = time.monotonic() + _START_SECONDS, {"Authorization": f"Bearer {TOKEN}"}
    while time.monotonic() < deadline:
        if certificate.exists():
            with urllib3.PoolManager(ca_certs=str(certificate)) as pool, suppress(urllib3.exceptions.HTTPError):
                if pool.request("GET", f"{url}/readyz", retries=False, headers=token).status == 200:
                    return
        time.sleep(0.2)
    raise TimeoutError("kube-apiserver is not ready")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
