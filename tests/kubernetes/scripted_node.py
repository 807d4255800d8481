"""A node of a genuine control plane on which nothing runs: of each pod it says what a script has, step by step."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self
from urllib.parse import urlsplit

from container import new_address
from forwarder import forwarded
from pod_steps import HEALTHY, Step, exited, scheduled
from registered_node import Document, RegisteredNode, now
from watched_threads import watched_threads

from toolkit.platforms.kubernetes.cluster import Cluster, path
from toolkit.platforms.kubernetes.pods import condition

Script = Sequence[Step]
PORT = 8080
_TURN_SECONDS = 0.1


class ScriptedNode(RegisteredNode):
    """`script` is for pods that it sees from now on; a pod stays at the last step. One that nobody owns becomes ready
    if it has a readiness probe, and else ends with exit code 0.

    `endless` keeps deleted pods: they do not drain. With `serves` pods that start have an address, behind which is
    `backend`, whose URL may change. That takes root.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.script: Script = HEALTHY
        self.endless = self.serves = False
        self.backend = ""
        self._lock = threading.Lock()
        self._left: dict[str, list[Step]] = {}
        self._addresses: dict[str, str] = {}
        self._held, self._is_known = ExitStack(), False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def bind(self, pod: Document) -> None:
        """The control plane learns of the node by its first pod: most tests have none."""
        if not self._is_known:
            super().__enter__()
            self._held.callback(super().__exit__)
            self._is_known = True
        super().bind(pod)

    def pods(self) -> list[Document]:
        return self.cluster.items(path("Pod", self.cluster.namespace), {})

    def go_on(self, script: Script) -> None:
        """Pods that it has seen do this next."""
        with self._lock:
            self._left = {uid: [*script] for uid in self._left}

    def turn(self) -> None:
        """Each pod goes one step further; those that are deleted go."""
        with self._lock:
            self._turn()

    def _turn(self) -> None:
        if self._is_known:
            self.keep_alive()
        for pod in self.pods():
            left = self._left.setdefault(pod["metadata"]["uid"], [*self._script_of(pod)])
            if "deletionTimestamp" in pod["metadata"]:
                if not self.endless:
                    self.let_go(pod)
            elif left and (missing := self._missing(pod)):
                self.say(pod, Step({"phase": "Pending"}, events=[("FailedMount", f"{missing} not found")]))
            elif left:
                self.say(pod, left.pop(0))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """It takes its turns by itself, for what waits for pods."""
        over = threading.Event()

        def work() -> None:
            while not over.wait(_TURN_SECONDS):
                self.turn()

        with watched_threads() as start:
            start(work)
            try:
                yield
            finally:
                over.set()

    def say(self, pod: Document, step: Step) -> None:
        """Of a pod, as it was listed."""
        name, status = pod["metadata"]["name"], {**pod.get("status", {}), **step.status}
        if condition(status, "PodScheduled").get("status") == "True" and "nodeName" not in pod["spec"]:
            self.bind(pod)
        for reason, message in step.events:
            self.tell(pod, reason, message)
        number, has_started = _start(status)
        starts = self.logs.setdefault(name, [])
        starts += [[] for _ in range(len(starts), number + 1)] if has_started else []
        for line in step.lines:
            starts[number].append((now(), line))
        if has_started and self.serves:
            address = self._address(name)
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        self.write_status(pod, status)

    def _address(self, pod: str) -> str:
        if pod not in self._addresses:
            self._addresses[pod] = new_address()
            self._held.enter_context(forwarded(self._addresses[pod], PORT, self._target))
        return self._addresses[pod]

    def _target(self) -> tuple[str, int] | None:
        there = urlsplit(self.backend)
        return (there.hostname, there.port) if there.hostname and there.port else None

    def _script_of(self, pod: Document) -> Script:
        if pod["metadata"].get("ownerReferences"):
            return self.script
        (container,) = pod["spec"]["containers"]
        return HEALTHY if "readinessProbe" in container else (scheduled(), exited(0, name=container["name"]))

    def _missing(self, pod: Document) -> str:
        """The first object that the pod cannot start without, and that does not exist."""
        spec, within = pod["spec"], f"/namespaces/{self.cluster.namespace}"
        for place in (*_volumes(spec), *_claims(spec)):
            if self.cluster.find(place.format(within)) is None:
                return place.rpartition("/")[2]
        return ""


def _volumes(spec: Document) -> Iterator[str]:
    for volume in spec.get("volumes", ()):
        if "configMap" in volume:
            yield f"/api/v1{{}}/configmaps/{volume['configMap']['name']}"
        if "persistentVolumeClaim" in volume:
            yield f"/api/v1{{}}/persistentvolumeclaims/{volume['persistentVolumeClaim']['claimName']}"


def _claims(spec: Document) -> Iterator[str]:
    for claim in spec.get("resourceClaims", ()):
        yield f"/apis/resource.k8s.io/v1{{}}/resourceclaimtemplates/{claim['resourceClaimTemplateName']}"


def _start(status: dict[str, Any]) -> tuple[int, bool]:
    """The number of the container's present start, and whether there is one."""
    for container in status.get("containerStatuses") or ():
        return container["restartCount"], "waiting" not in container["state"] or bool(container["lastState"])
    return 0, False
