"""What the scheduler and the kubelet do with one pod of one container, from its creation to its end.

Messages are the kubelet's (pkg/kubelet/kuberuntime, pkg/kubelet/prober). Left out: what container.py leaves out,
containers that initialize, probes but by HTTP, and images, whose place this machine's Python takes.
"""

from __future__ import annotations

import base64
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
from container import Container, Mount, new_address
from kubernetes.client import ApiException
from pod_volumes import Document, mounts
from registered_node import now

from toolkit.platforms.kubernetes.errors import message_of

if TYPE_CHECKING:
    from node import Node

_TURN_SECONDS = 0.05
_BACK_OFF_SECONDS, _MOST_BACK_OFF_SECONDS = 10.0, 300.0
# $(NAME) and $$: third_party/forked/golang/expansion of kubernetes.
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


class PodLife:
    """`answers` says that it would be ready."""

    def __init__(self, node: Node, pod: Document, folder: Path) -> None:
        self._node, self._folder = node, folder
        self._pod, self._name = pod, pod["metadata"]["name"]
        self._spec, (self._container,) = pod["spec"], pod["spec"]["containers"]
        self.address = new_address()
        self._status: Document = {"restartCount": 0, "ready": False, "started": False, "state": {}, "lastState": {}}
        self._logs = node.logs[self._name] = []
        self.answers = False

    def live(self) -> None:
        """Until it is no more, or the node is."""
        (self._folder / "root").mkdir(parents=True)
        self._node.bind(self._pod)
        self._event("Scheduled", f"Successfully assigned pod to {self._node.name}")
        self._say("Pending", state={"waiting": {"reason": "ContainerCreating"}})
        while container := self._started():
            self._watch(container)
            self._say_ended(self._end(container))
            if self._spec["restartPolicy"] == "Never":
                self._wait(float("inf"))
            back_off = min(_BACK_OFF_SECONDS * 2 ** self._status["restartCount"], _MOST_BACK_OFF_SECONDS)
            self._wait(back_off)
            self._status["restartCount"] += 1
        if not self._node.over.is_set():
            self._node.let_go(self._pod)

    def _leaves(self) -> bool:
        """Whether it has to end."""
        pod = self._node.pods.get(self._name)
        return self._node.over.is_set() or pod is None or "deletionTimestamp" in pod["metadata"]

    def _wait(self, seconds: float) -> None:
        """So many of the manifest's seconds, or until it has to end."""
        until = time.monotonic() + seconds / self._node.pace
        while time.monotonic() < until and not self._leaves():
            time.sleep(_TURN_SECONDS)

    def _started(self) -> Container | None:
        """Its container, as soon as all is there that it needs; None if it has to end before."""
        told = ""
        while not self._leaves():
            try:
                return self._start()
            except LookupError as error:
                if told != str(error):
                    told = str(error)
                    self._event("FailedMount", told)
            except ApiException as error:
                message = message_of(error)
                self._say("Pending", state={"waiting": {"reason": "CreateContainerConfigError", "message": message}})
            self._wait(1)
        return None

    def _start(self) -> Container:
        """Raises LookupError for a volume that cannot be mounted, ApiException for a Secret that is not there."""
        mounted = mounts(self._spec, self._find, self._node.storage, self._folder)
        variables = self._variables()
        container = self.container = Container(
            [expanded(word, variables) for word in self._container["command"]],
            {**self._node.image, **variables},
            [*self._node.image_mounts, Mount(self._hosts(), "/etc/hosts", read_only=True), *mounted],
            {**self._spec.get("securityContext", {}), **self._container.get("securityContext", {})},
            self._folder / "root",
            self.address,
            self._container.get("workingDir", "/"),
        )
        lines: list[tuple[str, str]] = []
        self._logs.append(lines)
        self._reader = threading.Thread(target=_read, args=(container, lines))
        self._reader.start()
        self._event("Pulled", f'Container image "{self._container["image"]}" already present on machine')
        self._event("Started", f"Started container {self._container['name']}")
        self._say("Running", state={"running": {"startedAt": now()}}, started="startupProbe" not in self._container)
        return container

    def _hosts(self) -> Path:
        """The pod's own name, as a kubelet gives it, and those of Services that there are by now: there is no DNS."""
        path = self._folder / "hosts"
        own = f"127.0.0.1 localhost\n{self.address} {socket.gethostname()}\n"
        path.write_text(own + self._node.services.hosts())
        return path

    def _watch(self, container: Container) -> None:
        """Probes it until it has ended, or has to."""
        due, failures = dict.fromkeys(_PROBES, time.monotonic()), Counter[str]()
        while container.process.poll() is None and not self._leaves():
            time.sleep(_TURN_SECONDS)
            asked = ("startupProbe",) if not self._status["started"] else ("readinessProbe", "livenessProbe")
            for name in asked:
                probe = self._container.get(name)
                if probe is None or time.monotonic() < due[name]:
                    continue
                failure = self._ask(probe)
                due[name] = time.monotonic() + probe["periodSeconds"] / self._node.pace
                failures[name] = failures[name] + 1 if failure else 0
                if failure:
                    self._event("Unhealthy", f"{_PROBES[name]} probe failed: {failure}")
                if failures[name] == probe["failureThreshold"] and name != "readinessProbe":
                    word = _PROBES[name].lower()
                    self._event(
                        "Killing", f"Container {self._container['name']} failed {word} probe, will be restarted"
                    )
                    return
                self._conclude(name, failures[name], probe["failureThreshold"])

    def _conclude(self, name: str, failures: int, most: int) -> None:
        """Says what is new of it: that it has started, is ready, or is so no longer."""
        if name == "startupProbe" and not failures:
            self._say("Running", started=True)
        if name == "readinessProbe" and not failures:
            self.answers = True
            if not self._status["ready"] and self._node.may_be_ready.is_set():
                self._say("Running", ready=True)
        if name == "readinessProbe" and failures == most and self._status["ready"]:
            self._say("Running", ready=False)

    def _ask(self, probe: Document) -> str:
        """Why it fails; empty when it does not."""
        ports = {item["name"]: item["containerPort"] for item in self._container["ports"]}
        url = f"http://{self.address}:{ports[probe['httpGet']['port']]}{probe['httpGet']['path']}"
        try:
            with urllib3.PoolManager() as pool:
                status = pool.request("GET", url, retries=False, timeout=probe["timeoutSeconds"]).status
        except urllib3.exceptions.HTTPError as error:
            return f'Get "{url}": {error}'
        return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"

    def _end(self, container: Container) -> int:
        """Ends it if it has not ended: preStop, SIGTERM, and SIGKILL when its time is over. The exit code."""
        if self._node.over.is_set():
            container.kill()
        elif container.process.poll() is None:
            self._event("Killing", f"Stopping container {self._container['name']}")
            grace = self._spec["terminationGracePeriodSeconds"]
            pause = self._container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            self._node.over.wait(pause / self._node.pace)
            container.terminate()
            until = time.monotonic() + grace - pause
            while container.process.poll() is None and not self._node.over.wait(_TURN_SECONDS):
                if time.monotonic() > until:
                    container.kill()
        container.kill()
        code = container.end()
        self._reader.join()
        return code

    def _say_ended(self, code: int) -> None:
        ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now()}}
        if self._spec["restartPolicy"] == "Never" or self._leaves():
            self._say("Failed" if code else "Succeeded", state=ended, ready=False, started=False)
            return
        message = f"back-off restarting failed container={self._container['name']}"
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        self._say("Running", state=waiting, lastState=ended, ready=False, started=False)

    def _say(self, phase: str, **news: Any) -> None:
        """Writes the status, if the pod is still there."""
        self._status |= news
        is_ready = self._status["ready"]
        names = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        holds = dict.fromkeys(names[:2], True) | dict.fromkeys(names[2:], is_ready)
        conditions = [{"type": name, "status": str(holds[name]), "lastTransitionTime": now()} for name in names]
        about = {"name": self._container["name"], "image": self._container["image"], "imageID": ""}
        status = {
            "phase": phase,
            "conditions": conditions,
            "hostIP": "127.0.0.1",
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "containerStatuses": [{**about, **self._status}],
        }
        self._node.write_status(self._pod, status)

    def _event(self, reason: str, message: str) -> None:
        self._node.tell(self._pod, reason, message)

    def _variables(self) -> dict[str, str]:
        """Raises ApiException for a Secret that is not there."""
        found: dict[str, str] = {}
        for item in self._container.get("env", ()):
            if "value" in item:
                found[item["name"]] = expanded(item["value"], found)
            else:
                wanted = item["valueFrom"]["secretKeyRef"]
                place = f"/api/v1/namespaces/{self._node.cluster.namespace}/secrets/{wanted['name']}"
                secret = self._node.cluster.call("GET", place)
                found[item["name"]] = base64.b64decode(secret["data"][wanted["key"]]).decode()
        return found

    def _find(self, plural: str, name: str) -> Document:
        within = "" if plural == "persistentvolumes" else f"/namespaces/{self._node.cluster.namespace}"
        found = self._node.cluster.find(f"/api/v1{within}/{plural}/{name}")
        if found is None:
            raise LookupError(f'{plural.removesuffix("s")} "{name}" not found')
        return found


_PROBES = {"startupProbe": "Startup", "readinessProbe": "Readiness", "livenessProbe": "Liveness"}


def _read(container: Container, lines: list[tuple[str, str]]) -> None:
    assert container.process.stdout
    with container.process.stdout:
        for line in container.process.stdout:
            lines.append((now(), line.rstrip("\n")))


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """With the values of the variables before it; a name that is none of them stays as it is."""
    return _REFERENCE.sub(lambda found: "$" if found[1] is None else variables.get(found[1], found[0]), text)
