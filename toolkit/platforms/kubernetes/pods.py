"""What keeps a pod from coming up, read from its status and its events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]

# Reasons of kubelet's pkg/kubelet/images/types.go and pkg/kubelet/container/sync_result.go.
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ImageInspectError", "ErrImageNeverPull")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_CERTAIN_OF_IMAGE = re.compile(r"InvalidImageName|not found|manifest unknown|denied|nauthorized|forbidden|no match for")
# A Secret or a key that is not there, a program that the image does not have; not a busy container runtime.
_CERTAIN_OF_CONFIG = re.compile(r"not found|couldn't find key")
# Claims of ours, whose names end with a digest, are made just before the pod: a scheduler may not know them yet.
_CERTAIN_OF_SCHEDULING = re.compile(
    r"device class .* does not exist|persistentvolumeclaim \"(?![^\"]*-[0-9a-f]{8}\")[^\"]+\" not found"
)
# Started three times: another start would end alike.
_CERTAIN_RESTARTS = 2
_EVENTS = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedPrepareDynamicResources", "Unhealthy")

# Events of what makes pods, of which the last tells: those of StatefulSets and Jobs, and LeaderWorkerSet's.
_REFUSED = "FailedCreate"
_TRIED = (_REFUSED, "SuccessfulCreate", "GroupsProgressing")
OUT_OF_QUOTA = "exceeded quota: "
"""In the words of the API server's admission plugin ResourceQuota."""


@dataclass(frozen=True)
class Trouble:
    """Why it does not come up, as `Reason: message`. `certain` says that waiting does not help."""

    text: str
    certain: bool = False

    @property
    def is_crash(self) -> bool:
        """Whether the container ended by itself, and its log says why."""
        return self.text.startswith("CrashLoopBackOff")


def worst(pods: Iterable[tuple[Document, Sequence[Document]]]) -> Trouble | None:
    """Of pods with their events, the trouble that is certain, else the first."""
    troubles = [trouble for pod, events in pods if (trouble := trouble_of(pod, events))]
    return next((trouble for trouble in troubles if trouble.certain), troubles[0] if troubles else None)


def trouble_of(pod: Document, events: Sequence[Document]) -> Trouble | None:
    """What keeps the pod from being ready; None when nothing is known to."""
    if is_ready(pod):
        return None
    status = pod.get("status", {})
    if status.get("phase") == "Failed" and status.get("reason"):  # Evicted, NodeLost, UnexpectedAdmissionError, …
        return Trouble(f"{status['reason']}: {status.get('message', '')}")
    for container in containers(pod):
        if trouble := _of_container(container, events):
            return trouble
    scheduled = condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        message = scheduled.get("message", "")
        return Trouble(f"Unschedulable: {message}", bool(_CERTAIN_OF_SCHEDULING.search(message)))
    last = next((event for event in reversed(events) if event.get("reason") in _EVENTS), None)
    return Trouble(f"{last['reason']}: {last.get('message', '')}") if last else None


def last_refused(events: Sequence[Document]) -> Document | None:
    """The event of the last try to make a pod, where that was refused; they are those of what makes it."""
    tried = [event for event in events if event.get("reason") in _TRIED]
    return tried[-1] if tried and tried[-1]["reason"] == _REFUSED else None


def refusal(said: Document) -> Trouble:
    """What such an event, or a condition, says."""
    message = said.get("message", "")
    certain = "is forbidden: " in message or " is invalid: " in message  # the next pod would be the same
    return Trouble(f"{said.get('reason', _REFUSED)}: {message}", certain)


def containers(pod: Document) -> list[Document]:
    """Statuses of the containers, those that initialize first."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def is_ready(pod: Document) -> bool:
    return condition(pod.get("status", {}), "Ready").get("status") == "True"


def condition(status: Document, name: str) -> Document:
    """A condition of an object's status, empty when it has none of that type."""
    return next((item for item in status.get("conditions") or [] if item.get("type") == name), {})


def instances(container: Document) -> Iterator[tuple[int, bool]]:
    """The starts of a container whose logs the kubelet still has: number, and whether it is asked for as the previous.

    While it waits for its next start, the one that ended is the previous already, and stays so when the next one begins
    (validateContainerLogStatus in kubernetes' pkg/kubelet/kubelet_pods.go).
    """
    state, number = container.get("state") or {}, container.get("restartCount", 0)
    if "waiting" in state:
        if number or (container.get("lastState") or {}).get("terminated"):
            yield number, True
        return
    if number:
        yield number - 1, True
    yield number, False


def _of_container(container: Document, events: Sequence[Document]) -> Trouble | None:
    state, restarts = container.get("state") or {}, container.get("restartCount", 0)
    waiting = state.get("waiting") or {}
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _IMAGE:
        pull = (event.get("message", "") for event in reversed(events) if event.get("reason") == "Failed")
        text = f"{reason}: {next(pull, message)}"
        return Trouble(text, bool(_CERTAIN_OF_IMAGE.search(text)))
    if reason in _CONFIG:
        certain = bool(_CERTAIN_OF_CONFIG.search(message))
        return Trouble(f"{reason}: container {container['name']}: {message}", certain)
    if ended.get("reason") == "OOMKilled":
        return Trouble(f"OOMKilled: container {container['name']} used up its memory limit", restarts > 0)
    # An engine that drains ends with 0, and so does what initializes a pod, which then stays ended.
    was_ended = ended and not container.get("started") and (ended.get("exitCode") or "terminated" not in state)
    if was_ended and (probe := _failed_probe(events)):
        return Trouble(f"Unhealthy: {probe}", certain=True)
    if ended.get("exitCode"):
        times = f", started {restarts + 1} times" if restarts else ""
        text = f"CrashLoopBackOff: container {container['name']} ended with exit code {ended['exitCode']}{times}"
        return Trouble(text, restarts >= _CERTAIN_RESTARTS)
    return None


def _failed_probe(events: Sequence[Document]) -> str:
    """What the startup probe said last, if the kubelet killed the container for it; else empty."""
    if not any(e.get("reason") == "Killing" and "failed startup probe" in e.get("message", "") for e in events):
        return ""
    said = (e.get("message", "") for e in reversed(events) if e.get("reason") == "Unhealthy")
    return next((words for words in said if "Startup" in words), "Startup probe failed")
