"""One change at a time: who changes an endpoint holds a Lease in its namespace, and renews it meanwhile."""

from __future__ import annotations

import getpass
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from toolkit.errors import PlatformError
from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.errors import causes_of
from toolkit.platforms.kubernetes.execute import wait_gone
from toolkit.platforms.kubernetes.kinds import address, is_ours, path
from toolkit.platforms.kubernetes.rules.metadata import INSTANCE, OURS

# A dead holder keeps others out for so long; a live one renews three times meanwhile.
_SECONDS = 30
_RENEWAL_SECONDS = 10.0
_POLL_SECONDS = 2.0
# Admission plugin NamespaceLifecycle: the cause that it gives.
_GOING = "NamespaceTerminating"


@contextmanager
def lease(
    cluster: Cluster,
    namespace: str,
    endpoint: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the endpoint's lease. Raises PlatformError when somebody holds it who is seen to renew it.

    In a namespace that is being deleted it waits until that is gone.
    As in client-go's leader election no other clock counts: a lease that stays as it is for 30 seconds is nobody's.
    """
    claim = _Claim(cluster, namespace, endpoint, clock, sleep)
    over = threading.Event()
    renewing = threading.Thread(target=claim.renew_until, args=(over,), daemon=True)
    try:
        claim.acquire()
        renewing.start()
        yield
    finally:
        over.set()
        if renewing.ident:
            renewing.join()
        claim.release()


@dataclass(frozen=True)
class _Claim:
    """Ours on one lease. Every write names the version that it replaces: of two that come at once, one is refused."""

    cluster: Cluster
    namespace: str
    endpoint: str
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    holder: str = field(default_factory=lambda: f"{getpass.getuser()}@{socket.gethostname()} {uuid.uuid4().hex[:8]}")

    def acquire(self) -> None:
        """Write the lease, in a namespace that is made when it is not there. Raises PlatformError or ApiException."""
        seen, since = "", self.clock()
        while not self._create():
            there = self.cluster.find(self._path)
            if there is None:
                continue
            if not is_ours(there):
                hint = "Give the recipe another `name:`, or remove that Lease."
                raise PlatformError(f"Lease {self._name} was not made by the toolkit", hint=hint)
            spec, version = there.get("spec") or {}, there["metadata"]["resourceVersion"]
            if spec.get("holderIdentity") == self.holder:  # the answer to an earlier try was lost
                return
            if seen and version != seen:
                raise self._refused(spec.get("holderIdentity", ""))
            # The pause may be long: whoever holds it may have said that it renews less often.
            if seen and self.clock() - since > spec.get("leaseDurationSeconds", _SECONDS):
                if self._replace(there):
                    return
                raise self._refused("somebody who was faster")
            seen = version
            self.sleep(_POLL_SECONDS)

    def renew_until(self, over: threading.Event) -> None:
        """Keep it alive."""
        while not over.wait(_RENEWAL_SECONDS):
            with suppress(ApiException, HTTPError):  # there are two more attempts
                there = self.cluster.find(self._path)
                if there and there["spec"].get("holderIdentity") == self.holder:
                    self._replace(there)

    def release(self) -> None:
        """Give it back, if it is still ours."""
        with suppress(ApiException, HTTPError):  # it ends by itself
            there = self.cluster.find(self._path)
            if there and there["spec"].get("holderIdentity") == self.holder:
                version = {"resourceVersion": there["metadata"]["resourceVersion"]}
                self.cluster.call("DELETE", self._path, {"preconditions": version})

    @property
    def _path(self) -> str:
        return address("coordination.k8s.io/v1", "leases", self.namespace, self._name)

    @property
    def _name(self) -> str:
        return f"toolkit-{self.endpoint}"

    def _create(self) -> bool:
        """Whether the lease is ours now; False when there is one."""
        folder = self._path.rpartition("/")[0]
        try:
            self.cluster.call("POST", folder, self._document({}))
        except ApiException as error:
            if error.status == 404:
                self._make_namespace()
                return False
            if any(cause.get("reason") == _GOING for cause in causes_of(error)):
                self._await_namespace()
                return False
            if error.status != 409:
                raise
            return False
        return True

    def _make_namespace(self) -> None:
        metadata = {"name": self.namespace, "labels": OURS}
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.cluster.apply(path("Namespace", "", self.namespace), manifest)

    def _await_namespace(self) -> None:
        """Nothing is made in a namespace that is being deleted."""
        if there := self.cluster.find(path("Namespace", "", self.namespace)):
            wait_gone(self.cluster, "Namespace", "", there, self.clock, self.sleep)

    def _replace(self, there: dict[str, Any]) -> bool:
        """Whether it was still the version that we saw."""
        try:
            self.cluster.call("PUT", self._path, self._document(there["metadata"]))
        except ApiException as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    def _document(self, metadata: dict[str, Any]) -> dict[str, Any]:
        labels = {**OURS, INSTANCE: self.endpoint}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "labels": labels, **_version(metadata)},
            "spec": {"holderIdentity": self.holder, "leaseDurationSeconds": _SECONDS, "renewTime": now},
        }

    def _refused(self, holder: str) -> PlatformError:
        hint = "Wait until that is done. If it is dead already, its claim ends within half a minute."
        return PlatformError(f"{self.endpoint} is being changed by {holder}", hint=hint)


def _version(metadata: dict[str, Any]) -> dict[str, str]:
    return {"resourceVersion": metadata["resourceVersion"]} if metadata else {}
