"""One change of an endpoint at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from fakes import FakeClock

from toolkit.errors import PlatformError
from toolkit.platforms.kubernetes.cluster import path
from toolkit.platforms.kubernetes.lease import ClusterLease
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules.metadata import OURS
from toolkit.platforms.lease import lease, this_process


def lease_of(
    platform: KubernetesPlatform, clock: Callable[[], float], sleep: Callable[[float], None]
) -> AbstractContextManager[None]:
    store = ClusterLease(platform.cluster, "chat", clock, sleep)
    return lease("chat", store, clock, sleep)


def leases(platform: KubernetesPlatform) -> list[str]:
    found = platform.cluster.items(path("Lease", platform.cluster.namespace), {})
    return [item["metadata"]["name"] for item in found]


def theirs(platform: KubernetesPlatform, holder: str = "ann@laptop 1234", *, ours: bool = True) -> str:
    """A lease that somebody else holds, and where it is; not one of the toolkit's without `ours`."""
    folder = path("Lease", platform.cluster.namespace)
    with platform.lease("other"):  # which makes the namespace
        pass
    metadata = {"name": "toolkit-chat", "labels": OURS if ours else {}}
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    platform.cluster.call("POST", folder, {**head, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 30}})
    return f"{folder}/toolkit-chat"


def test_it_is_held_and_given_back(platform: KubernetesPlatform) -> None:
    with platform.lease("chat"):
        assert leases(platform) == ["toolkit-chat"]
    assert leases(platform) == []


def test_who_renews_it_keeps_others_out(platform: KubernetesPlatform) -> None:
    place, clock = theirs(platform), FakeClock()

    def renewed(seconds: float) -> None:
        clock.sleep(seconds)
        there = platform.cluster.call("GET", place)
        there["spec"]["renewTime"] = "2026-11-21T12:00:00.000000Z"
        platform.cluster.call("PUT", place, there)

    with (
        pytest.raises(PlatformError, match="chat is being changed by ann@laptop"),
        lease_of(platform, clock, renewed),
    ):
        pass


def test_one_that_nobody_renews_is_taken_over_after_its_time(platform: KubernetesPlatform) -> None:
    theirs(platform)
    clock = FakeClock()
    with lease_of(platform, clock, clock.sleep):
        assert 30 < clock.seconds < 40
    assert leases(platform) == []


def test_that_of_a_dead_process_of_this_machine_ends_at_once(platform: KubernetesPlatform) -> None:
    clock = FakeClock()
    with platform.lease("other"):  # which makes the namespace
        pass
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = ClusterLease(platform.cluster, "chat", clock, clock.sleep)
    assert store.create(replace(this_process(), pid=ended.pid))
    with lease_of(platform, clock, clock.sleep):
        assert clock.seconds == 0


def test_one_that_somebody_else_made_stays_theirs(platform: KubernetesPlatform) -> None:
    place = theirs(platform, ours=False)
    with (
        pytest.raises(PlatformError, match="Lease toolkit-chat was not created by the toolkit"),
        platform.lease("chat"),
    ):
        pass
    assert platform.cluster.find(place)


def test_two_threads_of_one_process_do_not_share_it(platform: KubernetesPlatform) -> None:
    clock = FakeClock()
    with platform.lease("chat"):
        (name,) = leases(platform)
        there = platform.cluster.call("GET", path("Lease", platform.cluster.namespace, name))

        def renewed(seconds: float) -> None:
            clock.sleep(seconds)
            platform.cluster.call("PUT", path("Lease", platform.cluster.namespace, name), _later(there))

        with (
            pytest.raises(PlatformError, match="is being changed by"),
            lease_of(platform, clock, renewed),
        ):
            pass


def _later(there: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """The same, renewed, whatever its version is now."""
    metadata = {key: value for key, value in there["metadata"].items() if key != "resourceVersion"}
    return {**there, "metadata": metadata, "spec": {**there["spec"], "renewTime": "2026-11-21T12:00:00.000000Z"}}
