"""Heads that Jobs have trained: from the claim to this machine, and to where endpoints read them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.client import ApiException

from toolkit import documents
from toolkit.errors import PlatformError, WaitTimeout
from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.execute import Objects
from toolkit.platforms.kubernetes.kinds import path
from toolkit.platforms.kubernetes.pods import Document, is_ready, trouble_of
from toolkit.platforms.kubernetes.rollout import readable_events
from toolkit.platforms.kubernetes.rules.security import PORT
from toolkit.platforms.kubernetes.rules.training import placing_pod, reading_pod

_START_SECONDS = 900.0
_PAUSE_SECONDS = 1.0
_LISTING = documents.Limits(size=1024**2, seconds=60.0)
# A file of a head as http.server lists it: no folder, and nothing that leads out of one.
_FILE = re.compile(r'<a href="([A-Za-z0-9][\w.-]*)">')
_PIECE_BYTES = 1024**2


@dataclass(frozen=True)
class Heads:
    """Heads in the claims of a namespace, each handed over by a pod of its own, which is deleted again."""

    cluster: Cluster
    namespace: str
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def fetch(self, job: Mapping[str, Any], folder: Path) -> None:
        """Copy the head that a Job made to `folder`. Raises PlatformError, WaitTimeout."""
        with self._pod(reading_pod(job), is_ready) as name:
            address = f"{path('Pod', self.namespace, name)}:{PORT}/proxy/"
            listing = self.cluster.read("GET", address, limits=_LISTING).decode(errors="replace")
            names = _FILE.findall(listing)
            if not names:
                hint = "Set another `training.seed` to train it again, or restore the claim."
                raise PlatformError(f"the head of {job['metadata']['name']} is not in its claim", hint=hint)
            for file in names:
                self._save(f"{address}{file}", folder / file)

    def place(self, job: Mapping[str, Any], name: str) -> None:
        """Copy the head to the folder of the claim from which endpoints read it. Raises PlatformError, WaitTimeout."""
        with self._pod(placing_pod(job, name), _has_succeeded):
            pass

    def _save(self, address: str, to: Path) -> None:
        try:
            with closing(self.cluster.open("GET", address)) as answer, to.open("wb") as stream:
                for piece in answer.stream(_PIECE_BYTES):
                    stream.write(piece)
        except OSError as error:
            hint = "Make room. The head stays in the claim; the same command goes on."
            raise PlatformError(f"{to} cannot be written: {error.strerror}", hint=hint) from error

    @contextmanager
    def _pod(self, manifest: Mapping[str, Any], is_done: Callable[[Document], bool]) -> Iterator[str]:
        """The pod's name, once it is as wanted. One that an earlier command has left is deleted first."""
        name = manifest["metadata"]["name"]
        self._delete(name)
        self.cluster.call("POST", path("Pod", self.namespace), manifest)
        try:
            self._wait(name, is_done)
            yield name
        finally:
            self._delete(name)

    def _wait(self, name: str, is_done: Callable[[Document], bool]) -> None:
        deadline, why = self.clock() + _START_SECONDS, ""
        see = f"See: kubectl describe pod -n {self.namespace} {name}. The head stays in its claim."
        while self.clock() < deadline:
            pod = self.cluster.find(path("Pod", self.namespace, name)) or {}
            if is_done(pod):
                return
            trouble = trouble_of(pod, readable_events(self.cluster, self.namespace, pod)) if pod else None
            why = f": {trouble.text}" if trouble else ""
            if (trouble and trouble.certain) or pod.get("status", {}).get("phase") == "Failed":
                raise PlatformError(f"pod {name} cannot hand the head over{why}", hint=see)
            self.sleep(_PAUSE_SECONDS)
        raise WaitTimeout(f"pod {name} has not handed the head over after {_START_SECONDS:.0f} s{why}", hint=see)

    def _delete(self, name: str) -> None:
        url = path("Pod", self.namespace, name)
        existing = self.cluster.find(url)
        if existing is None:
            return
        try:
            self.cluster.call("DELETE", url, {"gracePeriodSeconds": 0})
        except ApiException as error:
            if error.status != 404:
                raise
        Objects(self.cluster, self.namespace, self.clock, self.sleep).wait_gone("Pod", existing)


def _has_succeeded(pod: Document) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Succeeded")
