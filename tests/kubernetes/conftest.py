"""A genuine control plane for the session, and in it a namespace for each test, whose pods do what the test says."""

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
from node import Node
from pod_volumes import Storage
from real_server import KUBECTL, WITHOUT, real_server, write_kubeconfig
from rendering import Kubectl
from scripted_node import ScriptedNode

from toolkit.platforms.kubernetes.cluster import Cluster, path
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.session import SESSION

STANDIN_VLLM = Path(__file__).parents[1] / "images" / "standin_vllm.py"


@pytest.fixture(scope="session")
def _real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    if WITHOUT:
        pytest.skip(WITHOUT)
    with real_server(tmp_path_factory.mktemp("control-plane")) as config:
        yield config


@pytest.fixture
def kubeconfig(_real: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its administrator's, in KUBECONFIG."""
    return write_kubeconfig(_real, tmp_path, monkeypatch)


@pytest.fixture
def namespace() -> str:
    return f"test-{os.urandom(4).hex()}"


@pytest.fixture
def kubelet(kubeconfig: Path, namespace: str) -> Iterator[ScriptedNode]:
    """Of the test's namespace."""
    cluster = SESSION.open(f"/{namespace}").cluster
    with ScriptedNode(cluster) as node:
        yield node
        _quiet(cluster)


@pytest.fixture
def answering(kubelet: ScriptedNode) -> ScriptedNode:
    """Its pods have an address, behind which is its `backend`."""
    if why_not():
        pytest.skip(why_not())
    kubelet.serves = True
    return kubelet


@pytest.fixture
def platform(kubelet: ScriptedNode, namespace: str) -> KubernetesPlatform:
    """Of the test's namespace. While it waits its pods go on."""

    def sleep(_: float) -> None:
        kubelet.turn()
        time.sleep(0.01)

    return replace(SESSION.open(f"/{namespace}"), sleep=sleep)


def _quiet(cluster: Cluster) -> None:
    """Leave nothing that keeps controllers busy, or that later tests would list as an endpoint."""
    options = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
    for kind in ("HorizontalPodAutoscaler", "Job", "Deployment", "ReplicaSet", "Pod"):
        cluster.call("DELETE", path(kind, cluster.namespace), options)


@pytest.fixture
def kubectl(kubeconfig: Path) -> Kubectl:
    """Runs the genuine kubectl, and gives what it prints."""
    if not KUBECTL:
        pytest.skip("NOT TESTED: it takes kubectl, on the path or in $KUBEBUILDER_ASSETS")
    program = KUBECTL

    def kubectl(*arguments: str | Path) -> str:
        done = subprocess.run([program, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return kubectl


@pytest.fixture
def node(kubeconfig: Path, namespace: str, tmp_path: Path) -> Iterator[Node]:
    """Runs the pods of the namespace; vLLM is its stand-in. Buckets are in `tmp_path`."""
    if why_not():
        pytest.skip(why_not())
    python_path = tmp_path / "python-path"
    for package in ("vllm", "vllm/entrypoints", "vllm/entrypoints/openai"):
        (python_path / package).mkdir(parents=True)
        (python_path / package / "__init__.py").touch()
    shutil.copy(STANDIN_VLLM, python_path / "vllm/entrypoints/openai/api_server.py")
    with Node(SESSION.open(f"/{namespace}").cluster, Storage(tmp_path / "buckets"), 20.0, python_path) as node:
        yield node
