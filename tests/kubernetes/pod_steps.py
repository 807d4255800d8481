"""What a kubelet says of a pod, one step at a time: its status, its events, what its container writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CONTAINER = "engine"


@dataclass(frozen=True)
class Step:
    """What is new: parts of the pod's status, events as (reason, message), lines of the container's present start."""

    status: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[tuple[str, str]] = ()
    lines: Sequence[str] = ()


def _condition(name: str, holds: bool, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": name, "status": str(holds), "reason": reason, "message": message}


_SCHEDULED = _condition("PodScheduled", True)


def container(
    state: Mapping[str, Any], restarts: int = 0, last: Mapping[str, Any] | None = None, name: str = CONTAINER
) -> dict[str, Any]:
    """A container's status."""
    return {"name": name, "restartCount": restarts, "state": dict(state), "lastState": dict(last or {})}


def unschedulable(message: str) -> Step:
    conditions = [_condition("PodScheduled", False, "Unschedulable", message)]
    return Step({"phase": "Pending", "conditions": conditions}, [("FailedScheduling", message)])


def scheduled() -> Step:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    status = {"conditions": [_SCHEDULED], "containerStatuses": [container(waiting)]}
    return Step(status, [("Scheduled", "Successfully assigned pod to node-1"), ("Pulling", 'Pulling image "vllm"')])


def started(*lines: str, restarts: int = 0, last: Mapping[str, Any] | None = None) -> Step:
    running: dict[str, Any] = {"running": {}}
    events = [("Pulled", 'Successfully pulled image "vllm" in 1m30s'), ("Started", "Started container engine")]
    return Step({"phase": "Running", "containerStatuses": [container(running, restarts, last)]}, events, lines)


def ready(*lines: str) -> Step:
    return Step({"phase": "Running", "conditions": [_SCHEDULED, _condition("Ready", True)]}, (), lines)


def not_ready() -> Step:
    return Step({"conditions": [_SCHEDULED, _condition("Ready", False)]})


def waits(reason: str, message: str, *events: tuple[str, str]) -> Step:
    """The container cannot be made, or its image not be had."""
    waiting = {"waiting": {"reason": reason, "message": message}}
    return Step({"conditions": [_SCHEDULED], "containerStatuses": [container(waiting)]}, events)


def crashed(code: int, *lines: str, reason: str = "Error", restarts: int = 0) -> Step:
    """The container ends, and waits for its next start."""
    ended = {"terminated": {"exitCode": code, "reason": reason}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}
    return Step({"containerStatuses": [container(waiting, restarts, ended)]}, (), lines)


def running(*lines: str, name: str = CONTAINER) -> Step:
    """The container of a Job's pod works."""
    state: dict[str, Any] = {"running": {}}
    return Step({"phase": "Running", "containerStatuses": [container(state, name=name)]}, (), lines)


def exited(code: int, *lines: str, name: str = CONTAINER) -> Step:
    """The container of a pod that starts it once has ended; its last lines are its message (FallbackToLogsOnError)."""
    state = {"terminated": {"exitCode": code, "message": "\n".join(lines) if code else ""}}
    phase = "Failed" if code else "Succeeded"
    return Step({"phase": phase, "containerStatuses": [container(state, name=name)]}, (), lines)


def probe_killed(message: str, code: int = 137) -> Step:
    events = [("Unhealthy", f"Startup probe failed: {message}"), ("Killing", "Container engine failed startup probe")]
    return Step(crashed(code).status, events)


HEALTHY = (scheduled(), started("INFO non-default args: {}"), ready("INFO Application startup complete."))
"""A pod that comes up."""
