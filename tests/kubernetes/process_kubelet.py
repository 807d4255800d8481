"""A kubelet that runs pods for real: the container of each is a process of this machine, as its manifest has it.

A process has no mounts and no address of its own. So folders stand for what is mounted, their paths stand in command
and environment wherever the manifest says a mount's, and the entrypoint learns its port of loopback by
SAGEMAKER_BIND_TO_PORT. The image is this Python, which cannot write to a root that is read-only. Left out: users,
devices and limits, every probe but the readiness probe, what goes before SIGTERM, and the pause before a container
that has ended is started again.
"""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import urllib3
from standin_cluster import StandInCluster
from standin_controllers import Script
from standin_kubelet import Step, crashed, not_ready, ready, scheduled, started, waits
from standin_store import Document, Key, Refusal

from toolkit.platforms.local.container import free_port

READ_ONLY_ROOT = Path(__file__).with_name("read_only_root")
PROGRAMS = "/opt/toolkit"
_LOOK_SECONDS = 0.1
# $(NAME) and $$: third_party/forked/golang/expansion of kubernetes.
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SERVICE = re.compile(r"http://([a-z0-9-]+)\.([a-z0-9-]+)\.svc\b")


@dataclass
class Running:
    """A container's process, and the thread that reads what it writes. `grace` are the seconds that it gets to end."""

    process: subprocess.Popen[str]
    reader: threading.Thread
    grace: float
    restarts: int
    is_ready: bool = False
    killed_at: float | None = None

    def terminate(self) -> None:
        """SIGTERM, and SIGKILL to one that has not ended in time."""
        if self.killed_at is None:
            self.process.terminate()
            self.killed_at = time.monotonic() + self.grace
        elif time.monotonic() > self.killed_at:
            self.process.kill()

    def end(self) -> int:
        """The exit code, with no process left: 128 + N when signal N ended it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.reader.join()
        code = self.process.wait()
        return 128 - code if code < 0 else code


class ProcessKubelet:
    """Runs the cluster's pods while it is used as a context. All find the same `cache` as their emptyDir: that of a
    node which has fetched the models before.
    """

    def __init__(self, cluster: StandInCluster, cache: Path) -> None:
        self.running: dict[Key, Running] = {}
        self.cluster, self._cache = cluster, cache
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> ProcessKubelet:
        # A short path: vLLM's sockets are in there, and theirs has 107 characters at most.
        self._folder = tempfile.TemporaryDirectory()
        self.cluster.controllers.script = Script(())
        self.cluster.controllers.endless = True  # pods go when their processes have
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for running in self.running.values():
            running.end()
        self._folder.cleanup()

    def run(self, name: str, namespace: str, spec: Document) -> subprocess.CompletedProcess[str]:
        """A Job's pod, to its end. Names of Services are addresses for it: there is no DNS here."""
        with self.cluster.lock:
            command, environment = self._prepared(Key("pods", namespace, name), spec)
            command = [_SERVICE.sub(lambda found: self._url(found[2], found[1]), word) for word in command]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def _work(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            with self.cluster.lock:
                pods = {key: item for key, item in self.cluster.store.objects.items() if key.plural == "pods"}
            for key in {**self.running, **pods}:
                self._look(key, pods.get(key))

    def _look(self, key: Key, pod: Document | None) -> None:
        """Bring one pod nearer to what it shall be; None is one that is no more."""
        running = self.running.get(key)
        leaves = pod is None or "deletionTimestamp" in pod["metadata"]
        if running and running.process.poll() is not None:
            del self.running[key]
            self._say(key, crashed(running.end(), restarts=running.restarts))
            self._say(key, not_ready())
        elif running and leaves:
            running.terminate()
        elif running and pod:
            self._probe(key, running, pod["spec"]["containers"][0])
        elif leaves:
            with self.cluster.lock:
                if key in self.cluster.store.objects:
                    self.cluster.controllers.drop(key)
        elif pod and "status" not in pod:
            self._say(key, scheduled())
            self._start(key, pod["spec"], started())
        elif pod and (ended := pod["status"]["containerStatuses"][0])["lastState"]:
            restarts = ended["restartCount"] + 1
            self._start(key, pod["spec"], started(restarts=restarts, last=ended["lastState"]), restarts)

    def _start(self, key: Key, spec: Document, step: Step, restarts: int = 0) -> None:
        port = free_port()
        try:
            with self.cluster.lock:
                command, environment = self._prepared(key, spec)
        except Refusal as refusal:
            self._say(key, waits("CreateContainerConfigError", str(refusal)))
            return
        process = subprocess.Popen(
            command,
            env={**environment, "SAGEMAKER_BIND_TO_PORT": str(port), "SM_VLLM_HOST": "127.0.0.1"},
            cwd=environment["HOME"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.cluster.backends[key.name] = f"http://127.0.0.1:{port}"
        self._say(key, step)
        reader = threading.Thread(target=self._read, args=(key, process))
        reader.start()
        self.running[key] = Running(process, reader, spec["terminationGracePeriodSeconds"], restarts)

    def _read(self, key: Key, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        with process.stdout:
            for line in process.stdout:
                self._say(key, Step(lines=[line.rstrip("\n")]))

    def _probe(self, key: Key, running: Running, container: Document) -> None:
        probe = container["readinessProbe"]
        url = f"{self.cluster.backends[key.name]}{probe['httpGet']['path']}"
        is_ready = False
        with urllib3.PoolManager() as pool, suppress(urllib3.exceptions.HTTPError):
            is_ready = pool.request("GET", url, retries=False, timeout=probe["timeoutSeconds"]).status == 200
        if is_ready != running.is_ready:
            running.is_ready = is_ready
            self._say(key, ready() if is_ready else not_ready())

    def _say(self, key: Key, step: Step) -> None:
        with self.cluster.lock:
            if key in self.cluster.store.objects:
                self.cluster.controllers.say(key, step)

    def _prepared(self, key: Key, spec: Document) -> tuple[list[str], dict[str, str]]:
        """Command and environment of the pod's container, and its folder made."""
        container, home = spec["containers"][0], Path(self._folder.name) / key.name
        home.mkdir(parents=True, exist_ok=True)
        mounts = self._mounts(key.namespace, spec, home)
        variables = self._variables(key.namespace, container)
        basics = {
            # Where `python3` is the one of the image.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(home),
            "TMPDIR": self._folder.name,
            "PYTHONUNBUFFERED": "1",
        }
        if container["securityContext"]["readOnlyRootFilesystem"]:
            writable = [folder for path, folder in mounts.items() if path != PROGRAMS]
            basics["WRITABLE"] = os.pathsep.join(map(str, [*map(Path.resolve, writable), self._folder.name]))
            basics["PYTHONPATH"] = str(READ_ONLY_ROOT)
        command = [_on_this_machine(_expanded(word, variables), mounts) for word in container["command"]]
        return command, basics | {name: _on_this_machine(value, mounts) for name, value in variables.items()}

    def _mounts(self, namespace: str, spec: Document, home: Path) -> dict[str, Path]:
        """Folders by the paths that stand for them in the container."""
        volumes, found = {item["name"]: item for item in spec["volumes"]}, {}
        for mount in spec["containers"][0]["volumeMounts"]:
            volume = volumes[mount["name"]]
            if "configMap" in volume:
                folder = found[mount["mountPath"]] = home / mount["name"]
                folder.mkdir(exist_ok=True)
                held = self.cluster.store.get(Key("configmaps", namespace, volume["configMap"]["name"]))
                for name, text in held["data"].items():
                    (folder / name).write_text(text)
            elif volume.get("emptyDir") == {}:
                folder = found[mount["mountPath"]] = self._cache if mount["name"] == "cache" else home / mount["name"]
                folder.mkdir(exist_ok=True)
        return found

    def _variables(self, namespace: str, container: Document) -> dict[str, str]:
        """Raises Refusal for a Secret that is not there."""
        found: dict[str, str] = {}
        for item in container.get("env", []):
            if "value" in item:
                found[item["name"]] = _expanded(item["value"], found)
            else:
                wanted = item["valueFrom"]["secretKeyRef"]
                secret = self.cluster.store.get(Key("secrets", namespace, wanted["name"]))
                found[item["name"]] = base64.b64decode(secret["data"][wanted["key"]]).decode()
        return found

    def _url(self, namespace: str, service: str) -> str:
        pod = self.cluster.ready_pod(Key("services", namespace, service))
        return self.cluster.backends[pod["metadata"]["name"]]


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """With the values of the variables before it; a name that is none of them stays as it is."""
    return _REFERENCE.sub(lambda found: "$" if found[1] is None else variables.get(found[1], found[0]), text)


def _on_this_machine(text: str, mounts: Mapping[str, Path]) -> str:
    """With folders in place of mounted paths; all at once, as a folder of ours may lie below a path of the pod's."""
    paths = "|".join(sorted(map(re.escape, mounts), key=len, reverse=True))
    return re.sub(rf"(?<![\w.-])({paths})(?![\w.-])", lambda found: str(mounts[found[1]]), text)
