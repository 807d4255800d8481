"""Pods run on a genuine control plane as the toolkit has rendered them, with a stand-in for vLLM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from container import NETWORK
from node import Node
from pairs import recipe_with
from rendering import recipe_file
from waiting import until

import toolkit
from toolkit.apply.progress import Silent
from toolkit.errors import EndpointFailed
from toolkit.platforms.kubernetes.cluster import path

pytestmark = pytest.mark.allow_hosts(["127.0.0.1", NETWORK])


def restarts(node: Node) -> int:
    """How often its pods were started again."""
    statuses = [item.get("status", {}).get("containerStatuses", []) for item in node.pods.values()]
    return sum(item["restartCount"] for found in statuses for item in found)


def test_a_volume_that_is_mounted_for_root_alone_is_told_of(node: Node, namespace: str, tmp_path: Path) -> None:
    """One of another's making: the toolkit's own has `allow-other`."""
    parts = toolkit.render(recipe_file(tmp_path, "mounted", namespace, weights_bucket="our-models"))
    (tmp_path / "buckets/our-models").mkdir(parents=True)
    secret(node)
    for item in (item for part in ("base", "serve") for item in parts[part]):
        if item["kind"] == "PersistentVolume":
            item["spec"]["mountOptions"].remove("allow-other")
        place = path(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        node.cluster.apply(place, item)
    until(lambda: restarts(node))
    explained = toolkit.explain(toolkit.connect("mounted", platform="kubernetes").logs())
    assert explained.cause == "mounted-for-root"
    assert "allow-other" in explained.hint


def test_a_pod_that_never_becomes_healthy_is_told_by_its_probe(node: Node, namespace: str, tmp_path: Path) -> None:
    recipe = toolkit.load(recipe_file(tmp_path, "unhealthy", namespace))
    engine = recipe.engine.edit(env={"PING": "503"})
    unhealthy = replace(recipe_with(recipe, health_check_timeout=60), engine=engine)
    secret(node)
    with pytest.raises(EndpointFailed, match="Unhealthy: Startup probe failed: "):  # 503, or nobody there yet
        toolkit.deploy(unhealthy, progress=Silent())
    (status,) = toolkit.status(unhealthy)
    assert status.status == "Failed"
    assert "Unhealthy: Startup probe failed: " in status.failure_reason


def secret(node: Node) -> None:
    """The hub's token, which recipes of these tests name; and the namespace that holds it."""
    namespace = node.cluster.namespace
    node.cluster.call("POST", path("Namespace", ""), {"metadata": {"name": namespace}})
    item = {"metadata": {"name": "hub"}, "stringData": {"token": "hf_token"}}
    node.cluster.call("POST", f"/api/v1/namespaces/{namespace}/secrets", item)
