"""One change of an endpoint at a time."""

from __future__ import annotations

import pytest
from fakes import FakeClock

from toolkit.errors import PlatformError
from toolkit.platforms.kubernetes.kinds import address
from toolkit.platforms.kubernetes.lease import lease
from toolkit.platforms.kubernetes.platform import KubernetesPlatform


def leases(platform: KubernetesPlatform) -> list[str]:
    found = platform.cluster.items(address("coordination.k8s.io/v1", "leases", platform.namespace), {})
    return [item["metadata"]["name"] for item in found]


def theirs(platform: KubernetesPlatform, holder: str = "ann@laptop 1234") -> str:
    """A lease of somebody else, and where it is."""
    folder = address("coordination.k8s.io/v1", "leases", platform.namespace)
    with platform.lease("other"):  # which makes the namespace
        pass
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "toolkit-chat"}}
    platform.cluster.call("POST", folder, {**head, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 30}})
    return f"{folder}/toolkit-chat"


def test_it_is_held_and_given_back(either: KubernetesPlatform) -> None:
    with either.lease("chat"):
        assert leases(either) == ["toolkit-chat"]
    assert leases(either) == []


def test_who_renews_it_keeps_others_out(either: KubernetesPlatform) -> None:
    place, clock = theirs(either), FakeClock()

    def renewed(seconds: float) -> None:
        clock.sleep(seconds)
        there = either.cluster.call("GET", place)
        there["spec"]["renewTime"] = "2026-11-21T12:00:00.000000Z"
        either.cluster.call("PUT", place, there)

    with (
        pytest.raises(PlatformError, match="chat is being changed by ann@laptop"),
        lease(either.cluster, either.namespace, "chat", clock, renewed),
    ):
        pass


def test_one_that_nobody_renews_is_taken_over_after_its_time(either: KubernetesPlatform) -> None:
    theirs(either)
    clock = FakeClock()
    with lease(either.cluster, either.namespace, "chat", clock, clock.sleep):
        assert 30 < clock.seconds < 40
    assert leases(either) == []


def test_two_threads_of_one_process_do_not_share_it(platform: KubernetesPlatform) -> None:
    clock = FakeClock()
    with platform.lease("chat"):
        (name,) = leases(platform)
        there = platform.cluster.call("GET", address("coordination.k8s.io/v1", "leases", "ml", name))

        def renewed(seconds: float) -> None:
            clock.sleep(seconds)
            platform.cluster.call("PUT", address("coordination.k8s.io/v1", "leases", "ml", name), _later(there))

        with (
            pytest.raises(PlatformError, match="is being changed by"),
            lease(platform.cluster, "ml", "chat", clock, renewed),
        ):
            pass


def _later(there: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """The same, renewed, whatever its version is now."""
    metadata = {key: value for key, value in there["metadata"].items() if key != "resourceVersion"}
    return {**there, "metadata": metadata, "spec": {**there["spec"], "renewTime": "2026-11-21T12:00:00.000000Z"}}
