"""A stand-in for a cluster, empty for each test, and a genuine API server for the session where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from container import why_not
from fakes import FakeClock
from node import Node
from real_server import ASSETS, real_server, write_kubeconfig
from rendering import Kubectl
from standin_cluster import StandInCluster

from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.session import SESSION

NAMESPACE = "ml"
STANDIN_VLLM = Path(__file__).parents[1] / "images" / "standin_vllm.py"


@pytest.fixture
def standin() -> Iterator[StandInCluster]:
    with StandInCluster() as cluster:
        yield cluster


@pytest.fixture
def kubeconfig(standin: StandInCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, in KUBECONFIG."""
    return write_kubeconfig(standin.kubeconfig(), tmp_path, monkeypatch)


@pytest.fixture
def platform(kubeconfig: Path) -> KubernetesPlatform:
    """The stand-in's platform, which does not wait between two looks."""
    return quick(SESSION.open(f"/{NAMESPACE}"))


@pytest.fixture(scope="session")
def _real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with real_server(tmp_path_factory.mktemp("control-plane")) as config:
        yield config


@pytest.fixture
def kubectl(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """Runs the genuine kubectl against the genuine server, and gives what it prints."""
    if not ASSETS or not shutil.which("kubectl"):
        pytest.skip("NOT TESTED: it takes kubectl, and a kube-apiserver in KUBEBUILDER_ASSETS")
    write_kubeconfig(request.getfixturevalue("_real"), tmp_path, monkeypatch)

    def kubectl(*arguments: str | Path) -> str:
        done = subprocess.run(["kubectl", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return kubectl


@pytest.fixture
def namespace() -> str:
    return f"rendered-{os.urandom(4).hex()}"


@pytest.fixture
def node(
    request: pytest.FixtureRequest, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Node]:
    """Runs the pods of the namespace on the genuine server; vLLM is its stand-in. Buckets are in `tmp_path`."""
    if not ASSETS or why_not():
        pytest.skip(why_not() or "NOT TESTED: KUBEBUILDER_ASSETS names no kube-apiserver")
    write_kubeconfig(request.getfixturevalue("_real"), tmp_path, monkeypatch)
    python_path = tmp_path / "python-path"
    for package in ("vllm", "vllm/entrypoints", "vllm/entrypoints/openai"):
        (python_path / package).mkdir(parents=True)
        (python_path / package / "__init__.py").touch()
    shutil.copy(STANDIN_VLLM, python_path / "vllm/entrypoints/openai/api_server.py")
    with Node(SESSION.open(f"/{namespace}").cluster, tmp_path / "buckets", 20.0, python_path) as node:
        yield node


@pytest.fixture(params=["stand-in", "kube-apiserver"])
def either(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KubernetesPlatform:
    """Each rule is asked of the stand-in, and of a genuine server where KUBEBUILDER_ASSETS has one."""
    place = f"/rules-{os.urandom(4).hex()}"
    if request.param == "stand-in":
        request.getfixturevalue("kubeconfig")
        return quick(SESSION.open(place))
    if not ASSETS:
        pytest.skip("KUBEBUILDER_ASSETS names no kube-apiserver")
    write_kubeconfig(request.getfixturevalue("_real"), tmp_path, monkeypatch)
    return replace(SESSION.open(place), sleep=lambda _: time.sleep(0.02))


def quick(platform: KubernetesPlatform) -> KubernetesPlatform:
    clock = FakeClock()
    return replace(platform, clock=clock, sleep=clock.sleep)
