"""A cluster with 20 Deployments of ours, with $TOOLKIT_SCALE 300, each with its ConfigMap and a Lease.

Half of them wait for a node that there is not.

`status`, `plan` and `deploy` of one more, in processes of their own: requests and memory; time is printed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from manifests import deployment, manifest, namespace
from real_server import WITHOUT, real_server, write_kubeconfig

from toolkit.platforms.kubernetes.cluster import path
from toolkit.platforms.kubernetes.session import SESSION

TESTS = Path(__file__).parents[1]
WHOLE = bool(os.environ.get("TOOLKIT_SCALE"))
DEPLOYMENTS = 300 if WHOLE else 20
RECIPE = TESTS.parent / "recipes/qwen3-32b/draft-model-trn2-eks.yaml"
NAME = "qwen3-32b-draft-model-trn2-eks"
# Of `status`: the Deployments and the groups of several nodes; and ReplicaSets, pods and events of the two namespaces
# in which some are not in service. A plan asks once for each kind that may be there, those of routing too.
MOST_REQUESTS = {"status": 8, "plan": 30, "deploy": 50}
MOST_MEGABYTES = 200.0
PROGRAM = """
import json, pathlib, re, sys, time, urllib3
import toolkit
from toolkit.apply.progress import Silent

waiting, found = 0, 0
send, asked = urllib3.PoolManager.request, []
def counted(pool, method, url, *args, **options):
    asked.append(f"{method} {url}")
    return send(pool, method, url, *args, **options)
urllib3.PoolManager.request = counted

what, recipe = sys.argv[1:]
began = time.perf_counter()
if what == "status":
    listed = toolkit.status(platform="kubernetes").endpoints
    found, waiting = len(listed), sum(item.status == "Creating" for item in listed)
elif what == "plan":
    found = len(toolkit.plan(recipe).changes)
else:
    toolkit.deploy(recipe, wait=False, progress=Silent())
seconds, requests = time.perf_counter() - began, len(asked)
if what == "deploy":
    found = len(toolkit.plan(recipe).changes)
peak = int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps({"found": found, "waiting": waiting, "requests": requests, "seconds": seconds, "peak": peak}))
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What KUBECONFIG names, of this test alone."""
    if WITHOUT:
        pytest.skip(WITHOUT)
    folder = tmp_path / "control-plane"
    folder.mkdir()
    with real_server(folder) as config:
        write_kubeconfig(config, tmp_path, monkeypatch)
        yield


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("cluster")
def test_one_among_many_costs_what_one_alone_does(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    alone = {what: _done(what, _recipe(tmp_path, "first")) for what in ("plan", "deploy", "status")}
    _fill(DEPLOYMENTS)
    among = {what: _done(what, _recipe(tmp_path, "one-more")) for what in ("plan", "deploy", "status")}
    for what, cost in among.items():
        print(
            f"\n{request.node.name}: {what} with {DEPLOYMENTS} more: {cost['requests']} requests (alone "
            f"{alone[what]['requests']}), {cost['seconds']:.2f} s ({alone[what]['seconds']:.2f}), {cost['peak']:.0f} MB"
        )
        assert alone[what]["requests"] <= MOST_REQUESTS[what]
        assert cost["requests"] <= (MOST_REQUESTS[what] if what == "status" else alone[what]["requests"])
        assert cost["peak"] < MOST_MEGABYTES
    assert among["status"]["found"] == alone["status"]["found"] + DEPLOYMENTS + 1
    assert among["status"]["waiting"] >= DEPLOYMENTS // 2
    assert among["plan"]["found"]
    assert not among["deploy"]["found"]


def _fill(count: int) -> None:
    cluster = SESSION.open("/ml").cluster
    cluster.apply(path("Namespace", "", "ml"), namespace().request)
    for number in range(count):
        name = f"chat-{number}"
        lease = {"metadata": {"name": f"toolkit-{name}", "labels": {"app.kubernetes.io/managed-by": "toolkit"}}}
        cluster.call("POST", path("Lease", "ml"), {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
        script = manifest("ConfigMap", f"{name}-1", instance=name, data={"serve": "print()\n" * 200})
        # Without pods it is in service without a node.
        for item in (script, deployment(name=name, replicas=number % 2)):
            cluster.apply(path(item.kind, "ml", item.name), item.request)


def _recipe(folder: Path, name: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(RECIPE.read_text().replace(f"name: {NAME}", f"name: {name}", 1))
    shutil.copy(RECIPE.with_suffix(".lock.json"), path.with_suffix(".lock.json"))
    return path


def _done(what: str, recipe: Path) -> dict[str, float]:
    command = [sys.executable, "-c", PROGRAM, what, str(recipe)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cost: dict[str, float] = json.loads(done.stdout)
    return cost
