"""A node of a genuine control plane: its pods are containers of this machine, as their manifests have them.

What each pod goes through is in pod_life.py. It stands for kube-proxy, too: services.py.
"""

from __future__ import annotations

import tempfile
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

from container import Mount
from pod_life import PodLife
from pod_volumes import Document, Storage
from registered_node import RegisteredNode
from services import Services
from watched_threads import watched_threads

from toolkit.platforms.kubernetes.cluster import Cluster, path

_LOOK_SECONDS = 0.1
PYTHON_PATH = "/opt/of-the-test"


class Node(RegisteredNode):
    """Runs pods of the cluster's namespace while it is used as a context.

    `pace` is how many times faster than declared probes come, preStop's pause and the
    one before the next start pass; what a container gets to answer or to end is as declared. `python_path` is a folder
    that Python looks into first in every container. While `may_be_ready` is not set, no pod becomes ready.
    """

    def __init__(self, cluster: Cluster, storage: Storage, pace: float, python_path: Path) -> None:
        super().__init__(cluster)
        self.storage, self.pace = storage, pace
        self.image, self.image_mounts = {"PYTHONPATH": PYTHON_PATH}, [Mount(python_path, PYTHON_PATH, read_only=True)]
        self.may_be_ready, self.over = threading.Event(), threading.Event()
        self.may_be_ready.set()
        self.pods: dict[str, Document] = {}
        self.lives: dict[str, PodLife] = {}
        self.services = Services(self)
        self._held = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as held:
            # A short path: vLLM's sockets are in there, and theirs has 107 characters at most.
            self._folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
            self._folder.chmod(0o755)
            super().__enter__()
            held.callback(super().__exit__)
            held.enter_context(closing(self.services))
            self._start = held.enter_context(watched_threads())
            held.callback(self.over.set)
            self._start(self._work)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what still runs. Raises what went wrong with a pod."""
        self._held.close()

    def lines(self, pod: str) -> list[str]:
        """What the pod's containers have written, also of one that is no more."""
        return [line for start in self.logs[pod] for _, line in start]

    def _work(self) -> None:
        while not self.over.wait(_LOOK_SECONDS):
            self.keep_alive()
            listed = self.cluster.items(path("Pod", self.cluster.namespace), {})
            self.pods = {item["metadata"]["name"]: item for item in listed}
            self.services.look()
            for name in self.pods.keys() - self.lives.keys():
                self.lives[name] = PodLife(self, self.pods[name], self._folder / name)
                self._start(self.lives[name].live)
