"""A process that was stopped for longer than its lease lasts changes nothing more in a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from json import dumps
from pathlib import Path
from typing import Any

import pytest
from manifests import config_map, endpoint, namespace
from urllib3.exceptions import ReadTimeoutError

from toolkit.errors import PlatformError
from toolkit.platforms.kubernetes.cluster import Cluster, annotations_of, path
from toolkit.platforms.kubernetes.execute import Objects
from toolkit.platforms.kubernetes.lease import ClusterLease
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.session import SESSION
from toolkit.platforms.lease import Rules, lease, this_process

HOLDER = "toolkit/holder"
LEASE_SECONDS = 4.0


def config(text: str, where: Cluster) -> dict[str, Any]:
    return {**config_map(text, namespace=where.namespace).request, "immutable": False}


def text_of(cluster: Cluster) -> str:
    found = cluster.find(path("ConfigMap", cluster.namespace, "chat-1"))
    return found["data"]["serve"] if found else ""


def stop_for_long(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has the lease when this one goes on."""
    real = time.clock_gettime
    monkeypatch.setattr("time.clock_gettime", lambda which: real(which) + 400.0)
    there = cluster.call("GET", path("Lease", cluster.namespace, "toolkit-chat"))
    theirs = dumps(asdict(replace(this_process(), machine="another")))
    there["metadata"]["annotations"] = {**annotations_of(there), HOLDER: theirs}
    cluster.call("PUT", path("Lease", cluster.namespace, "toolkit-chat"), there)


def test_every_request_that_changes_something_is_fenced(
    platform: KubernetesPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, objects = platform.cluster, Objects(platform.cluster)
    with platform.lease("chat"):
        objects.put("Namespace", namespace(cluster.namespace).request)
        objects.put("ConfigMap", config("mine", cluster))
        stop_for_long(cluster, monkeypatch)
        assert text_of(cluster) == "mine"
        cluster.apply(path("ConfigMap", cluster.namespace, "chat-1"), config("tried", cluster), dry_run=True)
        with pytest.raises(PlatformError, match="chat is being changed by"):
            objects.put("ConfigMap", config("late", cluster))
        with pytest.raises(PlatformError, match="chat is being changed by"):
            objects.put("ConfigMap", {**config_map(name="chat-2", namespace=cluster.namespace).request})
        with pytest.raises(PlatformError, match="chat is being changed by"):
            objects.delete("ConfigMap", "chat-1")
    assert text_of(cluster) == "mine"
    objects.put("ConfigMap", config("later", cluster))
    assert text_of(cluster) == "later"


def test_a_request_that_did_not_get_through_is_fenced_when_it_is_sent_again(platform: KubernetesPlatform) -> None:
    cluster = platform.cluster
    cluster.apply(path("Namespace", "", cluster.namespace), namespace(cluster.namespace).request)
    asked: list[int] = []

    def confirm() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise PlatformError("lost")

    pool = cluster.client.rest_client.pool_manager.connection_from_url(cluster.url)
    make = pool._make_request

    def breaks(*arguments: Any, **options: Any) -> Any:
        make(*arguments, **options).release_conn()
        raise ReadTimeoutError(pool, "", "gone while this process was stopped")

    pool._make_request = breaks
    with cluster.confirmed(confirm), pytest.raises(PlatformError, match="lost"):
        cluster.call("DELETE", path("ConfigMap", cluster.namespace, "none"))


@contextmanager
def stopped_as_it_sends(cluster: Cluster, then: str) -> Iterator[None]:
    """Somebody takes the lease over and writes `then`, after it was confirmed and before the request arrives."""
    other, confirmed = SESSION.open(f"/{cluster.namespace}").cluster, list[int]()

    def confirm() -> None:
        if confirmed:
            raise PlatformError("chat is being changed by another")
        confirmed.append(1)
        if then:
            Objects(other).put("ConfigMap", config(then, other))
        else:
            Objects(other).delete("ConfigMap", "chat-1")

    with cluster.confirmed(confirm):
        yield


@pytest.mark.parametrize("then", ["theirs", ""], ids=["changed", "deleted"])
def test_what_was_changed_since_it_was_looked_at_is_not_written(platform: KubernetesPlatform, then: str) -> None:
    cluster, objects = platform.cluster, Objects(platform.cluster)
    objects.put("Namespace", namespace(cluster.namespace).request)
    objects.put("ConfigMap", config("before", cluster))
    with stopped_as_it_sends(cluster, then), pytest.raises(PlatformError, match="being changed by another"):
        objects.put("ConfigMap", config("mine", cluster))
    assert text_of(cluster) == then


def test_what_was_changed_since_it_was_looked_at_is_not_deleted(platform: KubernetesPlatform) -> None:
    cluster, objects = platform.cluster, Objects(platform.cluster)
    objects.put("Namespace", namespace(cluster.namespace).request)
    objects.put("ConfigMap", config("before", cluster))
    with stopped_as_it_sends(cluster, "theirs"), pytest.raises(PlatformError, match="being changed by another"):
        objects.delete("ConfigMap", "chat-1")
    assert text_of(cluster) == "theirs"


def test_what_controllers_write_meanwhile_does_not_stand_in_the_way(platform: KubernetesPlatform) -> None:
    objects = Objects(platform.cluster)
    for image in ("vllm:1", "vllm:2", "vllm:3"):
        for item in endpoint(image, namespace_=platform.cluster.namespace):
            objects.put(item.kind, item.request)
    objects.delete("Deployment", "chat")
    assert platform.cluster.find(path("Deployment", platform.cluster.namespace, "chat")) is None


@pytest.mark.timeout(120)
def test_a_process_that_is_stopped_and_resumed_writes_nothing_more(platform: KubernetesPlatform) -> None:
    cluster, objects = platform.cluster, Objects(platform.cluster)
    objects.put("Namespace", namespace(cluster.namespace).request)
    program = Path(__file__).with_name("lease_holder.py")
    command = [sys.executable, str(program), cluster.namespace, str(LEASE_SECONDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert _answer(holder) == "held"
        assert _answer(holder, "first") == "written"
        os.kill(holder.pid, signal.SIGSTOP)
        rules = Rules(LEASE_SECONDS, LEASE_SECONDS / 5, LEASE_SECONDS / 10)
        with lease("chat", ClusterLease(cluster, "chat", time.monotonic, time.sleep, rules)):
            objects.put("ConfigMap", config("theirs", cluster))
            os.kill(holder.pid, signal.SIGCONT)
            assert _answer(holder, "late").startswith("chat is being changed by")
        holder.stdin.close()  # type: ignore[union-attr]
    assert text_of(cluster) == "theirs"


def _answer(holder: subprocess.Popen[str], text: str = "") -> str:
    assert holder.stdin
    assert holder.stdout
    if text:
        print(text, file=holder.stdin, flush=True)
    return holder.stdout.readline().strip()
