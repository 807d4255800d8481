"""What keeps a pod from coming up, by its status."""

from __future__ import annotations

import pytest

from toolkit.apply.diagnose import diagnose
from toolkit.platforms.kubernetes.pods import trouble_of, worst


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("Evicted", "The node was low on resource: ephemeral-storage. Container engine was using 90Gi.", "node-disk"),
        ("Evicted", "The node had condition: [MemoryPressure]. ", "node-memory"),
        ("NodeLost", "Node ip-10-0-1-7 which was running pod chat-5c9d is unresponsive", "node-lost"),
        ("UnexpectedAdmissionError", "Allocate failed due to no healthy devices present", "device-admission"),
        ("OutOfmemory", "Node didn't have enough resource: memory", "node-memory"),
    ],
)
def test_a_pod_that_failed_as_a_whole_tells_why(reason: str, message: str, cause: str) -> None:
    trouble = trouble_of({"status": {"phase": "Failed", "reason": reason, "message": message}}, ())
    assert trouble
    assert trouble.text == f"{reason}: {message}"
    found = diagnose((), trouble.text, "kubernetes")
    assert found
    assert found.code == cause


KILLED = [
    {"reason": "Unhealthy", "message": "Startup probe failed: statuscode: 503"},
    {"reason": "Killing", "message": "Container engine failed startup probe, will be restarted"},
]
DRAINED = {"terminated": {"exitCode": 0, "reason": "Completed"}}


AGAIN = {"state": {"running": {}}, "lastState": DRAINED, "restartCount": 1}


@pytest.mark.parametrize(
    ("status", "said", "certain"),
    [
        ({**AGAIN, "started": False}, "Unhealthy: Startup probe failed", True),
        ({**AGAIN, "started": True}, "Unhealthy: Startup probe failed", False),
        ({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "slow"}}}, "ImagePullBackOff: slow", False),
    ],
    ids=["ended by the probe", "started again", "another trouble"],
)
def test_a_probe_that_failed_once_hides_nothing_of_now(status: dict[str, object], said: str, certain: bool) -> None:
    """Its event is kept for an hour; what initializes a pod always ends with 0."""
    initialized = {"name": "cache", "state": DRAINED, "restartCount": 0, "started": False}
    statuses = {"initContainerStatuses": [initialized], "containerStatuses": [{"name": "engine", **status}]}
    trouble = trouble_of({"status": statuses}, KILLED)
    assert trouble
    assert trouble.text.startswith(said)
    assert trouble.certain == certain


def test_of_several_pods_what_is_certain_is_told_first() -> None:
    def pulling(image: str) -> tuple[dict[str, object], list[dict[str, str]]]:
        waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": image}}}
        return {"status": {"containerStatuses": [waiting]}}, []

    killed: tuple[dict[str, object], list[dict[str, str]]] = (
        {"status": {"containerStatuses": [{**AGAIN, "started": False}]}},
        KILLED,
    )
    told = [worst(pods) for pods in ([pulling("a"), pulling("b")], [pulling("a"), killed], [])]
    assert [one and one.text.partition(": ")[::2] for one in told] == [
        ("ImagePullBackOff", "a"),
        ("Unhealthy", "Startup probe failed: statuscode: 503"),
        None,
    ]
